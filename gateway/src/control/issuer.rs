//! Fetches the keys that tokens are judged by: from a cluster, or from an issuer by discovery.
//!
//! One short HTTPS exchange a document, bounded in time and size, without following redirects: an
//! answer from elsewhere would decide who may come in. The caller bounds how often.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::authn::jwt::{KeySource, KeysFuture, KeysOutage};
use crate::upstream::{CallOptions, Cluster};

#[cfg(test)]
mod tests;

/// The largest document read: key sets have a few KiB.
const DOCUMENT_MAX: usize = 256 * 1024;

const CLUSTER_KEYS: &str = "/openid/v1/jwks";
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The keys of a cluster's service accounts, read with the gateway's own credential.
pub(super) struct ClusterKeys(pub(super) Arc<Cluster>);

impl KeySource for ClusterKeys {
    fn fetch(&self) -> KeysFuture<'_> {
        Box::pin(async {
            let options = CallOptions {
                answer_max: DOCUMENT_MAX,
                ..CallOptions::default()
            };
            match self.0.read(CLUSTER_KEYS, options).await {
                Ok((status, keys)) if status.is_success() => Ok(keys),
                Ok((status, _)) => Err(KeysOutage(format!("{CLUSTER_KEYS} answered {status}"))),
                Err(error) => Err(KeysOutage(error.to_string())),
            }
        })
    }
}

/// Why an issuer cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryFault {
    /// Its name is no URL.
    #[error("it is not an https URL; write one, or give its keys in a file")]
    Url,
    /// The authorities of its certificate.
    #[error("its caFile holds no certificates that can be used: {0}")]
    Authorities(String),
}

/// The keys of an issuer that says where they are.
pub(super) struct DiscoveredKeys {
    issuer: String,
    document: Uri,
    tls: TlsConnector,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

type Fetched = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

impl DiscoveredKeys {
    /// Asks `issuer`, whose certificate has to be of one of the PEM `authorities`.
    pub(super) fn new(issuer: &str, authorities: &[u8]) -> Result<Self, DiscoveryFault> {
        let document = format!("{}{DISCOVERY}", issuer.trim_end_matches('/'));
        let document = https(&document).ok_or(DiscoveryFault::Url)?;
        let fault = |reason: String| DiscoveryFault::Authorities(reason);
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authorities) {
            let root = root.map_err(|error| fault(error.to_string()))?;
            roots.add(root).map_err(|error| fault(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(fault("it is empty".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| fault(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(DiscoveredKeys {
            issuer: issuer.to_owned(),
            document,
            tls: TlsConnector::from(Arc::new(tls)),
        })
    }

    async fn fetch_all(&self) -> Result<Bytes, KeysOutage> {
        let outage = |uri: &Uri, why: String| KeysOutage(format!("{uri}: {why}"));
        let text = self.get(&self.document).await;
        let text = text.map_err(|error| outage(&self.document, error.to_string()))?;
        let document: Document = serde_json::from_slice(&text)
            .map_err(|error| outage(&self.document, error.to_string()))?;
        // Else one issuer's server could speak for another's tokens.
        if document.issuer != self.issuer {
            let why = format!("it is the document of issuer {:?}", document.issuer);
            return Err(outage(&self.document, why));
        }
        let Some(keys) = https(&document.jwks_uri) else {
            let why = format!("jwks_uri {:?} is not an https URL", document.jwks_uri);
            return Err(outage(&self.document, why));
        };
        let text = self.get(&keys).await;
        text.map_err(|error| outage(&keys, error.to_string()))
    }

    async fn get(&self, uri: &Uri) -> Fetched {
        let authority = uri.authority().ok_or("no host")?;
        let host = authority.host().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(443))).await?;
        let stream = self.tls.connect(name, stream).await?;
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        let driver = tokio::spawn(connection);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, authority.as_str())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "sluice")
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(format!("it answered {status}").into());
        }
        let body = Limited::new(response.into_body(), DOCUMENT_MAX);
        let body = body.collect().await?.to_bytes();
        driver.abort();
        Ok(body)
    }
}

impl KeySource for DiscoveredKeys {
    fn fetch(&self) -> KeysFuture<'_> {
        Box::pin(self.fetch_all())
    }
}

fn https(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let is_https = uri.scheme_str() == Some("https") && uri.host().is_some();
    is_https.then_some(uri)
}
