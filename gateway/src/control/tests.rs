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
    Control::open(loaded, &live, None, options).unwrap()
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

/// Between the emptying and the writing of a file somebody may look.
#[tokio::test]
async fn an_emptied_file_ends_nothing() {
    let dir = folder();
    let file = dir.path().join("rules/a.yaml");
    let following = Following::start(open(&dir, WATCHING)).await;
    fs::write(&file, "").unwrap();
    let outcome = following.handle.reload().await;
    assert!(matches!(outcome, Some(Reloaded::Refused(_))), "{outcome:?}");
    assert_eq!(following.names(), ["a"]);
    fs::write(&file, cluster("a")).unwrap();
    let outcome = following.handle.reload().await;
    assert_eq!(outcome, Some(Reloaded::Unchanged(1)));
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

/// A folder whose process keeps its rules, after it has run once.
fn with_kept_rules(text: &str) -> TempDir {
    let dir = folder();
    let process = fs::read_to_string(dir.path().join("gateway.yaml")).unwrap();
    fs::write(
        dir.path().join("gateway.yaml"),
        process + "lastGoodFile: last-good.json\n",
    )
    .unwrap();
    fs::write(dir.path().join("token"), "t").unwrap();
    fs::write(dir.path().join("rules/a.yaml"), text).unwrap();
    open(&dir, WATCHING);
    dir
}

/// Starts as the process does when the rules cannot be loaded.
fn start_by_kept(dir: &TempDir) -> Result<Control, String> {
    let path = dir.path().join("gateway.yaml");
    let faults = sluice_config::load(&path).unwrap_err();
    let loaded = sluice_config::load_kept(&path).map_err(|_| faults.to_string())?;
    let live = LiveState::new(clock::now(), 1);
    Control::open(loaded, &live, None, WATCHING).map_err(|faults| faults.to_string())
}

#[tokio::test]
async fn a_start_on_faulty_rules_serves_by_those_last_in_force() {
    // Its token is named relative to the rules folder.
    let dir = with_kept_rules(&with_credentials("a"));
    fs::write(
        dir.path().join("rules/a.yaml"),
        "apiVersion: sluice.io/v1alpha1\nkind: Nonsense\n",
    )
    .unwrap();
    let control = start_by_kept(&dir).unwrap();
    let view = control.state().view();
    assert_eq!(view.generation, 1);
    assert!(view.fault.unwrap().message.contains("Nonsense"));
    let stop = CancellationToken::new();
    let following = Following {
        published: control.snapshot(),
        handle: control.spawn(stop.clone()),
        _stop: stop.drop_guard(),
    };
    assert_eq!(following.names(), ["a"]);
    let again = following.handle.reload().await;
    assert!(matches!(again, Some(Reloaded::Refused(_))), "{again:?}");
    assert_eq!(following.handle.state().view().refused, 1, "told once");
    // What was kept is what was in force, and not what was refused.
    assert!(sluice_config::load_kept(&dir.path().join("gateway.yaml")).is_ok());
    fs::write(dir.path().join("rules/a.yaml"), cluster("b")).unwrap();
    following
        .wait("the mended rules", |view| view.generation == 2)
        .await;
    assert_eq!(following.names(), ["b"]);
    assert!(following.handle.state().is_good());
}

#[tokio::test]
async fn rules_that_are_well_written_and_of_no_use_give_way_to_those_last_in_force() {
    let dir = with_kept_rules(&cluster("a"));
    fs::write(dir.path().join("ca.crt"), "no certificate").unwrap();
    let unusable = cluster("b")
        .replace("http:", "https:")
        .replace("  identity:", "  tls: { caFile: ../ca.crt }\n  identity:");
    fs::write(dir.path().join("rules/a.yaml"), unusable).unwrap();
    let control = open(&dir, WATCHING);
    let names: Vec<_> = control
        .published
        .load()
        .routes()
        .map(|r| r.name.to_string())
        .collect();
    assert_eq!(names, ["a"]);
    assert!(
        control
            .state()
            .view()
            .fault
            .unwrap()
            .message
            .contains("ca.crt")
    );
}

#[tokio::test]
async fn kept_rules_are_their_owners_and_follow_each_reload() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = with_kept_rules(&cluster("a"));
    let kept = dir.path().join("last-good.json");
    let mode = fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let following = Following::start(open(&dir, WATCHING)).await;
    fs::write(dir.path().join("rules/a.yaml"), cluster("b")).unwrap();
    following
        .wait("the edit", |view| view.generation == 2)
        .await;
    fs::write(dir.path().join("rules/a.yaml"), "{").unwrap();
    following
        .wait("the fault", |view| view.fault.is_some())
        .await;
    assert!(fs::read_to_string(&kept).unwrap().contains("b.example.com"));
    let beside = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(beside, 6, "nothing half-written is left");
}

#[tokio::test]
async fn what_was_kept_and_is_damaged_leaves_the_start_refused_for_the_rules_faults() {
    let dir = with_kept_rules(&cluster("a"));
    fs::write(
        dir.path().join("rules/a.yaml"),
        "apiVersion: sluice.io/v1alpha1\nkind: Nonsense\n",
    )
    .unwrap();
    let kept = dir.path().join("last-good.json");
    let whole = fs::read(&kept).unwrap();
    let cut = whole.split_at(whole.len() / 2).0.to_vec();
    let foreign = br#"{"form":"sluice.io/last-good/v9","files":[]}"#.to_vec();
    for content in [cut, foreign, Vec::new(), vec![0xff; 64]] {
        fs::write(&kept, content).unwrap();
        let faults = start_by_kept(&dir).err().unwrap();
        assert!(faults.contains("Nonsense"), "{faults}");
    }
    fs::remove_file(&kept).unwrap();
    assert!(start_by_kept(&dir).is_err());
}
