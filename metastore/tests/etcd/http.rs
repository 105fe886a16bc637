//! The port itself: plain HTTP beside gRPC, who may connect, what is refused at start, the drain.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::{EtcdOptions, EtcdTls, ListenError, Listener};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::fixture::*;

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn fetch(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn plain_http_shares_the_port() {
    let member = Member::start().await;
    member.put("k", "v").await;
    let get = async |path| {
        fetch(TcpStream::connect(member.address).await.unwrap(), path)
            .await
            .unwrap()
    };
    let version = get("/version").await;
    assert!(version.contains(r#"{"etcdserver":"3."#) && version.contains(r#""etcdcluster":"3."#));
    assert!(
        get("/health")
            .await
            .ends_with(r#"{"health":"true","reason":""}"#)
    );
    assert!(
        get("/health?serializable=true&exclude=NOSPACE")
            .await
            .contains(" 200 ")
    );
    assert!(get("/livez").await.ends_with("ok\n"));
    assert!(get("/readyz").await.ends_with("ok\n"));
    let metrics = get("/metrics").await;
    for line in [
        "etcd_server_has_leader 1\n",
        "etcd_mvcc_put_total 1\n",
        "etcd_mvcc_db_total_size_in_bytes ",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_said_at_once() {
    let refusal = async |options: EtcdOptions| match Listener::bind(options).await {
        Err(refusal) => refusal,
        Ok(_) => panic!("it must be refused"),
    };
    let bare = refusal(EtcdOptions::new(loopback())).await;
    assert!(matches!(bare, ListenError::NoTls { .. }));
    let exposed = EtcdOptions {
        insecure_loopback: true,
        ..EtcdOptions::new(SocketAddr::from(([0, 0, 0, 0], 0)))
    };
    assert!(matches!(
        refusal(exposed).await,
        ListenError::NotLoopback { .. }
    ));
    let member = Member::start().await;
    let taken = EtcdOptions {
        insecure_loopback: true,
        ..EtcdOptions::new(member.address)
    };
    let text = refusal(taken).await.to_string();
    assert!(
        text.contains(&member.address.to_string()),
        "{text} names the port"
    );
    let nowhere = PathBuf::from("/nowhere/cert.pem");
    let tls = EtcdTls {
        cert_file: nowhere.clone(),
        key_file: nowhere.clone(),
        client_ca_file: nowhere,
    };
    let missing = EtcdOptions {
        tls: Some(tls),
        ..EtcdOptions::new(loopback())
    };
    assert!(
        refusal(missing)
            .await
            .to_string()
            .contains("/nowhere/cert.pem")
    );
}

/// A certificate authority and what it signs, as files.
struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
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

    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
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

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

async fn connect_tls(
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

#[tokio::test]
async fn only_certificates_of_the_client_ca_come_in() {
    let authority = Authority::new();
    let (cert_file, key_file) = authority.sign("server", ExtendedKeyUsagePurpose::ServerAuth);
    let client = authority.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
    let ca = authority.file("ca.pem");
    let tls = EtcdTls {
        cert_file,
        key_file,
        client_ca_file: ca.clone(),
    };
    let options = EtcdOptions {
        tls: Some(tls),
        ..EtcdOptions::new(loopback())
    };
    let listener = Listener::bind(options).await.unwrap();
    let address = listener.local_addr();
    let shutdown = CancellationToken::new();
    let store = open(Memory::new()).await;
    let serving = tokio::spawn(listener.serve(store, shutdown.clone()));

    let known = connect_tls(address, &ca, Some(&client), b"http/1.1")
        .await
        .unwrap();
    assert!(fetch(known, "/readyz").await.unwrap().ends_with("ok\n"));
    let grpc = connect_tls(address, &ca, Some(&client), b"h2")
        .await
        .unwrap();
    assert_eq!(grpc.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));

    // In TLS 1.3 the refusal of a certificate reaches the client with its first read.
    let other = Authority::new();
    let stranger = other.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
    for client in [None, Some(&stranger)] {
        let outcome = match connect_tls(address, &ca, client, b"http/1.1").await {
            Ok(stream) => fetch(stream, "/readyz").await,
            Err(refused) => Err(refused),
        };
        assert!(outcome.is_err(), "{outcome:?}");
    }
    shutdown.cancel();
    tokio::time::timeout(PATIENCE, serving)
        .await
        .expect("a drain ends")
        .unwrap();
}

#[tokio::test]
async fn hundreds_of_connections_and_streams_are_no_trouble() {
    let member = Member::start().await;
    let mut watchings = Vec::new();
    for _ in 0..1000 {
        let mut watching = member.watching().await;
        watching.create(watch_prefix("/registry/pods/", 0)).await;
        watchings.push(watching);
    }
    let mut channels = Vec::new();
    for _ in 0..100 {
        channels.push(connect(member.address).await);
    }
    member.put("/registry/pods/a", "v").await;
    for watching in &mut watchings {
        assert_eq!(watching.events(1).await.len(), 1);
    }
}

#[tokio::test]
async fn a_drain_lets_calls_finish_and_frees_the_port() {
    let options = EtcdOptions {
        insecure_loopback: true,
        ..EtcdOptions::new(loopback())
    };
    let listener = Listener::bind(options.clone()).await.unwrap();
    let address = listener.local_addr();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(open(Memory::new()).await, shutdown.clone()));
    let _idle = connect(address).await;
    shutdown.cancel();
    tokio::time::timeout(PATIENCE, serving)
        .await
        .expect("idle clients hold nothing up")
        .unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
