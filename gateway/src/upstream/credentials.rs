//! Reads the gateway's own credentials and the upstream's authorities from files, and makes TLS
//! configurations of them. Read again by the cluster while it runs: tokens and certificates are
//! rotated in place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderValue;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::spec::{CredentialsSpec, UpstreamError, UpstreamTlsSpec};
use crate::material::Material;

/// The content of every file a cluster names; compared to see whether anything has changed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Files {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
    token: Option<Vec<u8>>,
}

/// TLS configurations for one kind of connection each.
#[derive(Clone)]
pub(super) struct TlsConfigs {
    /// ALPN h2: the pools.
    pub(super) http2: Arc<ClientConfig>,
    /// ALPN http/1.1: tunnels.
    pub(super) http1: Arc<ClientConfig>,
}

impl Files {
    pub(super) fn read(
        tls: &UpstreamTlsSpec,
        credentials: &CredentialsSpec,
    ) -> Result<Self, UpstreamError> {
        let CredentialsSpec {
            client_cert_file,
            client_key_file,
            token_file,
        } = credentials;
        let client = match (client_cert_file, client_key_file) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            (None, None) => None,
            _ => return Err(UpstreamError::HalfPair),
        };
        Ok(Files {
            ca: tls.ca_file.as_ref().map(read).transpose()?,
            client,
            token: token_file.as_ref().map(read).transpose()?,
        })
    }

    pub(super) fn has_client(&self) -> bool {
        self.client.is_some()
    }

    /// Whether the TLS parts are the same, so that connections may stay.
    pub(super) fn has_same_tls(&self, other: &Files) -> bool {
        self.ca == other.ca && self.client == other.client
    }

    /// The value of the gateway's own Authorization header.
    pub(super) fn bearer(
        &self,
        credentials: &CredentialsSpec,
    ) -> Result<Option<HeaderValue>, UpstreamError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let path = place(credentials.token_file.as_ref());
        let token = token.trim_ascii();
        if token.is_empty() {
            return Err(fault(path, "it is empty; put a bearer token into it"));
        }
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
            .map_err(|_| fault(path, "it holds bytes that no token has"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// `None` without authorities. `shows_certificate` is false where the caller's own token has
    /// to be the only credential: kube-apiserver takes a certificate before a token.
    pub(super) fn tls(
        &self,
        tls: &UpstreamTlsSpec,
        credentials: &CredentialsSpec,
        shows_certificate: bool,
    ) -> Result<Option<TlsConfigs>, UpstreamError> {
        let (Some(ca), Some(ca_file)) = (&self.ca, &tls.ca_file) else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca, ca_file.place())? {
            roots.add(certificate)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let client = self.client.as_ref().filter(|_| shows_certificate);
        let mut config = match client {
            Some((cert, key)) => {
                let cert_file = place(credentials.client_cert_file.as_ref());
                let key_file = place(credentials.client_key_file.as_ref());
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| fault(key_file, error.to_string()))?;
                builder.with_client_auth_cert(certificates(cert, &cert_file)?, key)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut http1 = config.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(TlsConfigs {
            http2: Arc::new(config),
            http1: Arc::new(http1),
        }))
    }
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, UpstreamError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| fault(path.to_owned(), error.to_string()))?;
    if found.is_empty() {
        return Err(fault(path.to_owned(), "it holds no PEM certificate"));
    }
    Ok(found)
}

fn read(material: &Material) -> Result<Vec<u8>, UpstreamError> {
    material
        .read()
        .map_err(|error| fault(material.place().to_owned(), error.to_string()))
}

fn place(material: Option<&Material>) -> PathBuf {
    material.map_or_else(PathBuf::new, |it| it.place().to_owned())
}

fn fault(path: PathBuf, reason: impl Into<String>) -> UpstreamError {
    UpstreamError::File {
        path,
        reason: reason.into(),
    }
}
