//! More work than there is room for, under a rule that lets some of it wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_e2e::client::{Client, Http2};
use sluice_e2e::lines::Lines;
use tokio::task::JoinSet;

use crate::rig::{Front, SLOW, SLOW_TAKES, WATCH, full};

/// Lists at once, those that may wait, and for how long.
const ROOM: usize = 20;
const WAIT: Duration = Duration::from_secs(1);

const RULES: &str = "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: { name: limits }\nspec:\n\
                     \x20 cluster: main\n  rules:\n\
                     \x20 - { name: heartbeats, match: { resources: [leases] }, exempt: true }\n\
                     \x20 - name: all\n    inFlight: { max: 20, key: [], queue: { max: 250, wait: 1s } }\n";

/// kubegateway.md A16: nodes renew their leases while lists wait for their turn, lists wait as long as
/// they are let and are then sent away, each for a time of its own, and watches take no turn.
#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_while_lists_queue() {
    let mut front = Front::of(1).await;
    front.site.write("rules/limits.yaml", RULES);
    front.gateway.start();
    front.gateway.ready().await;
    let user = front.site.user();
    let mut watches = Vec::new();
    for _ in 0..ROOM * 2 {
        watches.push(Lines::open(&user, WATCH).await.unwrap());
    }
    let stop = Arc::<AtomicBool>::default();
    let nodes = nodes(&user, full(50, 500), &stop).await;
    let lists = lists(&user, full(300, 2_000), &stop).await;
    tokio::time::sleep(Duration::from_secs(full(4, 60) as u64)).await;
    let waiting = "sluice_rule_waiting_requests{cluster=\"main\",rule=\"limits/all\"}";
    let queued = front.metric(waiting).await;
    stop.store(true, Ordering::Relaxed);

    let renewals: Vec<Duration> = nodes.join_all().await.into_iter().flatten().collect();
    let slowest = renewals.iter().max().unwrap();
    println!("{} renewals, the slowest took {slowest:?}", renewals.len());
    assert!(*slowest < Duration::from_secs(1), "{slowest:?}");

    let said: Vec<Listed> = lists.join_all().await.into_iter().flatten().collect();
    let served: Vec<Duration> = said
        .iter()
        .filter(|it| it.wait.is_none())
        .map(|it| it.took)
        .collect();
    let refused: Vec<Duration> = said
        .iter()
        .filter(|it| it.wait.is_some())
        .map(|it| it.took)
        .collect();
    let longest = served.iter().max().unwrap();
    let waits: BTreeSet<u32> = said.iter().filter_map(|it| it.wait).collect();
    let most = front.upstreams[0].told.slow_max.load(Ordering::SeqCst);
    println!(
        "{} lists served, the slowest after {longest:?}, {most} at once; {} refused, after at most {:?}, for {waits:?} s; {queued} waited",
        served.len(),
        refused.len(),
        refused.iter().max()
    );
    assert_eq!(most, ROOM, "all the room is used, and no more");
    // What is beyond is the machine's.
    let late = Duration::from_secs(3);
    assert!(*longest < WAIT + SLOW_TAKES + late, "{longest:?}");
    assert!(*longest > SLOW_TAKES * 2, "some waited: {longest:?}");
    assert!(refused.iter().all(|took| *took < WAIT + late));
    assert!(!refused.is_empty() && waits.len() > 3, "{waits:?}");
    assert!(queued > 0.0 && queued <= 250.0, "{queued}");
    front.upstreams[0].told.event(2);
    for watch in &mut watches {
        assert_eq!(watch.event().await.2, 2);
    }
    assert!(
        front.metric(waiting).await.abs() < 0.5,
        "nobody is left behind"
    );
}

/// Nodes that renew their leases all the time; how long each renewal took.
async fn nodes(user: &Client, count: usize, stop: &Arc<AtomicBool>) -> JoinSet<Vec<Duration>> {
    let mut all = JoinSet::new();
    for node in 0..count {
        let (connection, stop) = (user.http2().await.unwrap(), Arc::clone(stop));
        all.spawn(async move {
            let path =
                format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n{node}");
            let mut took = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let answer = connection.send("PUT", &path, "{}").await.unwrap();
                assert_eq!(answer.status, 201);
                took.push(began.elapsed());
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            took
        });
    }
    all
}

/// How long a list took, and for how long it was sent away.
struct Listed {
    took: Duration,
    wait: Option<u32>,
}

/// Clients that list, and list again; who is sent away stays away for a moment.
async fn lists(user: &Client, count: usize, stop: &Arc<AtomicBool>) -> JoinSet<Vec<Listed>> {
    let mut connections: Vec<Http2> = Vec::new();
    for _ in 0..count.div_ceil(50) {
        connections.push(user.http2().await.unwrap());
    }
    let mut all = JoinSet::new();
    for number in 0..count {
        let connection = connections[number % connections.len()].clone();
        let stop = Arc::clone(stop);
        all.spawn(async move {
            let mut said = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let answer = connection.send("GET", SLOW, "").await.unwrap();
                let took = began.elapsed();
                let wait = match answer.status.as_u16() {
                    200 => None,
                    429 => Some(
                        answer.headers["retry-after"]
                            .to_str()
                            .unwrap()
                            .parse()
                            .unwrap(),
                    ),
                    other => panic!("{other}"),
                };
                said.push(Listed { took, wait });
                if wait.is_some() {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
            said
        });
    }
    all
}
