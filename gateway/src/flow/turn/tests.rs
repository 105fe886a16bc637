//! Requests that wait for their turn, over a clock that only moves when all of them wait.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};
use sluice_ratelimit::Quota;
use tokio::task::JoinHandle;

use crate::flow::{
    Admission, Entry, FlowSpec, FlowTable, InFlightSpec, KeyField, LiveState, MatchSpec, QueueSpec,
    RateSpec, RuleCounts, RuleSpec,
};
use crate::identity::UserInfo;
use crate::request::RequestInfo;
use crate::status::Refusal;

const PODS: &str = "/api/v1/pods";
const WATCH: &str = "/api/v1/pods?watch=1";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
const WAIT: Duration = Duration::from_secs(2);

fn queued(max: u32, places: u32, key: &[KeyField]) -> RuleSpec {
    RuleSpec {
        in_flight: Some(InFlightSpec {
            max,
            key: key.to_vec(),
            queue: Some(QueueSpec {
                max: places,
                wait: WAIT,
            }),
        }),
        ..RuleSpec::new("all/lists")
    }
}

struct Gateway {
    live: Arc<LiveState>,
    table: Arc<FlowTable>,
    now: Instant,
}

impl Gateway {
    fn new(rules: Vec<RuleSpec>) -> Self {
        let now = Instant::now();
        let live = LiveState::new(now, 7);
        let table = FlowTable::compile(&FlowSpec { rules }, "c1", &live).unwrap();
        let table = Arc::new(table);
        Gateway { live, table, now }
    }

    fn ask(&self, name: &str, method: &Method, uri: &str) -> Result<Entry, Refusal> {
        let info = RequestInfo::parse(method, &uri.parse().unwrap(), &HeaderMap::new()).unwrap();
        let user = UserInfo {
            name: name.to_owned(),
            ..UserInfo::default()
        };
        self.table.enter(&info, &user, None, None, self.now)
    }

    fn admitted(&self, name: &str, uri: &str) -> Admission {
        match self.ask(name, &Method::GET, uri).unwrap() {
            Entry::Admitted(admission) => admission,
            Entry::Waiting(_) => panic!("{name} has to wait for {uri}"),
        }
    }

    /// Begins to wait, as a task of its own.
    fn waits(&self, name: &str) -> JoinHandle<Result<Admission, Refusal>> {
        let Entry::Waiting(waiting) = self.ask(name, &Method::GET, PODS).unwrap() else {
            panic!("{name} does not have to wait");
        };
        let now = self.now;
        tokio::spawn(waiting.turn(move || now))
    }

    fn counts(&self) -> RuleCounts {
        let all = self.live.counts();
        all.into_iter().find(|it| &*it.rule == "all/lists").unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn turns_come_in_order_and_the_line_has_an_end() {
    let gateway = Gateway::new(vec![queued(1, 2, &[])]);
    let first = gateway.admitted("alice", PODS);
    let second = gateway.waits("bob");
    let third = gateway.waits("carol");
    let full = gateway.ask("dave", &Method::GET, PODS).unwrap_err();
    assert_eq!(full.code, StatusCode::TOO_MANY_REQUESTS);
    assert!(
        full.message
            .contains("1 at once, for all together, and 2 to wait up to 2s")
    );
    assert_eq!(
        (gateway.counts().waiting, gateway.counts().in_flight),
        (2, 1)
    );
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.rule().map(|it| &**it), Some("all/lists"));
    assert!(!third.is_finished());
    drop(second);
    drop(third.await.unwrap().unwrap());
    let counts = gateway.counts();
    assert_eq!((counts.waited, counts.waiting, counts.in_flight), (2, 0, 0));
    assert_eq!((counts.admitted, counts.refused_in_flight), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_sent_away_for_a_time_of_its_own() {
    let gateway = Gateway::new(vec![queued(1, 9, &[])]);
    let _held = gateway.admitted("alice", PODS);
    let began = tokio::time::Instant::now();
    let mut waits = Vec::new();
    for waiting in (0..9).map(|_| gateway.waits("bob")).collect::<Vec<_>>() {
        let refusal = waiting.await.unwrap().unwrap_err();
        assert_eq!(refusal.code, StatusCode::TOO_MANY_REQUESTS);
        waits.push(refusal.retry_after.unwrap());
    }
    let took = began.elapsed();
    assert!(took >= WAIT && took < WAIT * 2, "{took:?}");
    waits.dedup();
    assert!(waits.len() > 4 && waits.iter().all(|it| (1..=60).contains(it)));
    assert_eq!(gateway.counts().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_makes_room_for_the_next() {
    let gateway = Gateway::new(vec![queued(1, 1, &[])]);
    let held = gateway.admitted("alice", PODS);
    let leaves = gateway.waits("bob");
    tokio::task::yield_now().await;
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    let next = gateway.waits("carol");
    drop(held);
    assert!(next.await.unwrap().is_ok());
    assert_eq!(gateway.counts().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_line_of_its_own() {
    let gateway = Gateway::new(vec![queued(1, 1, &[KeyField::User])]);
    let alice = gateway.admitted("alice", PODS);
    let waiting = gateway.waits("alice");
    assert!(gateway.ask("alice", &Method::GET, PODS).is_err());
    let _bob = gateway.admitted("bob", PODS);
    drop(alice);
    assert!(waiting.await.unwrap().is_ok());
}

/// Others than short requests of the rule are not held up by its line.
#[tokio::test(start_paused = true)]
async fn watches_and_rules_before_it_pass_by_the_line() {
    let leases = RuleSpec {
        matches: MatchSpec {
            resources: vec!["leases".to_owned()],
            ..MatchSpec::default()
        },
        ..RuleSpec::new("all/leases")
    };
    let gateway = Gateway::new(vec![leases, queued(1, 5, &[])]);
    let _held = gateway.admitted("alice", PODS);
    let waiting = gateway.waits("bob");
    let watches: Vec<_> = (0..50).map(|_| gateway.admitted("bob", WATCH)).collect();
    assert!(matches!(
        gateway.ask("node", &Method::PUT, LEASE),
        Ok(Entry::Admitted(_))
    ));
    let counts = gateway.counts();
    assert_eq!((counts.in_flight, counts.long_running), (1, 50));
    drop(watches);
    assert!(!waiting.is_finished());
}

/// Who asks too often is told so at once and takes no place.
#[tokio::test(start_paused = true)]
async fn the_rate_is_judged_before_the_wait() {
    let one = NonZeroU32::MIN;
    let two = NonZeroU32::new(2).unwrap();
    let rule = RuleSpec {
        rate: Some(RateSpec {
            quota: Quota::per_second(one, two).unwrap(),
            key: Vec::new(),
        }),
        ..queued(1, 5, &[])
    };
    let gateway = Gateway::new(vec![rule]);
    let _held = gateway.admitted("alice", PODS);
    let _waiting = gateway.waits("alice");
    let refusal = gateway.ask("alice", &Method::GET, PODS).unwrap_err();
    assert!(
        refusal.message.starts_with("too many requests: "),
        "{}",
        refusal.message
    );
    let counts = gateway.counts();
    assert_eq!((counts.waiting, counts.refused_rate), (1, 1));
}
