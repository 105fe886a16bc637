//! Files change in all the ways that files change; what is in force is the last good content.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;

const CLUSTER: &str = "\
apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: NAME }
spec:
  hosts: [NAME.example.com]
  endpoints: [{ url: \"http://127.0.0.1:1\" }]
  identity: { mode: passThrough }
  clients: { anonymous: true }
";

/// The longest that a test waits for what must come; nothing waits for it to run out.
const PATIENCE: Duration = Duration::from_secs(20);

/// No poll comes within a test.
const WATCHING: ControlOptions = ControlOptions {
    debounce: Duration::from_millis(20),
    debounce_max: Duration::from_millis(200),
    poll: Duration::from_secs(3600),
};

fn cluster(name: &str) -> String {
    CLUSTER.replace("NAME", name)
}

/// A cluster whose clients the gateway impersonates, with a token beside the process file.
fn with_credentials(name: &str) -> String {
    cluster(name).replace("passThrough", "impersonate").replace(
        "  clients:",
        "  credentials: { tokenFile: ../token }\n  clients:",
    )
}

/// A process file with certificates, and `rules/a.yaml` with cluster `a`.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(dir.path().join("server.crt"), made.cert.pem()).unwrap();
    fs::write(
        dir.path().join("server.key"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    let process = "\
apiVersion: sluice.io/v1alpha1
kind: GatewayConfig
listen: { address: 127.0.0.1:0, tls: { certFile: server.crt, keyFile: server.key } }
rulesDir: rules
";
    fs::write(dir.path().join("gateway.yaml"), process).unwrap();
    fs::create_dir(dir.path().join("rules")).unwrap();
    fs::write(dir.path().join("rules/a.yaml"), cluster("a")).unwrap();
    dir
}

fn open(dir: &TempDir, options: ControlOptions) -> Control {
    let loaded = sluice_config::load(&dir.path().join("gateway.yaml")).unwrap();
    let live = LiveState::new(clock::now(), 1);
    Control::open(loaded, live, None, options).unwrap()
}

/// A control that follows its files.
struct Following {
    handle: ControlHandle,
    published: Arc<ArcSwap<RoutingSnapshot>>,
    _stop: tokio_util::sync::DropGuard,
}

impl Following {
    /// Returns once the folders are watched and the first look is over.
    async fn start(control: Control) -> Self {
        let stop = CancellationToken::new();
        let published = control.snapshot();
        let handle = control.spawn(stop.clone());
        assert_eq!(handle.reload().await, Some(Reloaded::Unchanged(1)));
        Following {
            handle,
            published,
            _stop: stop.drop_guard(),
        }
    }

    async fn wait(&self, what: &str, is_there: impl FnMut(&ConfigView) -> bool) -> ConfigView {
        let mut views = self.handle.state().subscribe();
        let waiting = views.wait_for(is_there);
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(view) => view.unwrap().clone(),
            Err(_) => panic!("waited for {what}: {:?}", self.handle.state().view()),
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .published
            .load()
            .routes()
            .map(|route| route.name.to_string())
            .collect();
        names.sort();
        names
    }
}

/// As careful tools write: nobody ever reads half of it.
fn replace_by_rename(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn edit_in_place_is_noticed() {
    let dir = folder();
    let following = Following::start(open(&dir, WATCHING)).await;
    assert_eq!(following.names(), ["a"]);
    fs::write(dir.path().join("rules/a.yaml"), cluster("b")).unwrap();
    following
        .wait("the edit", |view| view.generation >= 2)
        .await;
    assert_eq!(following.names(), ["b"]);
}

#[tokio::test]
async fn rename_over_a_file_is_noticed_each_time() {
    let dir = folder();
    let following = Following::start(open(&dir, WATCHING)).await;
    for (generation, name) in [(2, "b"), (3, "c"), (4, "d")] {
        replace_by_rename(&dir.path().join("rules/a.yaml"), &cluster(name));
        following
            .wait("the rename", |view| view.generation >= generation)
            .await;
        assert_eq!(following.names(), [name]);
    }
}

#[tokio::test]
async fn files_that_come_and_go_are_noticed() {
    let dir = folder();
    let following = Following::start(open(&dir, WATCHING)).await;
    replace_by_rename(&dir.path().join("rules/b.yml"), &cluster("b"));
    following
        .wait("a new file", |view| view.generation >= 2)
        .await;
    assert_eq!(following.names(), ["a", "b"]);
    fs::remove_file(dir.path().join("rules/a.yaml")).unwrap();
    following
        .wait("a removal", |view| view.generation >= 3)
        .await;
    assert_eq!(following.names(), ["b"]);
}

/// Kubernetes swaps a mounted ConfigMap by renaming a link over `..data`; the files are links
/// through it and never change themselves.
#[tokio::test]
async fn config_map_swaps_are_noticed_each_time() {
    let dir = folder();
    let rules = dir.path().join("rules");
    fs::remove_file(rules.join("a.yaml")).unwrap();
    let swap = |version: &str, name: &str| {
        let folder = rules.join(format!("..{version}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.yaml"), cluster(name)).unwrap();
        symlink(format!("..{version}"), rules.join("..data_tmp")).unwrap();
        fs::rename(rules.join("..data_tmp"), rules.join("..data")).unwrap();
    };
    swap("one", "a");
    symlink("..data/a.yaml", rules.join("a.yaml")).unwrap();
    let following = Following::start(open(&dir, WATCHING)).await;
    assert_eq!(following.names(), ["a"]);
    for (generation, version, name) in [(2, "two", "b"), (3, "three", "c")] {
        swap(version, name);
        following
            .wait("the swap", |view| view.generation >= generation)
            .await;
        assert_eq!(following.names(), [name]);
    }
}

#[tokio::test]
async fn replaced_rules_folder_is_noticed_each_time() {
    let dir = folder();
    for (version, name) in [("one", "a"), ("two", "b"), ("three", "c")] {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("a.yaml"), cluster(name)).unwrap();
    }
    let swap = |version: &str| {
        symlink(version, dir.path().join("next")).unwrap();
        fs::rename(dir.path().join("next"), dir.path().join("rules")).unwrap();
    };
    fs::remove_dir_all(dir.path().join("rules")).unwrap();
    swap("one");
    let following = Following::start(open(&dir, WATCHING)).await;
    for (generation, version, name) in [(2, "two", "b"), (3, "three", "c")] {
        swap(version);
        following
            .wait("the swap", |view| view.generation >= generation)
            .await;
        assert_eq!(following.names(), [name]);
    }
}

#[tokio::test]
async fn faulty_content_changes_nothing_and_is_told_once() {
    let dir = folder();
    let file = dir.path().join("rules/a.yaml");
    let following = Following::start(open(&dir, WATCHING)).await;
    let before = following.published.load_full();

    replace_by_rename(&file, &cluster("a").replace("hosts:", "host:"));
    let view = following
        .wait("the fault", |view| view.fault.is_some())
        .await;
    let message = view.fault.unwrap().message;
    assert!(
        message.contains("a.yaml:5:3: unknown field `host`"),
        "{message}"
    );
    assert_eq!((view.generation, view.applied), (1, 1));
    assert!(Arc::ptr_eq(&before, &following.published.load_full()));

    for _ in 0..3 {
        let outcome = following.handle.reload().await;
        assert!(matches!(outcome, Some(Reloaded::Refused(_))), "{outcome:?}");
    }
    assert_eq!(following.handle.state().view().refused, 1);

    // One good file beside a faulty one does not get through either.
    fs::write(dir.path().join("rules/b.yaml"), cluster("b")).unwrap();
    following.handle.reload().await;
    assert_eq!(following.names(), ["a"]);
    fs::remove_file(dir.path().join("rules/b.yaml")).unwrap();

    replace_by_rename(&file, &cluster("a"));
    let view = following
        .wait("the mending", |view| view.fault.is_none())
        .await;
    assert_eq!(view.generation, 1, "the content in force is back");
    assert!(Arc::ptr_eq(&before, &following.published.load_full()));
}

/// What is well written may still name files that hold the wrong thing.
#[tokio::test]
async fn unusable_files_change_nothing() {
    let dir = folder();
    fs::write(dir.path().join("bad.crt"), "not a certificate").unwrap();
    let mut control = open(&dir, WATCHING);
    let text = with_credentials("z").replace("anonymous: true", "clientCAFile: ../bad.crt");
    fs::write(dir.path().join("token"), "secret").unwrap();
    fs::write(dir.path().join("rules/z.yaml"), text).unwrap();
    let Reloaded::Refused(message) = control.reload() else {
        panic!("taken");
    };
    assert!(message.contains("clients of cluster z"), "{message}");
    assert_eq!(control.generation, 1);
    assert_eq!(control.clusters().len(), 1);
    // Mended by the contents of the file alone.
    let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
    fs::write(dir.path().join("bad.crt"), made.cert.pem()).unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(2));
    assert_eq!(control.reload(), Reloaded::Unchanged(2));
}

/// A folder that nobody watches: only a signal or the clock makes the gateway look there again.
async fn mend_out_of_sight(options: ControlOptions, nudge: impl FnOnce()) {
    let dir = folder();
    let following = Following::start(open(&dir, options)).await;
    let text = with_credentials("b").replace("../token", "../away/token");
    replace_by_rename(&dir.path().join("rules/b.yaml"), &text);
    following
        .wait("the fault", |view| view.fault.is_some())
        .await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("token"), "secret").unwrap();
    symlink(outside.path(), dir.path().join("away")).unwrap();
    nudge();
    following
        .wait("the mending", |view| view.generation >= 2)
        .await;
    assert_eq!(following.names(), ["a", "b"]);
}

#[tokio::test]
async fn hang_up_signal_reloads() {
    mend_out_of_sight(WATCHING, || {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP)
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn polling_finds_what_no_event_tells() {
    let options = ControlOptions {
        poll: Duration::from_millis(50),
        ..WATCHING
    };
    mend_out_of_sight(options, || {}).await;
}

#[tokio::test]
async fn live_parts_outlive_reloads_that_do_not_concern_them() {
    let dir = folder();
    let mut control = open(&dir, WATCHING);
    let route = |control: &Control, host: &str| {
        let snapshot = control.published.load_full();
        snapshot.route(None, Some(host)).map(Arc::clone).ok()
    };
    let only = |control: &Control, name: &str| {
        let mut clusters = control.clusters();
        clusters.retain(|cluster| cluster.name() == name);
        clusters.pop().unwrap()
    };
    let cluster_before = only(&control, "a");
    let before = route(&control, "a.example.com").unwrap();
    fs::write(dir.path().join("rules/b.yaml"), cluster("b")).unwrap();
    let both = "127.0.0.1:1\" }, { url: \"http://127.0.0.1:2";
    let text = cluster("a").replace("127.0.0.1:1", both);
    fs::write(dir.path().join("rules/a.yaml"), text).unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(2));
    let after = route(&control, "a.example.com").unwrap();
    assert!(Arc::ptr_eq(&cluster_before, &only(&control, "a")));
    assert!(Arc::ptr_eq(&before.authenticator, &after.authenticator));
    let endpoints = cluster_before.endpoints();
    let urls: Vec<&str> = endpoints.iter().map(|e| &*e.id).collect();
    assert_eq!(urls, ["http://127.0.0.1:1", "http://127.0.0.1:2"]);

    // Other clients, another authenticator; the cluster is the same.
    let text = with_credentials("a").replace("anonymous: true", "clientCAFile: ../server.crt");
    fs::write(dir.path().join("token"), "secret").unwrap();
    fs::write(dir.path().join("rules/a.yaml"), text).unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(3));
    let third = route(&control, "a.example.com").unwrap();
    assert!(Arc::ptr_eq(&cluster_before, &only(&control, "a")));
    assert!(!Arc::ptr_eq(&after.authenticator, &third.authenticator));

    fs::remove_file(dir.path().join("rules/a.yaml")).unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(4));
    assert!(route(&control, "a.example.com").is_none());
    assert_eq!(control.clusters().len(), 1);
}

