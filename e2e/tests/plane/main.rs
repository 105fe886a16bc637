//! A whole real control plane on the store: kube-apiservers, controller managers, a scheduler and
//! kwok's nodes, over `sluice metastore serve` that is killed under them.
//!
//! The gate runs the first test. Those of `long.rs` run where `SLUICE_PLANE_SECONDS` says how long
//! (`make conformance PART=plane`). `SLUICE_K8S_VERSION` chooses the version of Kubernetes' parts.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod faults;
mod lists;
mod long;
mod storage;
mod work;

use std::time::{Duration, Instant};

use sluice_e2e::parts::Parts;
use sluice_e2e::plane::{PARTS, Plane, PlaneOptions};

/// How long anything that is waited for may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Events are gone after this; the store's shortest lease is 2 s.
const EVENT_TTL: Duration = Duration::from_secs(5);
/// Each apiserver claims the compaction this often.
const COMPACTION: Duration = Duration::from_secs(8);
const NODES: usize = 3;

fn options() -> PlaneOptions {
    PlaneOptions {
        apiservers: 2,
        managers: 2,
        apiserver_flags: vec![
            format!("--event-ttl={EVENT_TTL:?}"),
            format!("--etcd-compaction-interval={COMPACTION:?}"),
        ],
        store_flags: Vec::new(),
        lease: Duration::from_secs(15),
    }
}

/// The parts of a plane and `more`; `None` where they cannot be had.
fn parts(more: &[&str]) -> Option<Parts> {
    Parts::find(&[&PARTS[..], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_control_plane_lives_on_the_store() {
    let Some(parts) = parts(&["informer"]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut plane = Plane::new(&parts, home.path(), &options());
    let mut clock = Clock::start();
    plane.start().await;
    clock.lap("a store, two apiservers, two controller managers, a scheduler and kwok");
    everything(&parts, &mut plane, &mut clock).await;
}

/// All that is asked of a plane, in an order in which each step leaves the plane as it was.
async fn everything(parts: &Parts, plane: &mut Plane, clock: &mut Clock) {
    let old = storage::begin(plane).await;
    work::nodes_become_ready(plane, NODES).await;
    work::deployments_roll(plane).await;
    work::jobs_and_daemons_run(plane);
    clock.lap("nodes, deployments, services, jobs, daemons");
    storage::events_go_with_their_lease(plane).await;
    clock.lap("events with a lease");
    lists::lists_are_consistent_and_from_the_cache(plane).await;
    lists::lists_are_streamed(plane).await;
    storage::lists_come_by_a_stream_where_asked(plane).await;
    clock.lap("lists from the cache, streamed lists");
    work::custom_kinds_come(plane).await;
    faults::the_store_is_killed_under_informers(parts, plane).await;
    clock.lap("the store killed under informers and controllers");
    faults::another_manager_leads_when_the_first_is_killed(plane).await;
    clock.lap("a killed leader");
    work::custom_kinds_go(plane).await;
    work::a_namespace_ends_with_all_in_it(plane).await;
    clock.lap("a definition and a namespace deleted");
    storage::old_revisions_are_compacted(plane, &old).await;
    clock.lap("compaction by the apiservers");
    assert_eq!(plane.ended(), Vec::<String>::new(), "parts that ended");
    storage::logs_are_clean(plane);
}

/// Says how long each step took.
struct Clock(Instant);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now())
    }

    fn lap(&mut self, what: &str) {
        println!("{:>6.1} s  {what}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}
