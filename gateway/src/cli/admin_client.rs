//! A client of the admin API: one request on one connection, with a client certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Until the answer must be there; the admin API answers from memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer read: profiles of some ten thousand clients.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// Where the admin API is, and who calls. The defaults are those of the development directory.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminConnection {
    /// Address of the admin API.
    #[arg(
        long,
        global = true,
        env = "SLUICE_ADMIN",
        default_value = "https://127.0.0.1:9443"
    )]
    pub server: String,
    /// Certificates that the admin API's own is verified against, as PEM.
    #[arg(
        long,
        global = true,
        default_value = ".sluice/pki/ca.crt",
        value_name = "FILE"
    )]
    pub certificate_authority: PathBuf,
    /// Client certificate, as PEM.
    #[arg(
        long,
        global = true,
        default_value = ".sluice/pki/admin.crt",
        value_name = "FILE"
    )]
    pub client_certificate: PathBuf,
    /// Key of the client certificate, as PEM.
    #[arg(
        long,
        global = true,
        default_value = ".sluice/pki/admin.key",
        value_name = "FILE"
    )]
    pub client_key: PathBuf,
}

/// Why the admin API was not reached, or what it said no to.
#[derive(Debug, thiserror::Error)]
pub enum AdminClientError {
    /// The address is none.
    #[error("--server {0}: is no address; write https://<host>:<port>")]
    Address(String),
    /// A file of the connection cannot be used.
    #[error("{flag} {path}: {fault} (`make run` keeps its own in .sluice/pki)")]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        fault: String,
    },
    /// No connection came about.
    #[error("cannot reach the admin API at {server}: {fault}")]
    Reach {
        /// Its address.
        server: String,
        /// What went wrong.
        fault: String,
    },
    /// It answered with an error.
    #[error("{reason}: {message}")]
    Refused {
        /// The HTTP code.
        code: StatusCode,
        /// Kubernetes' word for it.
        reason: String,
        /// What it said.
        message: String,
    },
}

/// A client of the admin API.
pub struct AdminClient {
    server: Uri,
    host: String,
    port: u16,
    tls: TlsConnector,
}

impl AdminClient {
    /// Reads the files that the connection needs.
    ///
    /// # Errors
    /// When a file cannot be read, or the address is none.
    pub fn open(connection: &AdminConnection) -> Result<Self, AdminClientError> {
        let AdminConnection {
            server,
            certificate_authority,
            client_certificate,
            client_key,
        } = connection;
        let no_address = || AdminClientError::Address(server.clone());
        let uri: Uri = server.parse().map_err(|_| no_address())?;
        let host = uri.host().ok_or_else(no_address)?;
        if uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") {
            return Err(no_address());
        }
        let tls = client_config(certificate_authority, client_certificate, client_key)?;
        Ok(AdminClient {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(443),
            server: uri,
            tls: TlsConnector::from(Arc::new(tls)),
        })
    }

    /// Asks for a path, and answers its JSON.
    ///
    /// # Errors
    /// When there is no connection, or the admin API refuses.
    pub async fn get(&self, path: &str) -> Result<Value, AdminClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Sends a change, and answers what it answered.
    ///
    /// # Errors
    /// As [`AdminClient::get`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, AdminClientError> {
        self.ask(Method::POST, path, body.to_string().into()).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Value, AdminClientError> {
        let exchanged = tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await;
        let patience = PATIENCE.as_secs();
        let (code, body) = exchanged
            .unwrap_or_else(|_| Err(format!("no answer within {patience} s").into()))
            .map_err(|fault| AdminClientError::Reach {
                server: self.server.to_string(),
                fault: chain(&*fault),
            })?;
        let value: Value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).trim()));
        if code.is_success() {
            return Ok(value);
        }
        let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        Err(AdminClientError::Refused {
            code,
            reason: text("reason").unwrap_or_else(|| code.to_string()),
            message: text("message").unwrap_or_else(|| value.to_string()),
        })
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Exchanged {
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        let stream = self.tls.connect(name, stream).await?;
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        let driver = tokio::spawn(connection);
        let authority = self.server.authority().map_or("", |it| it.as_str());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("sluice/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(body))?;
        let response = sender.send_request(request).await?;
        let code = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX)
            .collect()
            .await?;
        driver.abort();
        Ok((code, body.to_bytes()))
    }
}

type Exchanged = Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>>;

/// An error with its causes; hyper's own texts name none.
fn chain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn client_config(
    authority: &Path,
    certificate: &Path,
    key: &Path,
) -> Result<ClientConfig, AdminClientError> {
    let mut roots = RootCertStore::empty();
    for root in certificates("--certificate-authority", authority)? {
        let fault = |fault: rustls::Error| {
            file_fault("--certificate-authority", authority, fault.to_string())
        };
        roots.add(root).map_err(fault)?;
    }
    let chain = certificates("--client-certificate", certificate)?;
    let key_fault = |fault: String| file_fault("--client-key", key, fault);
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|it| key_fault(it.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|it| key_fault(it.to_string()))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key_der)
        .map_err(|it| key_fault(format!("does not fit --client-certificate: {it}")))
}

fn certificates(
    flag: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, AdminClientError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|it| file_fault(flag, path, it.to_string()))?;
    if found.is_empty() {
        return Err(file_fault(flag, path, "holds no certificate".to_owned()));
    }
    Ok(found)
}

fn file_fault(flag: &'static str, path: &Path, fault: String) -> AdminClientError {
    AdminClientError::File {
        flag,
        path: path.display().to_string(),
        fault,
    }
}
