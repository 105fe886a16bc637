//! Bad input to the real binary: each is answered with a text that says what and where, nothing is
//! lost, and nothing panics.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use sluice_e2e::client::{Answer, Client};
use sluice_e2e::fake::{self, Fake};
use sluice_e2e::pki::{Authority, Leaf};
use sluice_e2e::ports;
use sluice_e2e::process::eventually;
use sluice_e2e::site::Site;
use sluice_e2e::sluice::binary;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LIMIT: Duration = Duration::from_secs(60);
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn says(text: &str, wanted: &[&str]) {
    for want in wanted {
        assert!(text.contains(want), "{want:?} is not in:\n{text}");
    }
}

/// An answer of the gateway's own making: a Status with this code that says these things.
fn is_status(answer: &Answer, code: u16, wanted: &[&str]) {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status.as_u16(), code, "{text}");
    let status = answer.json();
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&json!("Status"), &json!(code)),
        "{text}"
    );
    says(status["message"].as_str().unwrap_or_default(), wanted);
}

/// `file:line:column` of the first `needle` in the text.
fn place(file: &str, text: &str, needle: &str) -> String {
    let at = text.find(needle).unwrap();
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |n| n + 1) + 1;
    format!("{file}:{line}:{column}: ")
}

const RULES: &str = "\
apiVersion: sluice.io/v1alpha1
kind: RateRules
metadata: { name: limits }
spec:
  cluster: \"*\"
  rules:
  - name: lists
    match: { verbs: [list] }
    rate: { perSecond: 5 }
";

#[test]
fn a_fault_in_a_file_is_named_with_its_place_and_what_to_write() {
    let site = Site::make();
    let good = site.all_in_one();
    // (what is written, by what it is replaced, where the fault is, what is said of it)
    let rows: [(&str, &str, &str, &[&str]); 8] = [
        ("admin:\n", "admin: [\n", "", &[]),
        (
            "drainTimeout",
            "drainTimout",
            "drainTimout",
            &[
                "unknown field `drainTimout`",
                "did you mean `drainTimeout`?",
            ],
        ),
        (
            "drainTimeout: 2s",
            "drainTimeout: 2",
            "2\n",
            &["`2` is not a duration", "ms, s, m or h"],
        ),
        (
            "GatewayConfig",
            "GatewyConfig",
            "GatewyConfig",
            &[
                "unknown kind `GatewyConfig`",
                "did you mean `GatewayConfig`?",
            ],
        ),
        (
            "v1alpha1",
            "v9",
            "sluice.io/v9",
            &["sluice.io/v9", "sluice.io/v1alpha1"],
        ),
        (
            "certFile: sluice.crt",
            "certFile: none.crt",
            "none.crt",
            &["listen.tls.certFile", "none.crt", "No such file"],
        ),
        (
            "format: text",
            "format: xml",
            "xml",
            &["xml", "json", "text"],
        ),
        (
            "rulesDir: rules\n",
            "rulesDir: rules\nrulesDir: rules\n",
            "",
            &["rulesDir"],
        ),
    ];
    for (from, to, needle, wanted) in rows {
        let text = good.replacen(from, to, 1);
        site.write("sluice.yaml", &text);
        let at = if needle.is_empty() {
            "sluice.yaml:".to_owned()
        } else {
            place("sluice.yaml", &text, needle)
        };
        for command in ["check", "run"] {
            let said = site.fails(&[command, "--config", "sluice.yaml"]);
            says(&said, &[&at]);
            says(&said, wanted);
        }
    }
    assert!(
        !site.path("data").exists(),
        "a file with a fault makes nothing"
    );
    let said = site.fails(&["run", "--config", "nowhere.yaml"]);
    says(&said, &["nowhere.yaml", "No such file"]);
    let said = site.fails(&["run", "--config", "rules"]);
    says(&said, &["rules"]);
    // Files that are there and hold the wrong thing.
    site.write(
        "sluice.yaml",
        &good.replacen("keyFile: sluice.key", "keyFile: operator.key", 1),
    );
    for command in ["check", "run"] {
        says(&site.fails(&[command, "--config", "sluice.yaml"]), &["key"]);
    }
}