/// Limits are found by name: taking a rule over a reload does not refill its bucket.
#[tokio::test]
async fn buckets_are_not_refilled_by_a_reload() {
    use crate::identity::UserInfo;
    use crate::request::RequestInfo;

    let rules = |per_second: u32| {
        format!(
            "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: {{ name: r }}\nspec:\n  \
             cluster: \"*\"\n  rules:\n  - name: few\n    match: {{ verbs: [list] }}\n    \
             rate: {{ perSecond: {per_second}, burst: 2 }}\n"
        )
    };
    let dir = folder();
    fs::write(dir.path().join("rules/r.yaml"), rules(1)).unwrap();
    let mut control = open(&dir, WATCHING);
    let now = clock::now();
    let uri = "/api/v1/pods".parse().unwrap();
    let info = RequestInfo::parse(&http::Method::GET, &uri, &http::HeaderMap::new()).unwrap();
    let user = UserInfo::anonymous();
    let admits = |control: &Control| {
        let snapshot = control.published.load_full();
        let route = snapshot.route(None, Some("a.example.com")).unwrap();
        route.flows.admit(&info, &user, None, now).is_ok()
    };
    assert_eq!(
        [admits(&control), admits(&control), admits(&control)],
        [true, true, false]
    );
    fs::write(dir.path().join("rules/r.yaml"), rules(2)).unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(2));
    assert!(!admits(&control));
}

