//! etcd's own `benchmark` tool drives the store, plain and by TLS: everything asked for is answered,
//! and nothing by an error. How fast is another question (`make bench`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sluice_e2e::parts::Parts;
use sluice_e2e::pki::{Authority, Leaf};
use sluice_e2e::ports;
use sluice_e2e::process::{Process, eventually};
use sluice_e2e::sluice::binary;
use tokio::net::TcpStream;

/// Far above the second that any of them takes, for a machine that builds other things meanwhile.
const LIMIT: Duration = Duration::from_secs(120);

/// What the tool is told, and how many operations it must report, summary by summary.
const RUNS: [(&str, &[u64]); 7] = [
    (
        "put --total=300 --clients=10 --conns=2 --key-size=8 --val-size=256 \
         --sequential-keys --key-space-size=300",
        &[300],
    ),
    (
        "range a z --total=300 --clients=10 --conns=2 --consistency=l",
        &[300],
    ),
    (
        "txn-put --total=200 --clients=10 --txn-ops=4 --key-space-size=100 --val-size=512",
        &[200],
    ),
    // Reads and writes are told apart at random; only their sum is known.
    (
        "txn-mixed key --total=300 --clients=10 --key-space-size=100 --rw-ratio=1",
        &[300],
    ),
    // Twenty watches of one key made, then each of 15 puts seen by all of them.
    (
        "watch --streams=4 --watch-per-stream=5 --put-total=15",
        &[20, 300],
    ),
    (
        "watch-latency --streams=2 --watchers-per-stream=5 --put-total=30 --put-rate=200 --prevkv",
        &[30, 300],
    ),
    ("lease-keepalive --total=300 --clients=10", &[300]),
];

struct Tls {
    authority: Authority,
    leaf: Leaf,
}

async fn serve(dir: &Path, tls: Option<&Tls>) -> (Process, u16) {
    let port = ports::free();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{port}");
    let mut command = Command::new(binary());
    command
        .args(["metastore", "serve", "--listen-client-urls", &url])
        .arg("--data-dir")
        .arg(dir.join("store"));
    match tls {
        None => command.arg("--insecure-loopback"),
        Some(tls) => command
            .arg("--trusted-ca-file")
            .arg(&tls.authority.ca)
            .arg("--cert-file")
            .arg(&tls.leaf.cert)
            .arg("--key-file")
            .arg(&tls.leaf.key),
    };
    let process = Process::start("store", dir, &mut command);
    eventually("the store to take connections", LIMIT, || async {
        let connected = TcpStream::connect(("127.0.0.1", port)).await;
        connected.map(drop).map_err(|e| e.to_string())
    })
    .await;
    (process, port)
}

/// One client of the store: its command with where the store is and how it shows itself.
struct Client {
    program: PathBuf,
    port: u16,
    certificates: Vec<(&'static str, PathBuf)>,
}

impl Client {
    fn new(program: &Path, port: u16, tls: Option<&Tls>) -> Client {
        let certificates = tls.map_or_else(Vec::new, |tls| {
            vec![
                ("--cacert", tls.authority.ca.clone()),
                ("--cert", tls.leaf.cert.clone()),
                ("--key", tls.leaf.key.clone()),
            ]
        });
        Client {
            program: program.to_owned(),
            port,
            certificates,
        }
    }

    fn run(&self, dir: &Path, name: &str, args: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        // The tool dials bare addresses by TLS when it has certificates; etcdctl wants the scheme.
        let scheme = match (name, self.certificates.is_empty()) {
            ("etcdctl", false) => "https://",
            _ => "",
        };
        command.arg(format!("--endpoints={scheme}127.0.0.1:{}", self.port));
        for (flag, path) in &self.certificates {
            command.arg(flag).arg(path);
        }
        command.args(args);
        let mut process = Process::start(name, dir, &mut command);
        let status = process.wait_exit(LIMIT);
        let said = std::fs::read_to_string(&process.log).unwrap();
        assert!(status.success(), "{name} {args:?}: {status}\n{said}");
        said
    }
}

/// How many operations each summary of the tool counts, from its histogram: `  0.0102 [17]  |***`.
fn counted(said: &str) -> Vec<u64> {
    said.split("Response time histogram:")
        .skip(1)
        .map(|summary| {
            summary
                .lines()
                .skip(1)
                .map_while(|line| {
                    line.split_once('[')?
                        .1
                        .split_once(']')?
                        .0
                        .parse::<u64>()
                        .ok()
                })
                .sum()
        })
        .collect()
}

async fn drives(parts: &Parts, dir: &Path, tls: Option<&Tls>) {
    let (_store, port) = serve(dir, tls).await;
    let benchmark = Client::new(parts.path("benchmark"), port, tls);
    for (args, expected) in RUNS {
        let args: Vec<&str> = args.split_whitespace().collect();
        let name = args[0];
        let said = benchmark.run(dir, name, &args);
        let mut counts = counted(&said);
        if name == "txn-mixed" {
            assert_eq!(counts.len(), 2, "reads and writes: {said}");
            counts = vec![counts.iter().sum()];
        }
        assert_eq!(counts, expected, "{args:?}: {said}");
        assert!(!said.contains("Error distribution"), "{args:?}: {said}");
        if name == "put" {
            let etcdctl = Client::new(parts.path("etcdctl"), port, tls);
            let all = ["get", "--prefix", "--count-only", "--write-out=fields", ""];
            let said = etcdctl.run(dir, "etcdctl", &all);
            assert!(
                said.contains("\"Count\" : 300\n") && said.contains("\"Revision\" : 301\n"),
                "300 keys, each put once: {said}"
            );
        }
    }
}

#[tokio::test]
async fn the_benchmark_tool_of_etcd_gets_every_answer() {
    let Some(parts) = Parts::find(&["benchmark", "etcdctl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    drives(&parts, dir.path(), None).await;
}

#[tokio::test]
async fn and_by_tls() {
    let Some(parts) = Parts::find(&["benchmark", "etcdctl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "etcd");
    let leaf = authority.issue("client", &[], &[]);
    drives(&parts, dir.path(), Some(&Tls { authority, leaf })).await;
}

#[test]
fn a_summary_is_counted_by_its_histogram() {
    let said = "Summary:\n  Total:\t1.0 secs.\n\nResponse time histogram:\n  0.0007 [1]\t|\n  \
                0.0279 [100]\t|***\n\nLatency distribution:\n  10% in 0.0 secs.\n\
                Response time histogram:\n  0.1 [7]\t|\n";
    assert_eq!(counted(said), [101, 7]);
}