#[test]
fn rules_are_checked_as_files_and_as_a_folder() {
    let site = Site::make();
    let rows: [(&str, &str, &str, &[&str]); 5] = [
        (
            "perSecond: 5",
            "perSecnd: 5",
            "perSecnd",
            &["unknown field `perSecnd`", "did you mean `perSecond`?"],
        ),
        ("perSecond: 5", "perSecond: 0", "0 }", &["one or more"]),
        (
            "RateRules",
            "RateRule",
            "RateRule",
            &["unknown kind `RateRule`", "did you mean `RateRules`?"],
        ),
        ("[list]", "[lst]", "lst", &["lst"]),
        ("    rate: { perSecond: 5 }\n", "", "", &["lists"]),
    ];
    for (from, to, needle, wanted) in rows {
        let text = RULES.replacen(from, to, 1);
        site.write("rules/limits.yaml", &text);
        let at = if needle.is_empty() {
            "limits.yaml:".to_owned()
        } else {
            place("limits.yaml", &text, needle)
        };
        for args in [
            &["rules", "lint", "rules"][..],
            &["check", "--config", "sluice.yaml"],
            &["run", "--config", "sluice.yaml"],
        ] {
            let said = site.fails(args);
            says(&said, &[&at]);
            says(&said, wanted);
        }
    }
    // The faults of several files are told at once.
    site.write("rules/limits.yaml", &RULES.replace("perSecond", "perSecnd"));
    site.write("rules/more.yaml", &RULES.replace("verbs", "vrbs"));
    let said = site.fails(&["rules", "lint", "rules"]);
    says(&said, &["perSecnd", "vrbs", "2 faults"]);
    std::fs::remove_file(site.path("rules/more.yaml")).unwrap();
    says(&site.fails(&["rules", "lint", "nowhere"]), &["nowhere"]);
    site.write("rules/limits.yaml", RULES);
    for args in [
        &["rules", "lint", "rules"][..],
        &["check", "--config", "sluice.yaml"],
    ] {
        let output = Command::new(binary())
            .args(args)
            .current_dir(site.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        says(&String::from_utf8_lossy(&output.stdout), &["ok", "1 rule"]);
    }
}

#[test]
fn a_taken_port_is_named() {
    let site = Site::make();
    for port in site.ports {
        let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let said = site.refused();
        says(&said, &[&format!("127.0.0.1:{port}"), "in use"]);
        let served = format!("is served address=127.0.0.1:{port}");
        assert!(!said.contains(&served), "it said that it serves: {said}");
        drop(taken);
    }
}

/// The store's segment that holds the first keys.
fn segment(data: &Path) -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    found.sort();
    found.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_is_none_is_left_alone() {
    let site = Site::make();
    site.write("data", "a file");
    says(
        &site.refused(),
        &["metastore", "data directory data,", "must be a directory"],
    );
    assert_eq!(std::fs::read(site.path("data")).unwrap(), b"a file");
    std::fs::remove_file(site.path("data")).unwrap();

    std::fs::create_dir(site.path("data")).unwrap();
    site.write("data/thesis.txt", "mine");
    says(
        &site.refused(),
        &["not a data directory", "thesis.txt", "empty directory"],
    );
    let names = std::fs::read_dir(site.path("data")).unwrap().count();
    assert_eq!(names, 1, "nothing was added");
    std::fs::remove_file(site.path("data/thesis.txt")).unwrap();

    // A damaged byte in the middle: no start, nothing thrown away; with the byte mended all is there.
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    let answer = site
        .user()
        .once("POST", CONFIGMAPS, object.to_string())
        .await
        .unwrap();
    assert_eq!(answer.status, 201);
    gateway.kill();
    let file = segment(&site.path("data"));
    let good = std::fs::read(&file).unwrap();
    let needle = b"/registry/core/namespaces/default";
    let at = good
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    let mut bad = good.clone();
    bad[at + 3] ^= 0x20;
    std::fs::write(&file, &bad).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    says(
        &site.refused(),
        &["damaged", name, "nothing was changed", "backup"],
    );
    assert!(
        std::fs::read(&file).unwrap() == bad,
        "a damaged log is left as it is"
    );
    std::fs::write(&file, &good).unwrap();
    gateway.start();
    gateway.ready().await;
    let answer = site
        .user()
        .once("GET", &format!("{CONFIGMAPS}/kept"), "")
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_do_not_hold() {
    let site = Site::make();
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    assert_eq!(
        site.user()
            .once("GET", CONFIGMAPS, "")
            .await
            .unwrap()
            .status,
        200
    );
    is_status(
        &site.client(None).once("GET", CONFIGMAPS, "").await.unwrap(),
        401,
        &["Unauthorized"],
    );
    // A client that trusts another authority does not go on.
    let other = Authority::new(site.dir.path(), "other");
    let stranger = Client::new(site.ports[0], &other.ca, Some(&site.admin));
    says(
        &stranger
            .once("GET", CONFIGMAPS, "")
            .await
            .unwrap_err()
            .to_string(),
        &["certificate"],
    );
    let validity = |from: i32, to: i32| {
        move |params: &mut rcgen::CertificateParams| {
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 1, 1);
        }
    };
    let leaves = [
        (
            "of another authority",
            other.issue("root", &["system:masters"], &[]),
        ),
        (
            "expired",
            site.users
                .issue_with("old", &["system:masters"], &[], validity(2000, 2001)),
        ),
        (
            "not yet valid",
            site.users
                .issue_with("new", &["system:masters"], &[], validity(2500, 2501)),
        ),
    ];
    for (what, leaf) in &leaves {
        // Refused within the handshake, or as a request.
        match site.client(Some(leaf)).once("GET", CONFIGMAPS, "").await {
            Err(e) => println!("a client certificate {what}: {e}"),
            Ok(answer) => is_status(&answer, 401, &[]),
        }
    }
    assert_eq!(
        site.user()
            .once("GET", CONFIGMAPS, "")
            .await
            .unwrap()
            .status,
        200
    );
    // Operators are known by another authority than users.
    let intruder = Client::new(site.ports[1], &site.own.ca, Some(&site.admin));
    let answer = intruder.once("GET", "/admin/v1/config", "").await;
    assert!(answer.is_err() || answer.is_ok_and(|a| [401, 403].contains(&a.status.as_u16())));
    operators_are_told_why_they_are_not_let_in(&site);
    gateway.kill();

    // The gateway's own has expired: it is told before anybody is refused, and holds nothing up.
    let _ = site
        .own
        .issue_with("sluice", &[], &[], validity(2000, 2001));
    let mut command = Command::new(binary());
    command
        .args(["check", "--config", "sluice.yaml"])
        .current_dir(site.dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = [
        "note: listen.tls.certFile",
        "sluice.crt has expired at Jan  1",
    ];
    says(&String::from_utf8_lossy(&output.stdout), &told);
    gateway.start();
    eventually("a refusal by the client", LIMIT, || async {
        let refusal = site
            .user()
            .once("GET", CONFIGMAPS, "")
            .await
            .unwrap_err()
            .to_string();
        if refusal.contains("expired") {
            Ok(())
        } else {
            Err(refusal)
        }
    })
    .await;
    let log = std::fs::read_to_string(site.path("sluice.log")).unwrap();
    says(
        &log,
        &["WARN", "listen.tls.certFile", "sluice.crt has expired"],
    );
}

fn operators_are_told_why_they_are_not_let_in(site: &Site) {
    let server = format!("https://127.0.0.1:{}", site.ports[1]);
    let nobody = format!("https://127.0.0.1:{}", ports::free());
    // (server, its authority, the operator's certificate, what is said)
    let rows: [(&str, &str, &str, &[&str]); 5] = [
        (&nobody, "own", "operator", &[&nobody, "refused"]),
        (&server, "users", "operator", &["certificate"]),
        (&server, "own", "admin", &[]),
        (&server, "own", "nowhere", &["nowhere.crt", "No such file"]),
        ("ftp://x", "own", "operator", &["ftp://x"]),
    ];
    for (server, authority, operator, wanted) in rows {
        let said = site.fails(&[
            "breaker",
            "list",
            &format!("--server={server}"),
            &format!("--certificate-authority={authority}.crt"),
            &format!("--client-certificate={operator}.crt"),
            &format!("--client-key={operator}.key"),
        ]);
        println!("{server} {authority} {operator}: {said}");
        says(&said, wanted);
    }
}

async fn ask(admin: &Client, path: &str) -> (u16, String) {
    let answer = admin.once("GET", path, "").await.unwrap();
    (
        answer.status.as_u16(),
        String::from_utf8_lossy(&answer.body).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_down_or_not_trusted() {
    let site = Site::make();
    site.write("sluice.yaml", &site.front());
    let upstream = ports::free();
    site.cluster("main", upstream, "own.crt", "  default: true\n");
    let mut gateway = site.gateway();
    gateway.start();
    gateway.live().await;
    an_upstream_that_is_down_is_503_until_it_comes(&site, &gateway.admin, upstream).await;
    an_upstream_that_is_not_trusted_says_why(&site, &gateway.admin, upstream).await;
    a_reload_with_a_fault_changes_nothing(&site, &gateway.admin).await;
}

fn tell(
    name: &'static str,
) -> impl Fn(Request<hyper::body::Incoming>) -> std::future::Ready<fake::Answer> {
    move |_| std::future::ready(fake::answer(200, format!("{{\"served\":\"{name}\"}}")))
}

async fn serves(site: &Site) {
    eventually("the upstream to be used", LIMIT, || async {
        let answer = site.user().once("GET", CONFIGMAPS, "").await.unwrap();
        let text = format!("{answer:?}");
        (answer.status == 200).then_some(()).ok_or(text)
    })
    .await;
}

async fn an_upstream_that_is_down_is_503_until_it_comes(site: &Site, admin: &Client, port: u16) {
    let (status, text) = ask(admin, "/readyz?verbose").await;
    assert_eq!(status, 500, "{text}");
    says(&text, &["clusters", "main"]);
    let answer = site.user().once("GET", CONFIGMAPS, "").await.unwrap();
    is_status(&answer, 503, &["no upstream can be reached"]);
    assert!(answer.headers.contains_key("retry-after"));
    let up = Fake::start(port, &serving(site), tell("main")).await;
    serves(site).await;
    eventually("readiness", LIMIT, || async {
        let (status, text) = ask(admin, "/readyz").await;
        (status == 200).then_some(()).ok_or(text)
    })
    .await;
    up.stop().await;
}

/// The certificate that `own` signed.
fn serving(site: &Site) -> Leaf {
    site.own.issue("upstream", &[], &[])
}

async fn an_upstream_that_is_not_trusted_says_why(site: &Site, admin: &Client, port: u16) {
    let _up = Fake::start(
        port,
        &site.users.issue("impostor", &[], &[]),
        tell("impostor"),
    )
    .await;
    eventually("the cause to be shown", LIMIT, || async {
        let view = admin
            .once("GET", "/admin/v1/endpoints", "")
            .await
            .unwrap()
            .json();
        let fault = view["items"][0]["probeFault"].as_str().unwrap_or_default();
        (fault.contains("certificate"))
            .then_some(())
            .ok_or(view.to_string())
    })
    .await;
    let answer = site.user().once("GET", CONFIGMAPS, "").await.unwrap();
    is_status(&answer, 503, &["no upstream can be reached"]);
    // The right authority is named in the file: it serves without a restart.
    site.cluster("main", port, "users.crt", "  default: true\n");
    let answer = admin.once("POST", "/admin/v1/reload", "").await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.json());
    serves(site).await;
    // Requests may find it before the next probe does.
    eventually("the cause to be forgotten", LIMIT, || async {
        let view = admin
            .once("GET", "/admin/v1/endpoints", "")
            .await
            .unwrap()
            .json();
        view["items"][0]["probeFault"]
            .is_null()
            .then_some(())
            .ok_or(view.to_string())
    })
    .await;
    says(
        &std::fs::read_to_string(site.path("sluice.log")).unwrap(),
        &["certificate"],
    );
}

async fn a_reload_with_a_fault_changes_nothing(site: &Site, admin: &Client) {
    let good = std::fs::read_to_string(site.path("rules/main.yaml")).unwrap();
    let generation = admin
        .once("GET", "/admin/v1/config", "")
        .await
        .unwrap()
        .json()["generation"]
        .clone();
    let text = good.replace("endpoints", "endpoint");
    site.write("rules/main.yaml", &text);
    let answer = admin.once("POST", "/admin/v1/reload", "").await.unwrap();
    assert!(!answer.status.is_success());
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    says(&said, &["main.yaml:5:3", "did you mean `endpoints`?"]);
    let view = admin
        .once("GET", "/admin/v1/config", "")
        .await
        .unwrap()
        .json();
    assert_eq!(view["generation"], generation);
    site.write("rules/main.yaml", &good);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_find_their_cluster_or_none() {
    let site = Site::make();
    site.write("sluice.yaml", &site.front());
    let leaf = serving(&site);
    let a = Fake::start(0, &leaf, tell("a")).await;
    let b = Fake::start(0, &leaf, tell("b")).await;
    site.cluster("a", a.port, "own.crt", "  hosts: [a.test]\n");
    site.cluster("b", b.port, "own.crt", "  hosts: [b.test]\n");
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let named = |name: &str| site.user().with_server_name(name);
    for name in ["a", "b"] {
        let answer = named(&format!("{name}.test"))
            .once("GET", CONFIGMAPS, "")
            .await
            .unwrap();
        assert_eq!(answer.json()["served"], name);
    }
    for name in ["c.test", "127.0.0.1"] {
        let answer = named(name).once("GET", CONFIGMAPS, "").await.unwrap();
        is_status(&answer, 421, &[name, "UpstreamCluster"]);
    }
    let connection = named("a.test").http2().await.unwrap();
    let request = named("b.test")
        .request("GET", CONFIGMAPS)
        .body(Full::<Bytes>::default())
        .unwrap();
    is_status(
        &connection.exchange(request).await.unwrap(),
        421,
        &["b.test"],
    );
    // With a default, whoever names no cluster is sent there.
    site.cluster(
        "a",
        a.port,
        "own.crt",
        "  hosts: [a.test]\n  default: true\n",
    );
    let answer = gateway
        .admin
        .once("POST", "/admin/v1/reload", "")
        .await
        .unwrap();
    assert!(answer.status.is_success(), "{}", answer.json());
    for (name, served) in [("c.test", "a"), ("127.0.0.1", "a"), ("b.test", "b")] {
        let answer = named(name).once("GET", CONFIGMAPS, "").await.unwrap();
        assert_eq!(answer.json()["served"], served, "{name}");
    }
}

/// Sends these bytes on an HTTP/1.1 connection and reads the first line of the answer.
async fn raw(client: &Client, request: &[u8]) -> String {
    let mut stream = client.connect_tls("http/1.1").await.unwrap();
    // A server that has read enough may answer and close before all is sent.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..count]);
            if answer.contains(&b'\n') {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, reading)
        .await
        .expect("an answer or the end");
    String::from_utf8_lossy(&answer)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_read_or_are_too_large() {
    let site = Site::make();
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let user = site.user();
    for path in [
        "/api/v1/namespaces/default/../../../apis",
        "/api/v1/namespaces/default/configmaps/%2e%2e",
        "/api/v1/namespaces/a%2Fb/configmaps",
        "/api/v1//namespaces",
        "/api/v1/namespaces/default/configmaps/a%00b",
        "/api/v1/namespaces/default/configmaps/%zz",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let line = raw(&user, request.as_bytes()).await;
        assert!(line.contains(" 400 "), "{path}: {line}");
    }
    let heads: [(&str, String); 4] = [
        ("a header of 2 MiB", format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(2 << 20))),
        ("a thousand headers", format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(1000))),
        ("two lengths", "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned()),
        ("no HTTP", "HELLO\r\n\r\n".to_owned()),
    ];
    for (what, head) in heads {
        let line = raw(&user, head.as_bytes()).await;
        println!("{what}: {line}");
        assert!(line.is_empty() || line.contains(" 4"), "{what}: {line}");
    }
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"a": "x".repeat(4 << 20)}});
    is_status(
        &user
            .once("POST", CONFIGMAPS, large.to_string())
            .await
            .unwrap(),
        413,
        &[],
    );
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"a": "x".repeat(2 << 20)}});
    let answer = user
        .once("POST", CONFIGMAPS, large.to_string())
        .await
        .unwrap();
    println!(
        "an object of 2 MiB: {} {}",
        answer.status,
        answer.json()["message"]
    );
    assert!(answer.status.is_success() || answer.json()["kind"] == "Status");
    let bodies: [(&str, u16, &[&str]); 5] = [
        ("{", 400, &[]),
        (
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}"#,
            400,
            &["Secret", "ConfigMap"],
        ),
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A_B"}}"#,
            422,
            &["metadata.name", "A_B"],
        ),
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"other"}}"#,
            400,
            &["namespace"],
        ),
        (r#"{"apiVersion":"v1","kind":"ConfigMap"}"#, 422, &["name"]),
    ];
    for (body, code, wanted) in bodies {
        is_status(
            &user.once("POST", CONFIGMAPS, body).await.unwrap(),
            code,
            wanted,
        );
    }
    assert_eq!(user.once("GET", CONFIGMAPS, "").await.unwrap().status, 200);
    assert!(!gateway.process().unwrap().has_ended());
    let log = std::fs::read_to_string(site.path("sluice.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

/// Writes objects of almost a MiB until one is refused; hands back how many and the refusal.
async fn fill(user: &Client, stem: &str, most: usize) -> (usize, Answer) {
    let connection = user.http2().await.unwrap();
    for n in 0..most {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{stem}-{n}")}, "data": {"a": "x".repeat(1_000_000)}});
        let answer = connection
            .send("POST", CONFIGMAPS, object.to_string())
            .await
            .unwrap();
        if answer.status != 201 {
            return (n, answer);
        }
    }
    panic!("{most} objects were taken");
}

/// Takes a tmpfs away with the test.
struct Mount(PathBuf);

impl Mount {
    fn new(path: &Path, size: &str) -> Option<Mount> {
        std::fs::create_dir_all(path).unwrap();
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path);
        let is_mounted = command.output().is_ok_and(|output| output.status.success());
        is_mounted.then(|| Mount(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let site = Site::make();
    let Some(_mount) = Mount::new(&site.path("data"), "230m") else {
        println!("SKIPPED: no file system can be mounted here");
        return;
    };
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let user = site.user();
    // Something else takes most of the room, and gives it back later.
    let filler = site.path("data/sluice.filler");
    std::fs::write(&filler, vec![7; 80 << 20]).unwrap();
    let (written, refusal) = fill(&user, "full", 250).await;
    println!(
        "{written} MB fitted; then {} {}",
        refusal.status,
        refusal.json()["message"]
    );
    assert!(
        refusal.status.is_server_error() || refusal.status == 507,
        "{refusal:?}"
    );
    is_status(&refusal, refusal.status.as_u16(), &[]);
    // Reading goes on, the process lives, and nothing acknowledged is gone.
    let list = user
        .once("GET", &format!("{CONFIGMAPS}?limit=500"), "")
        .await
        .unwrap();
    assert_eq!(list.json()["items"].as_array().unwrap().len(), written);
    let (status, text) = ask(&gateway.admin, "/livez?verbose").await;
    println!("livez of a full disk: {status} {text}");
    std::fs::remove_file(&filler).unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "after"}});
    eventually("writes after the disk has room again", LIMIT, || async {
        let answer = user
            .once("POST", CONFIGMAPS, object.to_string())
            .await
            .unwrap();
        (answer.status == 201)
            .then_some(())
            .ok_or(format!("{answer:?}"))
    })
    .await;
    gateway.kill();
    gateway.start();
    gateway.ready().await;
    let list = user
        .once("GET", &format!("{CONFIGMAPS}?limit=500"), "")
        .await
        .unwrap();
    assert_eq!(
        list.json()["items"].as_array().unwrap().len(),
        written + 1,
        "after a crash"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_refuses_writes_and_lets_deletes_through() {
    let site = Site::make();
    let text = site
        .all_in_one()
        .replace("dataDir: data\n", "dataDir: data\n  quotaBytes: 8MiB\n");
    site.write("sluice.yaml", &text);
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let user = site.user();
    let (written, refusal) = fill(&user, "full", 50).await;
    println!(
        "{written} MB fitted; then {} {}",
        refusal.status,
        refusal.json()["message"]
    );
    assert!(written >= 4, "{written}");
    is_status(&refusal, 507, &["no space left", "compact", "quota"]);
    assert_eq!(
        user.once("GET", &format!("{CONFIGMAPS}/full-0"), "")
            .await
            .unwrap()
            .status,
        200
    );
    for n in 0..written {
        let answer = user
            .once("DELETE", &format!("{CONFIGMAPS}/full-{n}"), "")
            .await
            .unwrap();
        assert_eq!(
            answer.status,
            200,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    // What was deleted is history until that is let go, which the store does by itself when space is
    // short: nobody has to compact it.
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "after"}});
    eventually("writes after objects were deleted", LIMIT, || async {
        let answer = user
            .once("POST", CONFIGMAPS, object.to_string())
            .await
            .unwrap();
        (answer.status == 201)
            .then_some(())
            .ok_or(format!("{answer:?}"))
    })
    .await;
}
