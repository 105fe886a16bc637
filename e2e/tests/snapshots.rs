//! Snapshots between Sluice and etcd's own tools, both ways, and `sluice metastore snapshot` when
//! things go wrong.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use sluice_e2e::etcd::Etcd;
use sluice_e2e::parts::Parts;
use sluice_e2e::ports;
use sluice_e2e::process::{Process, eventually};
use sluice_e2e::sluice::binary;
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(60);
/// 0x1234 as etcdctl writes lease ids.
const LEASE: &str = "0000000000001234";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    // What this machine's own user has set must not matter.
    for name in [
        "ETCDCTL_ENDPOINTS",
        "ETCDCTL_CACERT",
        "ETCDCTL_CERT",
        "ETCDCTL_KEY",
    ] {
        command.env_remove(name);
    }
    command.args(args).output().unwrap()
}

fn ok(program: &Path, args: &[&str]) -> String {
    let output = run(program, args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}{err}");
    out
}

fn snapshot(args: &[&str]) -> Output {
    run(&binary(), &[&["metastore", "snapshot"], args].concat())
}

/// What it prints.
fn snapshot_ok(args: &[&str]) -> String {
    let output = snapshot(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}{err}");
    out
}

/// What it says no with.
fn snapshot_refused(args: &[&str]) -> String {
    let output = snapshot(args);
    assert!(
        !output.status.success(),
        "{args:?}: {}",
        text(&output.stdout)
    );
    text(&output.stderr)
}

/// The number behind "digest".
fn digest(told: &str) -> u64 {
    let (_, rest) = told.split_once("digest ").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

struct Server {
    process: Process,
    url: String,
}

async fn serve(dir: &Path, data: &Path, more: &[&str]) -> Server {
    let port = ports::free();
    let url = format!("http://127.0.0.1:{port}");
    let mut command = Command::new(binary());
    command
        .args(["metastore", "serve", "--listen-client-urls", &url])
        .arg("--data-dir")
        .arg(data)
        .args(more);
    let process = Process::start(&format!("sluice-{port}"), dir, &mut command);
    eventually("sluice to take connections", LIMIT, || async {
        let connected = TcpStream::connect(("127.0.0.1", port)).await;
        connected.map(drop).map_err(|e| e.to_string())
    })
    .await;
    Server { process, url }
}

/// etcdctl at one server.
struct Ctl<'a> {
    program: &'a Path,
    url: &'a str,
}

