//! client-go's own informers over a server that is killed under them: after any number of kill -9
//! and restarts each informer's store is what a fresh list says, with streamed lists and without.
//!
//! The informers, their writers and the comparison are `clients/informer`; this suite kills.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_e2e::dev::Dev;
use sluice_e2e::parts::Parts;
use sluice_e2e::workload::{define_gadgets, ended_well, informer, make, written};

/// How long anything that is waited for may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Writes of each client, and how many of them between two kills.
const WRITES: usize = 3000;
const BETWEEN_KILLS: usize = 700;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn informers_live_through_kills_and_hold_what_a_fresh_list_says() {
    let Some(parts) = Parts::find(&["informer"]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut dev = Dev::new(home.path());
    dev.start().await;
    define_gadgets(&dev.client()).await;
    let modes = [("streamed", "true"), ("listed", "false")];
    let mut clients = Vec::new();
    for (space, streams) in modes {
        let object = json!({"metadata": {"name": space}});
        make(&dev.client(), "/api/v1/namespaces", &object).await;
        let config = dev.dir.join("kubeconfig");
        clients.push(informer(
            &parts,
            home.path(),
            &config,
            space,
            streams,
            WRITES,
        ));
    }
    for kill in 1..=KILLS {
        for client in &clients {
            written(client, kill * BETWEEN_KILLS).await;
        }
        dev.end(rustix::process::Signal::KILL, LIMIT);
        dev.start().await;
    }
    for (client, (space, _)) in clients.iter_mut().zip(modes) {
        let started = Instant::now();
        let asked = ended_well(client);
        println!(
            "{space}, {:?} after the last kill: {asked:?}",
            started.elapsed()
        );
        assert_eq!(asked.streamed > 0, space == "streamed", "{space}");
        assert!(asked.failures > 0, "no kill was felt");
    }
}