#[tokio::test]
async fn changed_process_file_takes_a_restart() {
    let dir = folder();
    let mut control = open(&dir, WATCHING);
    let file = dir.path().join("gateway.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}drainTimeout: 1s\n")).unwrap();
    assert_eq!(control.reload(), Reloaded::Unchanged(1));
    assert!(control.state().view().restart_needed);
    fs::write(&file, text).unwrap();
    control.reload();
    assert!(!control.state().view().restart_needed);
}

#[tokio::test]
async fn renewed_server_certificate_is_shown_to_new_clients() {
    let dir = folder();
    let mut control = open(&dir, WATCHING);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    // The key does not fit yet: half a renewal.
    fs::write(dir.path().join("server.crt"), made.cert.pem()).unwrap();
    assert!(matches!(control.reload(), Reloaded::Refused(_)));
    fs::write(
        dir.path().join("server.key"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(2));
}

#[tokio::test]
async fn a_name_that_moves_to_other_endpoints_forgets_verdicts_on_users() {
    let dir = folder();
    let mut control = open(&dir, WATCHING);
    let authenticator = |control: &Control| {
        let snapshot = control.published.load_full();
        let route = snapshot.route(None, Some("a.example.com")).map(Arc::clone);
        Arc::clone(&route.ok().unwrap().authenticator)
    };
    let before = authenticator(&control);
    let text = cluster("a").replace("127.0.0.1:1", "127.0.0.1:2");
    fs::write(dir.path().join("rules/a.yaml"), text).unwrap();
    assert_eq!(control.reload(), Reloaded::Applied(2));
    assert!(!Arc::ptr_eq(&before, &authenticator(&control)));
}
