//! The store alone: `sluice metastore serve` beside a real etcd under the same commands of a real
//! etcdctl, and under a real kube-apiserver while it is killed.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_e2e::apiserver::{Apiserver, ClusterPki, Storage};
use sluice_e2e::client::Client;
use sluice_e2e::etcd::Etcd;
use sluice_e2e::kubectl::{Credential, Kubectl};
use sluice_e2e::lines::Lines;
use sluice_e2e::parts::Parts;
use sluice_e2e::pki::Authority;
use sluice_e2e::process::{Process, eventually};
use sluice_e2e::store::Store;

const LIMIT: Duration = Duration::from_secs(60);

/// What etcdctl said and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

struct Etcdctl<'a> {
    parts: &'a Parts,
    dir: &'a str,
    url: String,
    /// The newest lease granted.
    lease: String,
}

impl Etcdctl<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.parts.path("etcdctl"));
        command
            .env_clear()
            .arg(format!("--endpoints={}", self.url))
            .args(
                args.iter()
                    .map(|arg| arg.replace("LEASE", &self.lease).replace("DIR", self.dir)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command, with what is random or the place's own replaced by a word.
    fn say(&mut self, args: &[&str], input: &str) -> Said {
        let input = match input {
            // Above what a request may have, below what a client sends.
            "@large" => "x".repeat(1_600_000),
            "@ops" => {
                let ops: String = (0..129).map(|n| format!("put many/{n} v\n")).collect();
                format!("\n{ops}\n\n")
            }
            plain => plain.to_owned(),
        };
        let mut child = self.command(args).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(id) = out
            .strip_prefix("lease ")
            .filter(|_| args[0] == "lease" && args[1] == "grant")
        {
            self.lease = id.split(' ').next().unwrap().to_owned();
        }
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        // The client logs its retries; what it says at the end begins like this.
        let err: Vec<&str> = err
            .lines()
            .filter(|line| line.starts_with("Error"))
            .collect();
        Said {
            code: output.status.code(),
            out: self.neutral(&out),
            err: self.neutral(&err.join("\n")),
        }
    }

    fn neutral(&self, text: &str) -> String {
        let mut text = text.replace(&self.url, "URL");
        if !self.lease.is_empty() {
            // A lease's number may be as short as any other: it is known by what stands around it.
            let hex = &self.lease;
            let decimal = i64::from_str_radix(hex, 16).unwrap();
            for (own, neutral) in [
                (format!("lease {hex} "), "lease LEASE "),
                (format!("\n{hex}\n"), "\nLEASE\n"),
                (format!("\"lease\":{decimal}"), "\"lease\":LEASE"),
                (format!("\"ID\" : {decimal}\n"), "\"ID\" : LEASE\n"),
            ] {
                text = text.replace(&own, neutral);
            }
        }
        for name in [
            "cluster_id",
            "member_id",
            "raft_term",
            "ClusterID",
            "MemberID",
            "RaftTerm",
        ] {
            text = without_number(&text, name);
        }
        if let Some(at) = text.find("took") {
            text.truncate(at);
        }
        without_member(&text)
    }
}

/// A member's line without what is its own: id and peer URL.
fn without_member(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let mut columns: Vec<&str> = line.split(", ").collect();
        if let [id, "started", _, peer, ..] = columns.as_mut_slice() {
            (*id, *peer) = ("ID", "PEER");
        }
        columns.join(", ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Each `"name":123` and `"name" : 123` without its number.
fn without_number(text: &str, name: &str) -> String {
    let quoted = format!("\"{name}\"");
    let mut parts = text.split(&quoted);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += &quoted;
        out += part
            .trim_start_matches([' ', ':'])
            .trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

/// Arguments and standard input; the same for both, in order.
const SCRIPT: &[(&[&str], &str)] = &[
    (&["get", "nothing"], ""),
    (&["get", "nothing", "-w=json"], ""),
    (&["put", "a", "1"], ""),
    (&["put", "a", "2", "--prev-kv"], ""),
    (&["put", "a", "3", "-w=json", "--prev-kv"], ""),
    (&["put", "", "empty"], ""),
    (&["put", "none", "--ignore-value"], ""),
    (&["put", "dir/x", "one"], ""),
    (&["put", "dir/y", "two"], ""),
    (&["put", "dir/z", "three"], ""),
    (&["put", "dir/x", "four"], ""),
    (&["put", "bytes", "\u{1}\u{7f}\u{e9}"], ""),
    (&["get", "a"], ""),
    (&["get", "a", "-w=fields"], ""),
    (&["get", "a", "-w=json"], ""),
    (&["get", "bytes", "--hex"], ""),
    (&["get", "a", "--print-value-only"], ""),
    (&["get", "--prefix", "dir/"], ""),
    (&["get", "--prefix", "dir/", "--keys-only"], ""),
    (&["get", "--prefix", "dir/", "--limit=2", "-w=json"], ""),
    (
        &["get", "--prefix", "dir/", "--count-only", "-w=fields"],
        "",
    ),
    (
        &[
            "get",
            "--prefix",
            "dir/",
            "--order=DESCEND",
            "--sort-by=KEY",
        ],
        "",
    ),
    (
        &[
            "get",
            "--prefix",
            "dir/",
            "--order=ASCEND",
            "--sort-by=MODIFY",
        ],
        "",
    ),
    (
        &[
            "get",
            "--prefix",
            "dir/",
            "--order=ASCEND",
            "--sort-by=VALUE",
        ],
        "",
    ),
    (&["get", "dir/x", "dir/z"], ""),
    (&["get", "--from-key", "dir/y"], ""),
    (&["get", "--prefix", ""], ""),
    (&["get", "a", "--rev=2"], ""),
    (&["get", "--prefix", "dir/", "--rev=6"], ""),
    (&["get", "a", "--rev=99999"], ""),
    (&["get", "a", "--consistency=s"], ""),
    (&["get", "--prefix", "dir/", "--min-mod-rev=7"], ""),
    (
        &["get", "--prefix", "dir/", "--max-create-rev=6", "-w=json"],
        "",
    ),
    (&["del", "dir/z", "--prev-kv"], ""),
    (&["del", "dir/z"], ""),
    (&["del", "--prefix", "nothing/"], ""),
    (&["get", "dir/z", "--rev=8"], ""),
    (
        &["txn", "-i"],
        "value(\"a\") = \"3\"\nmod(\"dir/x\") > \"1\"\n\nput a 4\nget a\ndel dir/y\n\nget dir/y\n\n",
    ),
    (
        &["txn", "-i"],
        "create(\"a\") = \"0\"\n\nput a 5\n\nget a\nget --prefix dir/\n\n",
    ),
    (
        &["txn", "-i", "-w=json"],
        "ver(\"a\") > \"1\"\n\nput b 1\nput c 2\n\n\n",
    ),
    (&["txn", "-i"], "\nput twice 1\nput twice 2\n\n\n"),
    (&["lease", "list"], ""),
    (&["lease", "grant", "600"], ""),
    (&["put", "leased", "yes", "--lease=LEASE"], ""),
    (&["get", "leased", "-w=json"], ""),
    (&["lease", "timetolive", "LEASE", "--keys", "-w=fields"], ""),
    (&["lease", "keep-alive", "--once", "LEASE"], ""),
    (&["lease", "list"], ""),
    (&["lease", "revoke", "LEASE"], ""),
    (&["get", "leased"], ""),
    (&["lease", "revoke", "LEASE"], ""),
    (&["lease", "timetolive", "LEASE"], ""),
    (&["put", "leased", "no", "--lease=LEASE"], ""),
    (&["compaction", "6"], ""),
    (&["get", "a", "--rev=3"], ""),
    (&["get", "--prefix", "dir/", "--rev=7"], ""),
    (&["compaction", "6"], ""),
    (&["compaction", "99999"], ""),
    (&["get", "--prefix", "", "-w=json"], ""),
    (&["alarm", "list"], ""),
    (&["user", "list"], ""),
    (&["role", "list"], ""),
    (&["auth", "status"], ""),
    (&["move-leader", "1"], ""),
    (&["user", "get", "x"], ""),
    (&["user", "delete", "x"], ""),
    (&["user", "grant-role", "x", "y"], ""),
    (&["user", "revoke-role", "x", "y"], ""),
    (&["role", "get", "x"], ""),
    (&["role", "delete", "x"], ""),
    (&["role", "grant-permission", "x", "read", "k"], ""),
    (&["role", "revoke-permission", "x", "k"], ""),
    (&["auth", "enable"], ""),
    (&["auth", "disable"], ""),
    (&["downgrade", "validate", "x"], ""),
    (&["downgrade", "validate", "3.5"], ""),
    (&["downgrade", "enable", "3.5"], ""),
    (&["downgrade", "cancel"], ""),
    (&["member", "list"], ""),
    (&["member", "remove", "1"], ""),
    (&["member", "promote", "1"], ""),
    (
        &["member", "update", "1", "--peer-urls=http://127.0.0.1:1"],
        "",
    ),
    (&["alarm", "disarm"], ""),
    (&["put", "large"], "@large"),
    (&["txn", "-i"], "@ops"),
    (&["lease", "grant", "9000000001"], ""),
    (&["put", "k", "v", "--lease=7"], ""),
    (&["put", "a", "--ignore-lease"], "6"),
    (&["put", "a", "--ignore-lease", "--ignore-value"], ""),
    (&["put", "a", "5", "--ignore-value"], ""),
    (&["get", "a", "b"], ""),
    (&["get", "a", "dir/", "--keys-only", "--order=DESCEND"], ""),
    (&["get", "--from-key", "b", "--sort-by=VERSION"], ""),
    (&["del", "b", "c"], ""),
    (&["del", "--from-key", "zzz"], ""),
    (&["del", "--range", "c", "d", "--prev-kv"], ""),
    (
        &["txn", "-i"],
        "value(\"a\") < \"9\"\nver(\"nothing\") = \"0\"\nlease(\"a\") = \"0\"\n\nget a\n\ndel a\n\n",
    ),
    (&["txn", "-i"], "mod(\"a\") > \"x\"\n\n\n\n"),
    (&["endpoint", "health"], ""),
    (&["defrag"], ""),
    (&["lock", "mutex", "echo", "locked"], ""),
    (&["get", "--prefix", "", "-w=json"], ""),
];

/// Commands that differ, and why. Nothing else may, and each of these does.
const DIFFERENT: &[(&[&str], &str)] = &[
    (
        &["user", "add", "root:pw"],
        "no users are kept: access is by the common name of the certificate",
    ),
    (&["role", "add", "reader"], "no roles are kept"),
    (
        &["downgrade", "validate", "3.6"],
        "there is one format on disk and no version to go back to",
    ),
    (
        &["snapshot", "save", "DIR/snapshot"],
        "the file is of the form of 3.6, which every etcdutl since then reads, and says so",
    ),
    (
        &["endpoint", "hashkv"],
        "the hash is over keys and latest versions, equal wherever the content is",
    ),
];

/// Last of all, since etcd waits for a second member from then on.
const MEMBER_ADD: (&[&str], &str) = (
    &["member", "add", "two", "--peer-urls=http://127.0.0.1:1"],
    "there is one member",
);

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_says_of_the_store_what_it_says_of_etcd() {
    let Some(parts) = Parts::find(&["etcd", "etcdctl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&parts, dir.path()).await;
    let mut store = Store::new(dir.path(), None);
    let peer = "--initial-advertise-peer-urls=http://127.0.0.1:2380";
    store.start(&["--name=one", peer]).await;
    let to = |url: String| Etcdctl {
        parts: &parts,
        dir: dir.path().to_str().unwrap(),
        url,
        lease: String::new(),
    };
    let (mut theirs, mut ours) = (to(etcd.url.clone()), to(store.url()));
    eventually("etcd to answer", LIMIT, || async {
        let output = theirs.command(&["endpoint", "health"]).output().unwrap();
        output
            .status
            .success()
            .then_some(())
            .ok_or(format!("{output:?}"))
    })
    .await;
    let mut faults = Vec::new();
    for (args, input) in SCRIPT {
        let (expected, got) = (theirs.say(args, input), ours.say(args, input));
        if expected != got {
            faults.push(format!(
                "{args:?} {input:?}\n  etcd:  {expected:?}\n  store: {got:?}"
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {} differ:\n{}",
        faults.len(),
        SCRIPT.len(),
        faults.join("\n")
    );
    for case in DIFFERENT {
        differs(&mut theirs, &mut ours, *case);
    }
    status_has_the_same_fields(&theirs, &ours);
    a_watch_prints_the_same_history(&theirs, &ours, dir.path()).await;
    differs(&mut theirs, &mut ours, MEMBER_ADD);
}

fn differs(theirs: &mut Etcdctl<'_>, ours: &mut Etcdctl<'_>, (args, why): (&[&str], &str)) {
    let (expected, got) = (theirs.say(args, ""), ours.say(args, ""));
    println!("{args:?} differs ({why}):\n  etcd:  {expected:?}\n  store: {got:?}");
    assert_ne!(expected, got, "{args:?} differs no more");
}

fn status_has_the_same_fields(theirs: &Etcdctl<'_>, ours: &Etcdctl<'_>) {
    let status = |of: &Etcdctl<'_>| -> Value {
        let output = of
            .command(&["endpoint", "status", "-w=json"])
            .output()
            .unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all[0]["Status"].clone()
    };
    let (theirs, ours) = (status(theirs), status(ours));
    println!("etcd:  {theirs}\nstore: {ours}");
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&theirs), names(&ours));
    assert_eq!(theirs["header"]["revision"], ours["header"]["revision"]);
    assert_eq!(
        ours["leader"], ours["header"]["member_id"],
        "the one member leads"
    );
    for name in [
        "dbSize",
        "dbSizeInUse",
        "dbSizeQuota",
        "raftIndex",
        "raftTerm",
    ] {
        assert!(ours[name].as_u64().unwrap() > 0, "{name}: {ours}");
    }
}

async fn a_watch_prints_the_same_history(theirs: &Etcdctl<'_>, ours: &Etcdctl<'_>, dir: &Path) {
    // From the first revision that is left, with values before the change.
    let args = ["watch", "--prefix", "", "--rev=7", "--prev-kv"];
    let mut logs = Vec::new();
    for (name, of) in [("watch-etcd", theirs), ("watch-store", ours)] {
        let watch = Process::start(name, dir, &mut of.command(&args));
        let done = of
            .command(&["put", "end", "of the watch"])
            .output()
            .unwrap();
        assert!(done.status.success());
        let read = || std::fs::read_to_string(&watch.log).unwrap();
        eventually("the watch to come to its end", LIMIT, || async {
            read()
                .contains("of the watch")
                .then_some(())
                .ok_or_else(read)
        })
        .await;
        logs.push(read());
    }
    assert!(logs[0].lines().count() > 20, "{}", logs[0]);
    assert_eq!(neutral_locks(&logs[0]), neutral_locks(&logs[1]));
}

/// A lock's key ends in its session's lease, which each side chose by itself.
fn neutral_locks(log: &str) -> String {
    let lines = log
        .lines()
        .map(|line| line.split_once("mutex/").map_or(line, |_| "mutex/LEASE"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_by_itself_fills_up_recovers_and_ends() {
    let Some(parts) = Parts::find(&["etcdctl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::new(dir.path(), None);
    store.start(&["--quota-backend-bytes=8388608"]).await;
    let mut etcdctl = Etcdctl {
        parts: &parts,
        dir: "",
        url: store.url(),
        lease: String::new(),
    };
    a_full_store_says_it_in_the_words_of_etcd(&mut etcdctl).await;
    a_second_one_says_who_holds_the_directory(&store, dir.path());
    it_ends_with_a_watch_open(&mut store, &etcdctl, dir.path()).await;
}

async fn a_full_store_says_it_in_the_words_of_etcd(etcdctl: &mut Etcdctl<'_>) {
    let value = "x".repeat(1_000_000);
    let ok = Said {
        code: Some(0),
        out: "OK\n".to_owned(),
        err: String::new(),
    };
    let mut written = 0;
    let refusal = loop {
        let said = etcdctl.say(&["put", &format!("full/{written}")], &value);
        if said != ok {
            break said;
        }
        written += 1;
        assert!(written < 20, "a quota of 8 MiB holds");
    };
    assert_eq!(
        refusal.err,
        "Error: etcdserver: mvcc: database space exceeded"
    );
    assert!(written >= 4, "{written}");
    assert_eq!(
        etcdctl
            .say(&["get", "full/0", "--print-value-only"], "")
            .out
            .trim_end(),
        value
    );
    let deleted = etcdctl.say(&["del", "--prefix", "full/"], "");
    assert_eq!(
        (deleted.code, deleted.out),
        (Some(0), format!("{written}\n"))
    );
    let revision = (written + 2).to_string();
    assert_eq!(etcdctl.say(&["compaction", &revision], "").err, "");
    let etcdctl = &*etcdctl;
    eventually("puts after compaction", LIMIT, || async {
        let output = etcdctl.command(&["put", "after", "1"]).output().unwrap();
        output
            .status
            .success()
            .then_some(())
            .ok_or(format!("{output:?}"))
    })
    .await;
}

fn a_second_one_says_who_holds_the_directory(store: &Store, dir: &Path) {
    let mut other = Store::new(dir, None);
    let output = other.command(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let id = store.process.as_ref().unwrap().id().to_string();
    assert!(said.contains("is held by") && said.contains(&id), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    other.port = store.port;
    let said = String::from_utf8_lossy(&other.command(&[]).output().unwrap().stderr).into_owned();
    assert!(
        said.contains(&format!("127.0.0.1:{}", store.port)) && said.contains("in use"),
        "{said}"
    );
}

async fn it_ends_with_a_watch_open(store: &mut Store, etcdctl: &Etcdctl<'_>, dir: &Path) {
    let watch = Process::start("watch", dir, &mut etcdctl.command(&["watch", "after"]));
    let read = || std::fs::read_to_string(&watch.log).unwrap();
    eventually("the watch to be there", LIMIT, || async {
        let output = etcdctl.command(&["put", "after", "2"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        read()
            .contains("PUT\nafter\n2\n")
            .then_some(())
            .ok_or_else(read)
    })
    .await;
    let started = Instant::now();
    let status = store.process.as_mut().unwrap().terminate(LIMIT);
    println!(
        "ended {:?} after the signal, with a watch open",
        started.elapsed()
    );
    assert_eq!(status.code(), Some(0));
    store.start(&[]).await;
    let got = etcdctl
        .command(&["get", "after", "--print-value-only"])
        .output()
        .unwrap();
    assert_eq!(got.stdout, b"2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_apiserver_over_a_store_that_is_killed() {
    let Some(parts) = Parts::find(&["kube-apiserver", "kubectl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::new(dir.path(), "store-ca");
    let serving = own.issue("store", &[], &[]);
    let client = own.issue("apiserver-etcd-client", &[], &[]);
    let mut store = Store::new(dir.path(), Some((own.ca.clone(), serving)));
    store.start(&[]).await;
    let pki = ClusterPki::new(dir.path(), &[]);
    let storage = Storage {
        url: store.url(),
        tls: Some((own.ca.clone(), client)),
    };
    let mut apiserver = Apiserver::new("apiserver", &parts, dir.path(), &pki, &storage, &[]);
    let started = Instant::now();
    apiserver.start();
    apiserver.ready().await;
    println!("the apiserver is ready after {:?}", started.elapsed());
    let who = Credential::Certificate(&pki.admin);
    let kubectl = Kubectl::new(
        &parts,
        dir.path(),
        "admin",
        apiserver.port,
        &pki.authority.ca,
        &who,
    );
    kubectl_works(&kubectl);
    a_watch_has_no_gap_over_kills(&mut store, &apiserver.direct).await;
    kubectl_works(&kubectl);
}

fn kubectl_works(kubectl: &Kubectl) {
    kubectl.ok(&["create", "namespace", "shop"]);
    kubectl.ok(&[
        "-n=shop",
        "create",
        "configmap",
        "one",
        "--from-literal=a=b",
    ]);
    kubectl.ok(&[
        "-n=shop",
        "create",
        "deployment",
        "web",
        "--image=web:1",
        "--replicas=2",
    ]);
    kubectl.ok(&["-n=shop", "label", "configmap", "one", "x=y"]);
    let applied = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: two, namespace: shop }\ndata: { a: one }\n";
    kubectl.ok_with(&["apply", "--server-side", "-f=-"], applied);
    kubectl.ok_with(
        &["apply", "--server-side", "-f=-"],
        &applied.replace("a: one", "a: two"),
    );
    assert_eq!(
        kubectl.ok(&[
            "-n=shop",
            "get",
            "configmap",
            "two",
            "-o=jsonpath={.data.a}"
        ]),
        "two"
    );
    kubectl.ok(&["-n=shop", "scale", "deployment", "web", "--replicas=3"]);
    let all = kubectl.ok(&[
        "-n=shop",
        "get",
        "configmaps,deployments",
        "--chunk-size=1",
        "-o=name",
    ]);
    assert_eq!(all, "configmap/one\nconfigmap/two\ndeployment.apps/web\n");
    kubectl.ok(&["-n=shop", "delete", "configmap", "--all"]);
    kubectl.ok(&["-n=shop", "delete", "deployment", "web"]);
    // No controller finishes a namespace here; its finalizer is taken by hand.
    kubectl.ok(&["delete", "namespace", "shop", "--wait=false"]);
    let finalized = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}, "spec": {"finalizers": []}});
    kubectl.ok_with(
        &[
            "replace",
            "--raw",
            "/api/v1/namespaces/shop/finalize",
            "-f=-",
        ],
        &finalized.to_string(),
    );
}

const WATCHED: &str = "/api/v1/namespaces/default/configmaps";
const VALUES: usize = 60;
const KILL_AT: [usize; 2] = [20, 40];

/// Each value is written once, whatever it takes; the watch shows each once and in order.
async fn a_watch_has_no_gap_over_kills(store: &mut Store, direct: &Client) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counted"}, "data": {"n": "start"}});
    let answer = direct
        .once("POST", WATCHED, object.to_string())
        .await
        .unwrap();
    assert_eq!(answer.status, 201);
    let from = answer.json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let watching = tokio::spawn(watch(direct.clone(), from));
    let path = format!("{WATCHED}/counted");
    for n in 0..VALUES {
        if KILL_AT.contains(&n) {
            store.kill_and_restart().await;
        }
        let patch = json!({"data": {"n": n.to_string()}}).to_string();
        // Said again after an unknown outcome it changes nothing, so that it makes one event.
        eventually("a write to be taken", LIMIT, || async {
            match direct.once("PATCH", &path, patch.clone()).await {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(String::from_utf8_lossy(&answer.body).into_owned()),
                Err(e) => Err(e.to_string()),
            }
        })
        .await;
    }
    let (seen, sessions) = tokio::time::timeout(LIMIT, watching)
        .await
        .expect("the watch to end")
        .unwrap();
    println!(
        "{} events over {sessions} watch sessions and {} kills",
        seen.len(),
        KILL_AT.len()
    );
    let expected: Vec<String> = (0..VALUES).map(|n| n.to_string()).collect();
    assert_eq!(seen, expected, "each value once and in order");
}

/// The values shown, until the last, over as many sessions as it takes.
async fn watch(direct: Client, mut version: String) -> (Vec<String>, usize) {
    let (mut seen, mut sessions) = (Vec::new(), 0);
    let last = (VALUES - 1).to_string();
    loop {
        let path = format!(
            "{WATCHED}?watch=1&fieldSelector=metadata.name%3Dcounted&resourceVersion={version}"
        );
        let Ok(mut lines) = Lines::open(&direct, &path).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        sessions += 1;
        while let Ok(Some(line)) = lines.next().await {
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(event["object"]["code"], 410, "a gap: {line}");
            if event["type"] != "MODIFIED" {
                break;
            }
            event["object"]["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .clone_into(&mut version);
            seen.push(event["object"]["data"]["n"].as_str().unwrap().to_owned());
            if seen.last() == Some(&last) {
                return (seen, sessions);
            }
        }
    }
}
