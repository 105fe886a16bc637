//! Mutual TLS of the listener: one provider, a client certificate always required.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::options::{EtcdTls, ListenError};

/// Reads the files and builds the server's side.
pub(crate) fn server_config(tls: &EtcdTls) -> Result<Arc<ServerConfig>, ListenError> {
    let chain = certificates(&tls.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| unusable(&tls.key_file, &error))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.client_ca_file)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(&tls.client_ca_file, &error))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| unusable(&tls.client_ca_file, &error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
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