impl Ctl<'_> {
    fn run(&self, args: &[&str]) -> String {
        ok(self.program, &[&["--endpoints", self.url], args].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.run(&[args, &["-w", "json"]].concat());
        serde_json::from_str(out.lines().next().unwrap()).unwrap()
    }

    /// Keys with all that is known of them at a revision, 0 for now.
    fn keys(&self, revision: u64) -> Value {
        let revision = revision.to_string();
        self.json(&["get", "", "--prefix", "--rev", &revision])["kvs"].take()
    }

    fn revision(&self) -> u64 {
        self.json(&["get", "x"])["header"]["revision"]
            .as_u64()
            .unwrap()
    }

    fn leased(&self) -> Value {
        let mut lease = self.json(&["lease", "timetolive", LEASE, "--keys"]);
        lease["keys"].take()
    }

    fn hashkv(&self) -> u64 {
        let answers = self.json(&["endpoint", "hashkv"]);
        answers[0]["HashKV"]["hash"].as_u64().unwrap()
    }

    /// What a read below the compacted revision is told.
    fn refusal_at(&self, revision: u64) -> String {
        let revision = revision.to_string();
        let args = ["--endpoints", self.url, "get", "x", "--rev", &revision];
        let told = text(&run(self.program, &args).stderr);
        assert!(told.contains("compacted"), "{told}");
        told.lines().last().unwrap_or_default().to_owned()
    }

    /// Keys put, changed, deleted, on a lease, large, several in one revision, and a past that is
    /// compacted in part. Answers the compacted revision.
    fn fill(&self) -> u64 {
        let id = u64::from_str_radix(LEASE, 16).unwrap();
        assert_eq!(id, 0x1234);
        for number in 0..8 {
            self.run(&["put", &format!("/k/{}", number % 5), &number.to_string()]);
        }
        self.run(&["del", "/k/3"]);
        let floor = self.revision();
        self.run(&["put", "/large", &"L".repeat(100_000)]);
        self.transaction("put /z first\nput /a second\ndel /k/4");
        self.run(&["del", "/k/", "--prefix"]);
        self.run(&["put", "/k/1", "again"]);
        self.run(&["compaction", &floor.to_string()]);
        floor
    }

    fn transaction(&self, then: &str) {
        use std::io::Write as _;
        let mut child = Command::new(self.program)
            .args(["--endpoints", self.url, "txn"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let lines = format!("\n{then}\n\n\n");
        child
            .stdin
            .take()
            .unwrap()
            .write_all(lines.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
    }
}

/// Grants [`LEASE`], whose id no option of etcdctl can choose, and hangs a key on it.
async fn lease(url: &str, ctl: &Ctl<'_>) {
    use sluice_metastore::etcd::client::etcdserverpb as pb;
    let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut client = pb::lease_client::LeaseClient::new(channel);
    let request = pb::LeaseGrantRequest {
        id: 0x1234,
        ttl: 4000,
    };
    client.lease_grant(request).await.unwrap();
    ctl.run(&["put", "/leased", "v", "--lease", LEASE]);
}

/// What `etcdutl` and we say of one file is the same.
fn same_status(etcdutl: &Path, file: &Path) -> Value {
    let theirs = ok(etcdutl, &["snapshot", "status", path(file), "-w", "json"]);
    let theirs: Value = serde_json::from_str(&theirs).unwrap();
    let ours = snapshot_ok(&["status", path(file), "-w", "json"]);
    let ours: Value = serde_json::from_str(&ours).unwrap();
    assert_eq!(ours, theirs);
    let theirs = ok(etcdutl, &["snapshot", "status", path(file)]);
    assert_eq!(snapshot_ok(&["status", path(file)]), theirs);
    ours
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_and_a_sluice_serve_what_a_sluice_saved() {
    let Some(parts) = Parts::find(&["etcd", "etcdctl", "etcdutl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let first = serve(dir.path(), &at("first"), &[]).await;
    let ctl = Ctl {
        program: parts.path("etcdctl"),
        url: &first.url,
    };
    let floor = ctl.fill();
    lease(&first.url, &ctl).await;
    let revision = ctl.revision();

    let (theirs, ours) = (at("theirs.db"), at("ours.db"));
    ctl.run(&["snapshot", "save", path(&theirs)]);
    let told = snapshot_ok(&["save", "--endpoint", &first.url, path(&ours)]);
    assert_eq!(digest(&told), ctl.hashkv());
    assert!(std::fs::read(&theirs).unwrap() == std::fs::read(&ours).unwrap());
    let status = same_status(parts.path("etcdutl"), &ours);
    assert_eq!(status["revision"].as_u64(), Some(revision));
    let told = snapshot_ok(&["verify", path(&ours)]);
    assert!(told.contains("is whole"), "{told}");
    assert_eq!(digest(&told), ctl.hashkv());

    ok(
        parts.path("etcdutl"),
        &[
            "snapshot",
            "restore",
            path(&ours),
            "--data-dir",
            path(&at("etcd")),
            "--name",
            "one",
            "--initial-cluster",
            "one=http://localhost:2380",
        ],
    );
    let etcd = Etcd::start(&parts, dir.path()).await;
    let told = snapshot_ok(&["restore", path(&ours), "--data-dir", path(&at("second"))]);
    assert_eq!(digest(&told), ctl.hashkv());
    let second = serve(dir.path(), &at("second"), &[]).await;
    for url in [&etcd.url, &second.url] {
        let other = Ctl {
            program: parts.path("etcdctl"),
            url,
        };
        assert_eq!(other.revision(), revision, "{url}");
        for at in [0, floor, floor + 2, revision - 1] {
            assert_eq!(other.keys(at), ctl.keys(at), "{url} at {at}");
        }
        assert_eq!(other.leased(), ctl.leased(), "{url}");
        assert!(!other.leased().as_array().unwrap().is_empty());
        other.refusal_at(floor - 1);
    }
    let second = Ctl {
        program: parts.path("etcdctl"),
        url: &second.url,
    };
    assert_eq!(second.hashkv(), ctl.hashkv());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sluice_serves_what_an_etcd_saved() {
    let Some(parts) = Parts::find(&["etcd", "etcdctl", "etcdutl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let etcd = Etcd::start(&parts, dir.path()).await;
    let ctl = Ctl {
        program: parts.path("etcdctl"),
        url: &etcd.url,
    };
    let floor = ctl.fill();
    lease(&etcd.url, &ctl).await;
    let revision = ctl.revision();
    let (file, ours) = (at("etcd.db"), at("ours.db"));
    ctl.run(&["snapshot", "save", path(&file)]);
    same_status(parts.path("etcdutl"), &file);
    // Our own command at an etcd does as well.
    snapshot_ok(&["save", "--endpoint", &etcd.url, path(&ours)]);
    same_status(parts.path("etcdutl"), &ours);
    let told = snapshot_ok(&["restore", path(&file), "--data-dir", path(&at("data"))]);
    let sluice = serve(dir.path(), &at("data"), &[]).await;
    let here = Ctl {
        program: parts.path("etcdctl"),
        url: &sluice.url,
    };
    assert_eq!(here.revision(), revision);
    for at in [0, floor, floor + 2, revision - 1] {
        assert_eq!(here.keys(at), ctl.keys(at), "at {at}");
    }
    assert_eq!(here.leased(), ctl.leased());
    assert_eq!(here.hashkv(), digest(&told));
    here.refusal_at(floor - 1);

    // As it lies in the data directory of an etcd that is gone for good.
    drop(etcd);
    let database = at("etcd/member/snap/db");
    let refused = snapshot_refused(&["verify", path(&database)]);
    assert!(refused.contains("--skip-hash-check"), "{refused}");
    let raised = snapshot_ok(&[
        "restore",
        path(&database),
        "--skip-hash-check",
        "--data-dir",
        path(&at("raised")),
        "--bump-revision",
        "1000",
        "--mark-compacted",
    ]);
    assert_eq!(digest(&raised), digest(&told));
    assert!(
        raised.contains(&format!("revision {}", revision + 1000)),
        "{raised}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_is_whole_or_not_there_and_never_in_anothers_place() {
    let Some(parts) = Parts::find(&["etcdctl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let scheduled = at("scheduled");
    let flags = ["--snapshots-dir", path(&scheduled), "--snapshots-keep", "2"];
    let mut server = serve(dir.path(), &at("data"), &flags).await;
    let ctl = Ctl {
        program: parts.path("etcdctl"),
        url: &server.url,
    };
    ctl.fill();
    let file = at("snapshot.db");
    snapshot_ok(&["save", "--endpoint", &server.url, path(&file)]);
    let again = snapshot_refused(&["save", "--endpoint", &server.url, path(&file)]);
    assert!(again.contains("there already"), "{again}");

    // One on the schedule is taken at the start, since there was none.
    eventually("a scheduled snapshot", LIMIT, || async {
        let names = names(&scheduled);
        match names.as_slice() {
            [one] if one.ends_with(".db") => Ok(()),
            _ => Err(format!("{names:?}")),
        }
    })
    .await;
    snapshot_ok(&["verify", path(&scheduled.join(&names(&scheduled)[0]))]);

    // Damage is named, and nothing is made of it.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[70_000] ^= 1;
    let damaged = at("damaged.db");
    std::fs::write(&damaged, &bytes).unwrap();
    let told = snapshot_refused(&["verify", path(&damaged)]);
    assert!(
        told.contains("offset=0: the ") && told.contains("bytes from here on"),
        "{told}"
    );
    snapshot_refused(&["restore", path(&damaged), "--data-dir", path(&at("none"))]);
    assert!(!at("none").exists());
    let data = at("data");
    let told = snapshot_refused(&["restore", path(&file), "--data-dir", path(&data)]);
    assert!(told.contains("is not empty"), "{told}");

    server.process.kill();
    let told = snapshot_refused(&["save", "--endpoint", &server.url, path(&at("late.db"))]);
    assert!(told.contains("cannot reach"), "{told}");
    let left: Vec<String> = names(dir.path());
    assert!(
        !left
            .iter()
            .any(|name| name.contains("late") || name.ends_with(".part")),
        "{left:?}"
    );
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| PathBuf::from(entry.file_name()));
    paths.map(|name| path(&name).to_owned()).collect()
}
