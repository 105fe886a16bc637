//! What a listener shows and asks for in a TLS handshake, replaceable while it serves.
//!
//! Certificates are chosen by server name. A client certificate is asked for and not required.
//! Whose it is, and for which cluster it is good, is decided later by `authn`; this file gives
//! nobody an identity. As with a kube-apiserver one of an unknown authority does not fail the
//! handshake, so that whoever has it may still show a token; only that its owner holds the key is
//! proven here. A listener without a judge behind it has strangers refused in the handshake
//! ([`ClientCertificates::OfAuthorities`]). Early data is never taken. Sessions are resumed only
//! under the configuration that made them, authorities included: another [`TlsSpec`] comes with an
//! empty session store.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::unjudged::Unjudged;

/// Sessions remembered for resumption, some 3 KiB each: enough for the reconnects of a few
/// hundred nodes in a minute.
const SESSIONS: usize = 1024;

/// A server certificate with its key, both PEM.
#[derive(Clone)]
pub struct ServerIdentity {
    /// The chain, leaf first.
    pub certificate_pem: Vec<u8>,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key_pem: Vec<u8>,
    /// The names it is shown for, lower-case, whatever it carries; none: those that it carries, as
    /// far as no other identity names them.
    pub names: Vec<String>,
}

/// All a listener needs for TLS. The first identity serves clients that name no server, or one
/// that none of the certificates carries.
#[derive(Clone, Default)]
pub struct TlsSpec {
    /// At least one.
    pub identities: Vec<ServerIdentity>,
    /// PEM bundles of the authorities of client certificates; none: no certificate is asked for.
    pub client_cas_pem: Vec<Vec<u8>>,
    /// Which client certificates come through the handshake.
    pub client_certificates: ClientCertificates,
}

/// Which client certificates come through the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Those of the authorities named; nobody has to look at them again.
    #[default]
    OfAuthorities,
    /// All: who serves the requests judges them.
    JudgedLater,
}

/// A [`TlsSpec`] that cannot be used; nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No identity was given.
    #[error("no server certificate is given; name at least one")]
    NoIdentity,
    /// The PEM text holds no such thing.
    #[error("{what} is not readable: {reason}; give PEM text")]
    Unreadable {
        /// Which part.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The parts do not make a configuration.
    #[error("{what} cannot be used: {reason}")]
    Unusable {
        /// Which part.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

/// The current TLS configuration of a listener; each handshake takes it once.
#[derive(Debug)]
pub struct TlsSource {
    current: ArcSwap<ServerConfig>,
    /// Tells what `current` was made of.
    digest: Mutex<SpecDigest>,
}

type SpecDigest = [u8; 32];

impl TlsSource {
    /// Compiles `spec`.
    ///
    /// # Errors
    /// [`TlsError`] names the part that does not fit.
    pub fn new(spec: &TlsSpec) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(TlsSource {
            current: ArcSwap::from_pointee(compile(spec)?),
            digest: Mutex::new(spec.digest()),
        }))
    }

    /// Takes `spec` for all later handshakes; connections that stand are not touched. The same spec
    /// changes nothing, so that sessions outlive reloads of other things.
    ///
    /// # Errors
    /// As [`TlsSource::new`]; the old configuration stays.
    pub fn replace(&self, spec: &TlsSpec) -> Result<(), TlsError> {
        let mut known = self.digest.lock();
        let new = spec.digest();
        if *known != new {
            self.current.store(Arc::new(compile(spec)?));
            *known = new;
        }
        Ok(())
    }

    /// What the next handshake is made with.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }
}

impl TlsSpec {
    /// The same for the same spec; no key can be had from it.
    fn digest(&self) -> SpecDigest {
        let TlsSpec {
            identities,
            client_cas_pem,
            client_certificates,
        } = self;
        let mut digest = Sha256::new();
        let mut part = |bytes: &[u8]| {
            digest.update(bytes.len().to_be_bytes());
            digest.update(bytes);
        };
        for identity in identities {
            let ServerIdentity {
                certificate_pem,
                key_pem,
                names,
            } = identity;
            part(certificate_pem);
            part(key_pem);
            for name in names {
                part(name.as_bytes());
            }
            part(b"names");
        }
        part(b"authorities");
        for pem in client_cas_pem {
            part(pem);
        }
        part(match client_certificates {
            ClientCertificates::OfAuthorities => b"verified",
            ClientCertificates::JudgedLater => b"unjudged",
        });
        digest.finalize().into()
    }
}

fn compile(spec: &TlsSpec) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let resolver = ByName::compile(spec, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("provider", &error))?;
    let roots = roots(&spec.client_cas_pem)?;
    let builder = if roots.is_empty() {
        builder.with_no_client_auth()
    } else {
        let strict = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| unusable("client CA", &error))?;
        let verifier: Arc<dyn ClientCertVerifier> = match spec.client_certificates {
            ClientCertificates::OfAuthorities => strict,
            ClientCertificates::JudgedLater => Arc::new(Unjudged::new(strict)),
        };
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS);
    Ok(config)
}

fn roots(bundles: &[Vec<u8>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in bundles.iter().map(|pem| chain(pem, "client CA")) {
        for certificate in certificate? {
            roots
                .add(certificate)
                .map_err(|error| unusable("client CA", &error))?;
        }
    }
    Ok(roots)
}

/// The certificates of a PEM text; at least one.
fn chain(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |reason| TlsError::Unreadable { what, reason };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable("it holds no certificate".to_owned()));
    }
    Ok(chain)
}

fn unusable(what: &'static str, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Unusable {
        what,
        reason: error.to_string(),
    }
}

/// Certificates by the DNS names they are given or carry, lower-case; `*.` stands for one label.
#[derive(Debug)]
struct ByName {
    names: HashMap<String, Arc<CertifiedKey>>,
    first: Arc<CertifiedKey>,
}

impl ByName {
    fn compile(spec: &TlsSpec, provider: &CryptoProvider) -> Result<Self, TlsError> {
        let (mut names, mut named) = (HashMap::new(), HashMap::new());
        let mut first = None;
        for identity in &spec.identities {
            let chain = chain(&identity.certificate_pem, "server certificate")?;
            let carried = chain.first().map(dns_names).unwrap_or_default();
            let key = PrivateKeyDer::from_pem_slice(&identity.key_pem).map_err(|error| {
                TlsError::Unreadable {
                    what: "server key",
                    reason: error.to_string(),
                }
            })?;
            let certified = CertifiedKey::from_der(chain, key, provider)
                .map_err(|error| unusable("server certificate", &error))?;
            let certified = Arc::new(certified);
            for name in &identity.names {
                named.insert(name.clone(), Arc::clone(&certified));
            }
            if identity.names.is_empty() {
                for name in carried {
                    names.entry(name).or_insert_with(|| Arc::clone(&certified));
                }
            }
            first.get_or_insert(certified);
        }
        names.extend(named);
        let first = first.ok_or(TlsError::NoIdentity)?;
        Ok(ByName { names, first })
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        if let Some(found) = self.names.get(name) {
            return Some(found);
        }
        let (_, parent) = name.split_once('.')?;
        self.names.get(&format!("*.{parent}"))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls hands the name on in lower case.
        let named = hello.server_name().and_then(|name| self.find(name));
        Some(Arc::clone(named.unwrap_or(&self.first)))
    }
}

fn dns_names(leaf: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
    dns.collect()
}
