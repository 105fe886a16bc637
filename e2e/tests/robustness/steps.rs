//! The real command line in a process that kills itself at each step of what it does to its data
//! directory and of a commit, is started again and judged.
//!
//! The steps are those of the tables in the metastore's `DESIGN.md`, which names them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use sluice_e2e::history::{Put, Request};
use sluice_e2e::robust::client::Client;
use sluice_e2e::robust::dice::Dice;
use sluice_e2e::robust::run::{Cast, Run};
use sluice_e2e::robust::server::There;

use crate::rounds::{is_long, rounds};

/// Segments are an eighth of it: some large values fill one.
const QUOTA: [&str; 2] = ["--quota-backend-bytes", "8388608"];
/// More than a segment holds, so that it gets one of its own.
const LARGER_THAN_A_SEGMENT: u64 = 1_200_000;
/// A step that is reached at all is reached within a lease's life and a checkpoint.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of a long run: kills at whatever is done to the directory.
const ANYWHERE: u64 = 20;

/// An empty directory becomes a store's: each kill leaves what the next start finds.
const INIT: [&str; 7] = [
    "lock lock before",
    "lock lock after",
    "write lock half",
    "write lock after",
    "sync lock before",
    "sync lock after",
    "sync names after",
];

/// What the start after a kill does, once a process.
const START: [&str; 4] = [
    "write lock half",
    "sync lock after",
    "remove spare after",
    "truncate segment after",
];

/// What goes on while there are writes, again and again.
const GOING_ON: [&str; 36] = [
    // A commit.
    "write segment before",
    "write segment half",
    "write segment after",
    "sync segment after",
    "durable",
    "shown",
    "answered",
    // Going on in a new segment, with a spare and without.
    "create new-segment after",
    "write new-segment half",
    "sync new-segment after",
    "rename new-segment before",
    "rename new-segment after",
    "rename new-segment after / sync names before",
    "write spare half",
    "rename spare before",
    "rename spare after",
    "write new-spare half",
    "rename new-spare after",
    // A checkpoint, and letting go what it stands for.
    "checkpointing",
    "create new-checkpoint after",
    "write new-checkpoint half",
    "sync new-checkpoint after",
    "rename new-checkpoint before",
    "rename new-checkpoint after",
    "checkpointed",
    "remove segment after",
    "rename segment before",
    "rename segment after",
    "rename segment after / sync names before",
    "remove checkpoint before",
    "remove checkpoint after",
    // Compaction.
    "compacting / write segment half",
    "floor-durable",
    "sweeping",
    // Ends of leases.
    "expiring / write segment half",
    "expiring / shown",
];

/// The ways of a restore, each into what the one before left.
const RESTORE: [&str; 10] = [
    "lock lock after",
    "create marker after",
    "sync marker after / sync names after",
    "write lock half",
    "create new-checkpoint after",
    "write new-checkpoint half",
    "sync new-checkpoint after",
    "rename new-checkpoint before",
    "rename new-checkpoint after",
    "remove marker before",
];

