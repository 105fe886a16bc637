//! Certificates as files, and connections that show them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sluice_metastore::etcd::EtcdTls;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

/// A certificate authority and what it signs, as files.
pub(crate) struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("ca.pem"),
            params.self_signed(&key).unwrap().pem(),
        )
        .unwrap();
        Authority {
            dir,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate with this common name.
    pub(crate) fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let (cert_file, key_file) = (
            self.file(&format!("{name}.pem")),
            self.file(&format!("{name}.key")),
        );
        std::fs::write(
            &cert_file,
            params.signed_by(&key, &self.issuer).unwrap().pem(),
        )
        .unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }

    /// The listener's side: a serving certificate, and clients of this authority.
    pub(crate) fn serving(&self) -> EtcdTls {
        let (cert_file, key_file) = self.sign("server", ExtendedKeyUsagePurpose::ServerAuth);
        EtcdTls {
            cert_file,
            key_file,
            client_ca_file: Some(self.file("ca.pem")),
            ..EtcdTls::default()
        }
    }

    /// A channel that shows a certificate with this common name.
    pub(crate) async fn channel(&self, address: SocketAddr, name: &str) -> Channel {
        let client = self.sign(name, ExtendedKeyUsagePurpose::ClientAuth);
        let ca = self.file("ca.pem");
        let connector = tower::service_fn(move |_| {
            let (ca, client) = (ca.clone(), client.clone());
            async move {
                let stream = connect_tls(address, &ca, Some(&client), b"h2").await?;
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint.connect_with_connector(connector).await.unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

pub(crate) async fn connect_tls(
    address: SocketAddr,
    ca: &Path,
    client: Option<&(PathBuf, PathBuf)>,
    alpn: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(ca).unwrap())
        .unwrap();
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(cert).unwrap()],
                PrivateKeyDer::from_pem_file(key).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}
