//! The port itself: plain HTTP beside gRPC, who may connect, what is refused at start, the drain.

use std::net::SocketAddr;
use std::path::PathBuf;

use rcgen::ExtendedKeyUsagePurpose;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::{EtcdOptions, EtcdSocket, EtcdTls, ListenError, Listener};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use pb::kv_client::KvClient;
use tonic::Code;

use super::fixture::*;
use super::pki::{Authority, connect_tls};

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
        client_ca_file: Some(nowhere),
        ..EtcdTls::default()
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

#[tokio::test]
async fn only_certificates_of_the_client_ca_come_in() {
    let authority = Authority::new();
    let (cert_file, key_file) = authority.sign("server", ExtendedKeyUsagePurpose::ServerAuth);
    let client = authority.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
    let ca = authority.file("ca.pem");
    let tls = EtcdTls {
        cert_file,
        key_file,
        client_ca_file: Some(ca.clone()),
        ..EtcdTls::default()
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

#[tokio::test]
async fn a_port_for_metrics_serves_nothing_else() {
    let options = EtcdOptions {
        insecure_loopback: true,
        sockets: vec![
            EtcdSocket::new(loopback()),
            EtcdSocket::new(loopback()),
            EtcdSocket {
                only_http: true,
                ..EtcdSocket::new(loopback())
            },
        ],
        ..EtcdOptions::new(loopback())
    };
    let listener = Listener::bind(options).await.unwrap();
    let [first, second, metrics] = *listener.local_addrs() else {
        panic!("three sockets were asked for");
    };
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(listener.serve(open(Memory::new()).await, shutdown.clone()));
    let put = |address| async move {
        let request = pb::PutRequest {
            key: text("k"),
            value: text("v"),
            ..Default::default()
        };
        KvClient::new(connect(address).await).put(request).await
    };
    put(first).await.unwrap();
    put(second).await.unwrap();
    let text = "etcdserver: permission denied";
    assert_refused(put(metrics).await, Code::PermissionDenied, text);
    for address in [first, second, metrics] {
        let stream = TcpStream::connect(address).await.unwrap();
        let page = fetch(stream, "/metrics").await.unwrap();
        assert!(page.contains("etcd_mvcc_put_total 2\n"), "{page}");
    }
    shutdown.cancel();
    tokio::time::timeout(PATIENCE, serving)
        .await
        .expect("a drain ends")
        .unwrap();
}

/// Over HTTP/1.1 nobody is asked who they are, so there are no calls.
#[tokio::test]
async fn calls_do_not_come_in_over_http1() {
    let member = Member::start().await;
    let mut stream = TcpStream::connect(member.address).await.unwrap();
    // An empty message in a frame of gRPC.
    let head = "POST /etcdserverpb.Maintenance/Status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-type: application/grpc\r\nte: trailers\r\ncontent-length: 5\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[0; 5]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[tokio::test]
async fn probes_answer_in_the_words_of_etcd() {
    let member = Member::start().await;
    let ask = async |method: &str, path: &str| {
        let mut stream = TcpStream::connect(member.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, body.to_owned())
    };
    let said = |code: u16, body: &str| (code, body.to_owned());
    let ready = "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n\
                 [+]non_learner ok\nok\n";
    assert_eq!(ask("GET", "/readyz?verbose").await, said(200, ready));
    assert_eq!(ask("GET", "/readyz").await, said(200, "ok\n"));
    assert_eq!(
        ask("GET", "/livez/serializable_read").await,
        said(200, "ok\n")
    );
    assert_eq!(ask("GET", "/livez/other").await.0, 404);
    let healthy = r#"{"health":"true","reason":""}"#;
    assert_eq!(ask("GET", "/health").await, said(200, healthy));
    let refused = said(405, "Method Not Allowed\n");
    assert_eq!(ask("POST", "/health").await, refused);
    assert_eq!(ask("PUT", "/version").await, refused);
    let version = r#"{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}"#;
    assert_eq!(ask("GET", "/version").await, said(200, version));

    for (alarm, name) in [(1, "NOSPACE"), (2, "CORRUPT")] {
        let raise = |action| pb::AlarmRequest {
            action,
            member_id: 1,
            alarm,
        };
        member.maintenance().alarm(raise(1)).await.unwrap();
        let ill = format!("{{\"health\":\"false\",\"reason\":\"ALARM {name}\"}}\n");
        assert_eq!(ask("GET", "/health").await, (503, ill));
        let excluded = format!("/health?serializable=true&exclude={name}");
        assert_eq!(ask("GET", &excluded).await, said(200, healthy));
        let expected = if name == "CORRUPT" {
            let failed = "[-]data_corruption failed: alarm activated: CORRUPT";
            (
                503,
                ready
                    .replace("[+]data_corruption ok", failed)
                    .replace("ok\nok\n", "ok\n")
                    + "\n",
            )
        } else {
            said(200, "ok\n")
        };
        assert_eq!(ask("GET", "/readyz").await, expected);
        let without = ask("GET", "/readyz?exclude=data_corruption").await;
        assert_eq!(without, said(200, "ok\n"));
        assert_eq!(ask("GET", "/livez").await, said(200, "ok\n"));
        member.maintenance().alarm(raise(2)).await.unwrap();
    }
}

#[tokio::test]
async fn metrics_count_calls_by_their_end_and_by_their_client() {
    let member = Member::start().await;
    let mut put = tonic::Request::new(pb::PutRequest {
        key: text("k"),
        value: text("v"),
        ..Default::default()
    });
    put.metadata_mut()
        .insert("client-api-version", "3.7".parse().unwrap());
    member.kv().put(put).await.unwrap();
    let nameless = member.kv().put(pb::PutRequest::default()).await;
    assert!(nameless.is_err());
    member
        .maintenance()
        .status(pb::StatusRequest {})
        .await
        .unwrap();
    let mut watching = member.watching().await;
    watching.create(watch_prefix("k", 0)).await;
    let page = async || {
        let stream = TcpStream::connect(member.address).await.unwrap();
        fetch(stream, "/metrics").await.unwrap()
    };
    let text = page().await;
    let call = |method: &str, service: &str, kind: &str| {
        format!(
            "grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\"}}"
        )
    };
    for line in [
        format!(
            "grpc_server_started_total{{{} 2\n",
            call("Put", "KV", "unary")
        ),
        format!(
            "grpc_server_handled_total{{grpc_code=\"OK\",{} 1\n",
            call("Put", "KV", "unary")
        ),
        format!(
            "grpc_server_handled_total{{grpc_code=\"InvalidArgument\",{} 1\n",
            call("Put", "KV", "unary")
        ),
        format!(
            "grpc_server_handled_total{{grpc_code=\"OK\",{} 1\n",
            call("Status", "Maintenance", "unary")
        ),
        format!(
            "grpc_server_started_total{{{} 1\n",
            call("Watch", "Watch", "bidi_stream")
        ),
        "etcd_server_client_requests_total{client_api_version=\"3.7\",type=\"unary\"} 1\n"
            .to_owned(),
        "etcd_server_client_requests_total{client_api_version=\"unknown\",type=\"stream\"} 1\n"
            .to_owned(),
        "etcd_debugging_mvcc_keys_total 1\n".to_owned(),
        "etcd_debugging_mvcc_watcher_total 1\n".to_owned(),
        "etcd_disk_backend_commit_duration_seconds_count 1\n".to_owned(),
        "etcd_server_quota_backend_bytes 8589934592\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    let value = |text: &str, name: &str| -> f64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} is missing"))
            .parse()
            .unwrap()
    };
    for name in [
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "etcd_network_client_grpc_received_bytes_total",
    ] {
        assert!(value(&text, name) >= 0.0);
    }
    let before = value(&text, "etcd_network_client_grpc_sent_bytes_total");
    let after = value(&page().await, "etcd_network_client_grpc_sent_bytes_total");
    assert!(after > before + text.len() as f64 / 2.0, "{before} {after}");
}
