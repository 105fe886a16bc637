//! What must go on while the store or a leader is killed: watches without a gap and without new
//! lists, leases that do not lapse, and controllers that take over.

use std::time::Instant;

use sluice_e2e::component::{self, ELECTIONS, holder};
use sluice_e2e::parts::Parts;
use sluice_e2e::plane::Plane;
use sluice_e2e::process::eventually;
use sluice_e2e::workload::{ended_well, informer, written};

use crate::LIMIT;
use crate::work::running;

/// Writes of each informer client, and how many of them before each kill.
pub(crate) const WRITES: usize = 900;
const KILLS: usize = 2;
const BETWEEN_KILLS: usize = 300;

/// As [`component::leaders`], by the first apiserver.
pub(crate) async fn leaders(plane: &Plane) -> Vec<(String, u64)> {
    component::leaders(&plane.apiservers[0].direct).await
}

/// client-go's informers, streaming their lists and not, see every change over the kills; the
/// apiservers' caches go on where they were, and every leader stays one.
pub(crate) async fn the_store_is_killed_under_informers(parts: &Parts, plane: &mut Plane) {
    let before = (leaders(plane).await, filled(plane).await);
    let mut clients = Vec::new();
    for (n, streams) in ["true", "false"].into_iter().enumerate() {
        let space = format!("informed-{n}");
        plane.kubectl[n].ok(&["create", "namespace", &space]);
        let config = &plane.kubectl[n].config;
        clients.push(informer(parts, &plane.dir, config, &space, streams, WRITES));
    }
    for kill in 1..=KILLS {
        for client in &clients {
            written(client, kill * BETWEEN_KILLS).await;
        }
        let started = Instant::now();
        plane.kill_store().await;
        let down = started.elapsed();
        println!("the store took connections {down:?} after its kill");
    }
    for client in &mut clients {
        println!("informers: {:?}", ended_well(client));
    }
    let replicas = ["scale", "deployment/web", "--replicas=5"];
    plane.kubectl[0].ok(&replicas);
    running(plane, "web:2", 5).await;
    assert_eq!(before.0, leaders(plane).await, "leaders");
    caches_went_on(plane, &before.1).await;
    assert_eq!(plane.ended(), Vec::<String>::new(), "parts that ended");
}

/// How often each apiserver filled its caches from the store: a watch that resumes is no reason to.
pub(crate) async fn filled(plane: &Plane) -> Vec<f64> {
    let mut all = Vec::new();
    for apiserver in &plane.apiservers {
        for resource in ["pods", "configmaps", "leases", "gadgets"] {
            let needle = format!("resource=\"{resource}\"");
            let metric = "apiserver_watch_cache_initializations_total";
            all.push(apiserver.counter(metric, &[&needle]).await);
        }
    }
    all
}

/// What an apiserver says when the store no longer has what one of its watches asks to go on from.
const OVERTAKEN: &str = "watch chan error: etcdserver: mvcc: required revision has been compacted";

/// No cache was filled anew, but where compaction has overtaken its watch.
///
/// The watch of a kind that nobody writes knows of a revision by progress notices alone, each 5 s,
/// and here the apiservers compact what is 8 s old. On a starved machine the store is away, and an
/// apiserver does not come back to it, for longer than is between: then the cache has to be filled.
/// An apiserver 1.35.4 that is stopped (SIGSTOP) for 9 s at a kill of its store fills its caches of
/// pods, leases and secrets anew, on an etcd 3.7.3 with the same intervals as on this store, and the
/// one beside it does not. With the usual 5 minutes (`long.rs`) there is no such case.
async fn caches_went_on(plane: &Plane, before: &[f64]) {
    let after = filled(plane).await;
    let kinds = before.len() / plane.apiservers.len();
    let times = before.chunks(kinds).zip(after.chunks(kinds));
    for (apiserver, (before, after)) in plane.apiservers.iter().zip(times) {
        let log = std::fs::read_to_string(apiserver.log()).unwrap();
        let overtaken = log.matches(OVERTAKEN).count();
        println!("caches filled {after:?} times, {overtaken} watches overtaken by compaction");
        assert!(
            before == after || overtaken > 0,
            "caches filled {before:?}, then {after:?} times, and no watch was overtaken"
        );
    }
}

/// The other controller manager takes the lease over, and does the work.
pub(crate) async fn another_manager_leads_when_the_first_is_killed(plane: &mut Plane) {
    let lease = ELECTIONS[0];
    let direct = plane.apiservers[0].direct.clone();
    let (first, changes) = holder(&direct, lease).await.unwrap();
    plane.managers[0].kill();
    let started = Instant::now();
    eventually("another leader", LIMIT, || async {
        let (now, times) = holder(&direct, lease).await?;
        (now != first && times == changes + 1)
            .then_some(())
            .ok_or(format!("{now} leads"))
    })
    .await;
    println!("another leader {:?} after the kill", started.elapsed());
    plane.kubectl[1].ok(&["scale", "deployment/web", "--replicas=8"]);
    running(plane, "web:2", 8).await;
    plane.managers[0].start();
}
