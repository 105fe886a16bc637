//! TLS of the listener: one provider, a client certificate asked for wherever there is a CA.
//!
//! The files are compared with what was read from them, at most once a second and as clients come:
//! so a renewed certificate is shown to the next client, and nothing is done while nobody comes.
//! Files that cannot be used leave what there was, and are said once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::options::{EtcdTls, ListenError, TlsVersions};

/// How long what was read is taken for what is there.
const FRESH: Duration = Duration::from_secs(1);
const VERSIONS_12: &[&SupportedProtocolVersion] = &[&version::TLS12];
const VERSIONS_13: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// The certificates in use, and what they were read from.
pub(crate) struct Certificates {
    files: EtcdTls,
    current: ArcSwap<ServerConfig>,
    read: Mutex<Read>,
}

struct Read {
    at: Instant,
    contents: Contents,
}

/// What each file held; unreadable ones hold nothing.
type Contents = Vec<Option<Vec<u8>>>;

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// `Certificate` or `Tls` when they cannot be used.
    pub(crate) fn read(files: &EtcdTls) -> Result<Self, ListenError> {
        // Before they are used: what changes in between is then seen as a change.
        let contents = contents(files);
        Ok(Certificates {
            current: ArcSwap::new(server_config(files)?),
            read: Mutex::new(Read {
                at: Instant::now(),
                contents,
            }),
            files: files.clone(),
        })
    }

    /// Whether a name is shown by everybody who comes in.
    pub(crate) fn asks_for_names(&self) -> bool {
        self.files.client_ca_file.is_some()
    }

    /// For the next client. Reads a few small files when that was not done for a second.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.refresh();
        TlsAcceptor::from(self.current.load_full())
    }

    fn refresh(&self) {
        // Whoever is second takes what there is rather than wait.
        let Some(mut read) = self.read.try_lock() else {
            return;
        };
        if read.at.elapsed() < FRESH {
            return;
        }
        read.at = Instant::now();
        let now = contents(&self.files);
        if now == read.contents {
            return;
        }
        read.contents = now;
        match server_config(&self.files) {
            Ok(config) => {
                self.current.store(config);
                tracing::info!(
                    certificate = %self.files.cert_file.display(),
                    "certificates of the etcd listener were read anew"
                );
            }
            // Half-written files come by here too, and are looked at again when they change.
            Err(error) => tracing::warn!(
                %error,
                "certificates of the etcd listener changed and cannot be used: the old ones stay"
            ),
        }
    }
}

fn contents(files: &EtcdTls) -> Contents {
    let named = [&files.client_ca_file, &files.client_crl_file];
    let paths = [&files.cert_file, &files.key_file].into_iter();
    let paths = paths.chain(named.into_iter().flatten());
    paths.map(|path| std::fs::read(path).ok()).collect()
}

/// Reads the files and builds the server's side.
fn server_config(tls: &EtcdTls) -> Result<Arc<ServerConfig>, ListenError> {
    let chain = certificates(&tls.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| unusable(&tls.key_file, &error))?;
    let provider = Arc::new(provider(&tls.cipher_suites)?);
    let clients: Arc<dyn ClientCertVerifier> = match &tls.client_ca_file {
        Some(path) => verifier(path, tls.client_crl_file.as_ref(), &provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let versions = match tls.versions {
        TlsVersions::Both => rustls::DEFAULT_VERSIONS,
        TlsVersions::Only12 => VERSIONS_12,
        TlsVersions::Only13 => VERSIONS_13,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .and_then(|builder| {
            builder
                .with_client_cert_verifier(clients)
                .with_single_cert(chain, key)
        })
        .map_err(|error| ListenError::Tls {
            reason: error.to_string(),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Those of 1.3 are never chosen, as in Go: there is none among them to leave out.
fn provider(suites: &[String]) -> Result<CryptoProvider, ListenError> {
    let mut provider = aws_lc_rs::default_provider();
    if suites.is_empty() {
        return Ok(provider);
    }
    let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
    let (offered, weak): (Vec<&String>, Vec<&String>) =
        suites.iter().partition(|wanted| known.contains(wanted));
    if offered.is_empty() {
        return Err(ListenError::Tls {
            reason: format!(
                "none of the cipher suites named is offered; choose of {}",
                known.join(", ")
            ),
        });
    }
    if !weak.is_empty() {
        tracing::warn!(?weak, "cipher suites are named that are not offered");
    }
    provider
        .cipher_suites
        .retain(|suite| suite.tls13().is_some() || suites.contains(&name(suite)));
    Ok(provider)
}

fn verifier(
    ca: &Path,
    crl: Option<&PathBuf>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ListenError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(ca, &error))?;
    }
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if let Some(path) = crl {
        let lists = revocation_lists(path)?;
        // A list says who is out; of those it does not speak of it says nothing.
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    builder
        .build()
        .map_err(|error| unusable(crl.map_or(ca, PathBuf::as_path), &error))
}

/// PEM as everything else, or the one bare list (DER) that etcd takes as well.
fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, ListenError> {
    let read = std::fs::read(path).map_err(|error| unusable(path, &error))?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&read)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(path, &error))?;
    if lists.is_empty() && read.is_empty() {
        return Err(unusable(path, &"it holds no revocation list"));
    }
    Ok(if lists.is_empty() {
        vec![CertificateRevocationListDer::from(read)]
    } else {
        lists
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ListenError> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, &error))?;
    if read.is_empty() {
        return Err(unusable(path, &"it holds no certificate"));
    }
    Ok(read)
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> ListenError {
    ListenError::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