/// The gateway's example of that name.
fn mortal() -> PathBuf {
    let path = sluice_e2e::sluice::binary();
    let path = path.parent().unwrap().join("examples/mortal");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --workspace --example mortal --features \
         sluice-gateway/injected-faults`",
        path.display()
    );
    path
}

/// Waits for the server to die, and gives it all it needs to get there: values that fill segments,
/// and checkpoints.
async fn dies(server: &mut There, client: &mut Client, step: &str) {
    let waiting = async {
        while !server.is_dead() {
            let put = Put {
                key: "/large".to_owned(),
                value: client.tape().large(LARGER_THAN_A_SEGMENT),
                ..Put::default()
            };
            client.ask(Request::Put(put)).await;
            client.checkpoint().await;
        }
    };
    let died = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(died.is_ok(), "{step} was not reached within {PATIENCE:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_at_every_step_takes_nothing_away() {
    rounds("killed at every step", async |seed| {
        let dir = tempfile::tempdir().unwrap();
        let mut dice = Dice::new(seed, 12);
        let mut server = There::serve(dir.path(), mortal(), &QUOTA);
        for step in INIT {
            server.start_to_die(step, 0);
            assert!(server.dies(PATIENCE).await, "{step} was not reached");
        }
        server.start().await;
        let run = Run::start(Cast::new(seed), &server.url);
        let mut client = run.client();
        run.advance(20).await;
        server.kill();
        let mut all = START.map(|step| (step, 0)).to_vec();
        for step in GOING_ON {
            all.push((step, if is_long() { dice.below(4) } else { 0 }));
        }
        for _ in 0..if is_long() { ANYWHERE } else { 0 } {
            all.push(("any", dice.below(80)));
        }
        for (step, passes) in &all {
            server.start_to_die(step, *passes);
            run.moved(&server.url);
            dies(&mut server, &mut client, step).await;
        }
        server.start().await;
        run.moved(&server.url);
        run.probe_floor().await;
        run.advance(20).await;
        let counts = run.finish().await.hold("killed at every step");
        assert!(counts.restarts > all.len(), "{counts:?}");
    })
    .await;
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(&[&out[..], &err[..]].concat()).into_owned()
}

/// `metastore ARGS` by the real binary, and whether that went well.
fn metastore(args: &[&str]) -> (bool, String) {
    let output = sluice_e2e::sluice::run(&[&["metastore"], args].concat());
    (output.status.success(), said(&output))
}

/// The number behind "digest".
fn digest(told: &str) -> String {
    let (_, rest) = told.split_once("digest ").unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect()
}

/// A restore that dies at a step.
fn restore_dies(file: &str, data: &str, step: &str) {
    let mut command = Command::new(mortal());
    command.args(["metastore", "snapshot", "restore", file, "--data-dir", data]);
    let output = command.env("SLUICE_DIE_AT", step).output().unwrap();
    let is_killed = output.status.code().is_none();
    assert!(is_killed, "{step} was not reached: {}", said(&output));
}

/// Saves what a server of the directory `data` shows, and ends it.
async fn saved(dir: &Path, file: &Path) -> String {
    let mut server = There::sluice(dir);
    server.start().await;
    let file = file.to_str().unwrap();
    let (done, told) = metastore(&["snapshot", "save", "--endpoint", &server.url, file]);
    assert!(done, "{told}");
    server.kill();
    told
}

/// Killed wherever, a restore is done again in the same place and is whole then; before that nobody
/// opens what it left.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_killed_at_every_step_is_done_again() {
    let home = tempfile::tempdir().unwrap();
    let mut server = There::sluice(home.path());
    server.start().await;
    let run = Run::start(Cast::new(1), &server.url);
    run.advance(200).await;
    run.finish().await.hold("before a restore");
    server.kill();
    let file = home.path().join("saved.db");
    let first = digest(&saved(home.path(), &file).await);
    let file = file.to_str().unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let data = elsewhere.path().join("data");
    let place = data.to_str().unwrap();
    for step in RESTORE {
        restore_dies(file, place, step);
        if data.join("import.unfinished").exists() {
            let url = ["--listen-client-urls", "http://127.0.0.1:0"];
            let (_, text) = metastore(&[&["serve", "--data-dir", place], &url[..]].concat());
            assert!(text.contains("do the same again"), "{step}: {text}");
        }
    }
    // The last step of all, after which it is whole and not to be done again.
    restore_dies(file, place, "remove marker after");
    let (done, text) = metastore(&["snapshot", "restore", file, "--data-dir", place]);
    assert!(!done && text.contains("is not empty"), "{text}");
    let copy = elsewhere.path().join("saved.db");
    let second = saved(elsewhere.path(), &copy).await;
    assert_eq!(digest(&second), first, "{second}");
}
