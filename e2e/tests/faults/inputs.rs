//! What is too large, what must not be written down, and files that would cost too much: those of the
//! project's threats that want the real binary.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::json;
use sluice_e2e::site::Site;
use sluice_e2e::sluice;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::rig::{CONFIGMAPS, Front, QUICK, full};

/// A million headers are not read to their end; a hundred megabytes pass through in pieces, or are
/// refused where they would have to be kept.
#[tokio::test(flavor = "multi_thread")]
async fn threat_13_oversize_input() {
    let mut front = Front::ready(1).await;
    let user = front.site.user();
    assert_eq!(user.once("GET", QUICK, "").await.unwrap().status, 200);
    let before = front.resident();
    let stream = user.connect_tls("http/1.1").await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = async move {
        let head = format!("GET {QUICK} HTTP/1.1\r\nhost: localhost\r\n");
        let _ = writer.write_all(head.as_bytes()).await;
        let lines = "x: y\r\n".repeat(1000);
        for _ in 0..1000 {
            // Refused when it was enough.
            if writer.write_all(lines.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let mut answer = Vec::new();
    let reading = reader.read_to_end(&mut answer);
    let (_, _) = tokio::join!(writing, reading);
    let line = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || line.starts_with("HTTP/1.1 4"),
        "{line}"
    );

    let content = "x".repeat(full(32, 100) << 20);
    let length = content.len();
    let answer = user
        .once("POST", &format!("{CONFIGMAPS}/large"), content)
        .await;
    println!(
        "{} MiB of content: {:?}",
        length >> 20,
        answer.map(|answer| answer.status)
    );
    let grown = front.resident().saturating_sub(before) >> 20;
    println!("{grown} MiB more memory");
    assert!(grown <= 48, "{grown} MiB");
    assert_eq!(user.once("GET", QUICK, "").await.unwrap().status, 200);
}

const CANARY: &str = "canary-5c1e77";

/// What secrets hold is in no audit event and in no log, whatever is done with them.
#[tokio::test(flavor = "multi_thread")]
async fn threat_19_audit_of_secrets() {
    let site = Site::make();
    let text = site.all_in_one().replace("level: info", "level: debug");
    site.write(
        "sluice.yaml",
        &format!("{text}audit: {{ path: audit.log }}\n"),
    );
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let encoded = base64::engine::general_purpose::STANDARD.encode(CANARY);
    let base = "/api/v1/namespaces/default";
    let user = site.user();
    let secret = |data: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": data}})
            .to_string()
    };
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": CANARY},
    });
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": CANARY},
    });
    for (method, path, body, expected) in [
        ("POST", format!("{base}/secrets"), secret(&encoded), 201),
        ("GET", format!("{base}/secrets/s"), String::new(), 200),
        ("GET", format!("{base}/secrets"), String::new(), 200),
        ("PUT", format!("{base}/secrets/s"), secret(&encoded), 200),
        // Refused, with the content at hand.
        ("POST", format!("{base}/secrets"), secret(&encoded), 409),
        (
            "POST",
            format!("{base}/secrets"),
            format!("{{{CANARY}"),
            400,
        ),
        (
            "POST",
            format!("{base}/configmaps"),
            config.to_string(),
            201,
        ),
    ] {
        let answer = user.once(method, &path, body).await.unwrap();
        assert_eq!(answer.status, expected, "{method} {path}");
    }
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let _ = user.once("POST", path, review.to_string()).await.unwrap();
    let process = gateway.process().unwrap();
    let log = process.log.clone();
    process.terminate(crate::rig::LIMIT);
    let audit = std::fs::read_to_string(site.path("audit.log")).unwrap();
    assert!(audit.lines().count() >= 8, "{audit}");
    for (what, text) in [
        ("audit", audit),
        ("log", std::fs::read_to_string(log).unwrap()),
    ] {
        for canary in [CANARY, &encoded] {
            assert!(!text.contains(canary), "{canary} is in the {what}");
        }
    }
}

const HEAD: &str = "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: { name: limits }\nspec:\n\
                    \x20 cluster: main\n  rules:\n";

/// Files that are deep, unfold without end, or are very long: a reason, or an answer in good time.
#[tokio::test(flavor = "multi_thread")]
async fn threat_23_denial_by_config() {
    let front = Front::of(1).await;
    let config = front.site.path("sluice.yaml");
    let config = config.to_str().unwrap();
    let deep = format!("{HEAD}  - {}", "[".repeat(64 << 10));
    let laughs: String = (1..30)
        .map(|n| {
            format!(
                "a{n}: &a{n} [{}]\n",
                vec![format!("*a{}", n - 1); 9].join(", ")
            )
        })
        .collect();
    let laughs = format!("a0: &a0 [x, x]\n{laughs}");
    for (what, text) in [("deep", deep), ("unfolding", laughs)] {
        front.site.write("rules/limits.yaml", &text);
        let began = Instant::now();
        let output = sluice::run(&["check", "--config", config]);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let line = said.lines().next().unwrap_or_default();
        println!("{what}, after {:?}: {line}", began.elapsed());
        assert_eq!(output.status.code(), Some(1), "{what}: {line}");
        assert!(!said.contains("panicked"), "{what}: {said}");
        assert!(line.contains("limits.yaml"), "{what}: {line}");
    }
    let rules: String = (0..full(3_000, 100_000))
        .map(|n| {
            format!(
                "  - {{ name: r{n}, match: {{ users: [\"u-{n}-*\"] }}, rate: {{ perSecond: 5, burst: 5, key: [user] }} }}\n"
            )
        })
        .collect();
    front
        .site
        .write("rules/limits.yaml", &format!("{HEAD}{rules}"));
    let began = Instant::now();
    let output = sluice::run(&["check", "--config", config]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
    println!(
        "many rules after {:?}: {} {said} {wrong}",
        began.elapsed(),
        output.status
    );
    assert!(!wrong.contains("panicked"), "{wrong}");
    // A second on an idle machine in a debug build.
    assert!(began.elapsed() < Duration::from_secs(10), "in good time");
}
