//! Certificates that change while the listener serves.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::{EtcdOptions, EtcdTls, ListenError, Listener, TlsVersions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::fixture::*;
use super::pki::{Authority, connect_tls};
use pb::kv_client::KvClient;

async fn serve(tls: EtcdTls) -> (SocketAddr, CancellationToken) {
    let options = EtcdOptions {
        tls: Some(tls),
        ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let listener = Listener::bind(options).await.unwrap();
    let address = listener.local_addr();
    let shutdown = CancellationToken::new();
    tokio::spawn(listener.serve(open(Memory::new()).await, shutdown.clone()));
    (address, shutdown)
}

/// Whether a client is let in: in TLS 1.3 a refusal comes with the first read.
async fn is_let_in(address: SocketAddr, ca: &Path, client: &(PathBuf, PathBuf)) -> bool {
    let Ok(mut stream) = connect_tls(address, ca, Some(client), b"http/1.1").await else {
        return false;
    };
    let ask = b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    let asked = stream.write_all(ask).await;
    asked.is_ok() && stream.read_to_string(&mut answer).await.is_ok() && answer.contains("3.7")
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn new_certificates_are_used_for_new_clients_and_old_ones_stay() {
    let (old, new) = (Authority::new(), Authority::new());
    let serving = old.serving();
    let (address, shutdown) = serve(serving.clone()).await;
    let open = old.channel(address, "client").await;
    let put = async || {
        let request = pb::PutRequest {
            key: text("k"),
            value: text("v"),
            ..Default::default()
        };
        KvClient::new(open.clone()).put(request).await.unwrap();
    };
    put().await;
    let by_old = old.sign("client", ClientAuth);
    let by_new = new.sign("client", ClientAuth);
    assert!(!is_let_in(address, &new.file("ca.pem"), &by_new).await);

    // Half a change: what cannot be used leaves what there was.
    std::fs::write(&serving.cert_file, "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(is_let_in(address, &old.file("ca.pem"), &by_old).await);

    let renewed = new.sign("server", ServerAuth);
    std::fs::copy(renewed.0, &serving.cert_file).unwrap();
    std::fs::copy(renewed.1, &serving.key_file).unwrap();
    let ca_file = serving.client_ca_file.unwrap();
    let old_ca = old.file("ca-before.pem");
    std::fs::copy(&ca_file, &old_ca).unwrap();
    std::fs::copy(new.file("ca.pem"), &ca_file).unwrap();
    eventually("new certificates are used", async || {
        is_let_in(address, &new.file("ca.pem"), &by_new).await
    })
    .await;
    assert!(
        !is_let_in(address, &old_ca, &by_old).await,
        "by certificate of the server"
    );
    assert!(
        !is_let_in(address, &new.file("ca.pem"), &by_old).await,
        "by certificate of the client"
    );
    put().await;
    shutdown.cancel();
}

#[tokio::test]
async fn versions_and_suites_are_those_asked_for() {
    let authority = Authority::new();
    let client = authority.sign("client", ClientAuth);
    let ca = authority.file("ca.pem");
    let shown = async |tls: EtcdTls| {
        let (address, shutdown) = serve(tls).await;
        let stream = connect_tls(address, &ca, Some(&client), b"h2")
            .await
            .unwrap();
        let session = stream.get_ref().1;
        let suite = session.negotiated_cipher_suite().unwrap();
        shutdown.cancel();
        (
            format!("{:?}", session.protocol_version().unwrap()),
            format!("{:?}", suite.suite()),
        )
    };
    let only12 = EtcdTls {
        versions: TlsVersions::Only12,
        // The second is one of Go's that is not sound enough to offer.
        cipher_suites: vec![
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256".to_owned(),
            "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned(),
        ],
        ..authority.serving()
    };
    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    assert_eq!(
        shown(only12).await,
        ("TLSv1_2".to_owned(), suite.to_owned())
    );
    assert_eq!(shown(authority.serving()).await.0, "TLSv1_3");
    let unknown = EtcdTls {
        cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".to_owned()],
        ..authority.serving()
    };
    let options = EtcdOptions {
        tls: Some(unknown),
        ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let refused = Listener::bind(options).await.err().expect("a refusal");
    assert!(
        refused
            .to_string()
            .contains("choose of TLS13_AES_256_GCM_SHA384"),
        "{refused}"
    );
}

#[tokio::test]
async fn clients_without_a_certificate_come_in_only_by_an_explicit_setting() {
    let authority = Authority::new();
    let anonymous = EtcdTls {
        client_ca_file: None,
        ..authority.serving()
    };
    let options = EtcdOptions {
        tls: Some(anonymous),
        ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let refused = Listener::bind(options.clone())
        .await
        .err()
        .expect("a refusal");
    assert!(matches!(refused, ListenError::NoClientCa), "{refused}");
    let allowed = EtcdOptions {
        insecure_anonymous: true,
        ..options
    };
    Listener::bind(allowed).await.unwrap();
}
