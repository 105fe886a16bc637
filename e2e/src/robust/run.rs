//! A run from its first request to the verdict.
//!
//! Traffic goes on while the caller does to the server what the test is about. Then it ends, leases
//! that are left are revoked so that nothing moves any more, one read of everything says where the
//! store stands, and every watch has to get there; last, a watch from the floor reads all again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::Client;
use super::dice::Dice;
use super::tape::Tape;
use super::traffic;
use super::watcher::{Manner, Spec, Stream};
use crate::history::{Answer, History, Outcome, Range, Report, Request, check};
use crate::process::eventually;

/// Within this all clients and watches have ended, each of which has a bound of its own.
const END_MAX: Duration = Duration::from_secs(60);
/// How often the last read is tried, on a server that has just been started.
const LAST_TRIES: usize = 200;

/// Who takes part.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Draws come from here.
    pub seed: u64,
    /// Clients with kube-apiserver's requests.
    pub kubernetes: u64,
    /// Clients with etcd's.
    pub etcd: u64,
    /// Clients with leases.
    pub leases: u64,
    /// Whether history is compacted.
    pub compacts: bool,
    /// Watches on one stream that is read slowly.
    pub crowd: u64,
    /// Watches that are begun together, from now on, again and again.
    pub newcomers: u64,
    /// Of how many values one is large; zero for none.
    pub large_every: u64,
    /// The longest pause of a client between two requests.
    pub pace: Duration,
}

impl Cast {
    /// Some of all.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Cast {
            seed,
            kubernetes: 3,
            etcd: 3,
            leases: 2,
            compacts: true,
            crowd: 0,
            newcomers: 2,
            large_every: 50,
            pace: Duration::from_millis(4),
        }
    }
}

/// A run that is under way.
pub struct Run {
    /// What it writes.
    pub tape: Arc<Tape>,
    url: watch::Sender<String>,
    over: watch::Sender<bool>,
    end: watch::Sender<i64>,
    traffic: JoinSet<()>,
    watches: JoinSet<()>,
    cast: Cast,
}

/// What came of it.
pub struct Verdict {
    /// All that happened.
    pub history: History,
    /// What was wrong with it.
    pub report: Report,
    seed: u64,
}

impl Run {
    /// Starts traffic and watches against an empty server.
    #[must_use]
    pub fn start(cast: Cast, url: &str) -> Run {
        let mut run = Run {
            tape: Arc::new(Tape::new(cast.large_every)),
            url: watch::Sender::new(url.to_owned()),
            over: watch::Sender::new(false),
            end: watch::Sender::new(0),
            traffic: JoinSet::new(),
            watches: JoinSet::new(),
            cast,
        };
        run.start_watches();
        run.start_traffic();
        run
    }

    fn start_traffic(&mut self) {
        let Cast { seed, pace, .. } = self.cast;
        let target = self.url.subscribe();
        let client = || Client::new(&self.tape, &target);
        let over = || self.over.subscribe();
        for n in 0..self.cast.kubernetes {
            let dice = Dice::new(seed, n);
            self.traffic
                .spawn(traffic::kubernetes(client(), dice, pace, over()));
        }
        for n in 0..self.cast.etcd {
            let dice = Dice::new(seed, 100 + n);
            self.traffic
                .spawn(traffic::etcd(client(), dice, pace, over()));
        }
        for n in 0..self.cast.leases {
            let dice = Dice::new(seed, 200 + n);
            self.traffic
                .spawn(traffic::leases(client(), dice, pace, over()));
        }
        if self.cast.compacts {
            let dice = Dice::new(seed, 300);
            self.traffic.spawn(traffic::compact(client(), dice, over()));
        }
    }

    fn stream(&mut self, manner: Manner, specs: Vec<Spec>) {
        let (target, end) = (self.url.subscribe(), self.end.subscribe());
        let stream = Stream::new(&self.tape, &target, &end, manner, specs);
        self.watches.spawn(stream.run());
    }

    /// Watches of every kind: all keys and one, from the beginning, from now and from the future,
    /// filtered, reopened all the time, and slow.
    fn start_watches(&mut self) {
        let recorder = Stream::recorder(&self.tape, &self.url.subscribe(), &self.end.subscribe());
        self.watches.spawn(recorder.run());
        let of = |key: &str, end: &str, start: i64| Spec {
            key: key.to_owned(),
            end: end.to_owned(),
            start,
            prev_kv: true,
            ..Spec::default()
        };
        let calm = Manner::default();
        let pods = of("/registry/pods/", "/registry/pods0", 1);
        let (no_put, no_delete) = (
            Spec {
                no_put: true,
                ..of("k", "l", 0)
            },
            Spec {
                no_delete: true,
                ..of("l", "m", 0)
            },
        );
        let bare = Spec {
            prev_kv: false,
            fragment: true,
            ..of("k3", "", 0)
        };
        self.stream(
            calm.clone(),
            vec![pods.clone(), of("k", "l", 0), no_put, no_delete, bare],
        );
        let hasty = Manner {
            reopen_after: 5,
            ..calm.clone()
        };
        self.stream(hasty.clone(), vec![of("\0", "\0", 1)]);
        self.stream(hasty.clone(), vec![of("k", "l", 0)]);
        let newcomers = (0..self.cast.newcomers).map(|_| of("k", "l", 0));
        let newcomer = Manner {
            is_forgetful: true,
            reopen_after: usize::try_from(self.cast.newcomers * 2).unwrap_or(usize::MAX),
            ..hasty
        };
        self.stream(newcomer.clone(), newcomers.collect());
        let digger = Manner {
            is_at_floor: true,
            reopen_after: 3,
            ..newcomer
        };
        self.stream(digger, vec![of("\0", "\0", 1)]);
        for ahead in [40, 150] {
            let patient = Manner {
                is_silent: true,
                ..calm.clone()
            };
            self.stream(patient.clone(), vec![of("k", "l", ahead)]);
            self.stream(calm.clone(), vec![of("k", "l", ahead), pods.clone()]);
        }
        let slow = Manner {
            pause: Duration::from_millis(250),
            ..calm
        };
        self.stream(
            slow.clone(),
            vec![of("k", "l", 1), of("/registry/", "/registry0", 1)],
        );
        if self.cast.crowd > 0 {
            let crowd = (0..self.cast.crowd).map(|_| of("k", "l", 1));
            let slow = Manner {
                pause: Duration::from_millis(3),
                ..slow
            };
            self.stream(slow, crowd.collect());
        }
    }

    /// One more client, for what the test itself has to ask.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.tape, &self.url.subscribe())
    }

    /// The server is another one from now on, or the same started again.
    pub fn moved(&self, url: &str) {
        self.tape.restarted();
        self.url.send_replace(url.to_owned());
    }

    /// Waits until the recorder was told of so many more revisions, however long that takes on a
    /// machine that does other things besides.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn advance(&self, revisions: i64) {
        let from = self.tape.reach();
        eventually("traffic to go on", END_MAX, async || {
            let reach = self.tape.reach();
            if reach - from >= revisions {
                Ok(())
            } else {
                Err(format!("{reach} of {}", from + revisions))
            }
        })
        .await;
    }

    /// Asks for what was compacted last, and for what lies below.
    pub async fn probe_floor(&self) {
        let mut client = self.client();
        let floor = self.tape.floor();
        for revision in [floor, floor - 1, floor - 2] {
            let Request::Range(range) = everything() else {
                return;
            };
            let range = Range {
                revision: revision.max(1),
                ..range
            };
            client.ask(Request::Range(range)).await;
        }
    }

    /// Ends traffic, lets everything settle and judges it.
    ///
    /// # Panics
    /// When a client panicked, or the server does not answer one read within some seconds.
    pub async fn finish(mut self) -> Verdict {
        self.over.send_replace(true);
        ended(&mut self.traffic, "clients").await;
        let mut client = self.client();
        let last = self.settle(&mut client).await;
        self.end.send_replace(last);
        ended(&mut self.watches, "watches").await;
        // All that can still be read, once more.
        let all = Spec {
            key: "\0".to_owned(),
            end: "\0".to_owned(),
            start: 1,
            prev_kv: true,
            ..Spec::default()
        };
        self.stream(Manner::default(), vec![all]);
        ended(&mut self.watches, "watches").await;
        let history = self.tape.finish();
        let report = check(&history);
        Verdict {
            history,
            report,
            seed: self.cast.seed,
        }
    }

    /// Ends every lease, so that nothing moves any more; where the store stands then.
    async fn settle(&self, client: &mut Client) -> i64 {
        let mut last = 0;
        for _ in 0..LAST_TRIES {
            if let Some(reply) = client.ask(everything()).await {
                last = reply.revision;
                break;
            }
        }
        assert!(last > 0, "the server answers no read at the end");
        for id in self.tape.leases() {
            client.ask(Request::Revoke { id }).await;
        }
        let reply = client.ask(everything()).await;
        reply.map_or(last, |reply| reply.revision)
    }
}

/// Waits for all of them to end.
async fn ended(tasks: &mut JoinSet<()>, what: &str) {
    let waiting = async {
        while let Some(one) = tasks.join_next().await {
            one.expect("a client or a watch does not panic");
        }
    };
    let waited = tokio::time::timeout(END_MAX, waiting).await;
    assert!(waited.is_ok(), "{what} have not ended within {END_MAX:?}");
}

fn everything() -> Request {
    Request::Range(Range {
        key: "\0".to_owned(),
        end: "\0".to_owned(),
        ..Range::default()
    })
}

impl Verdict {
    /// Numbers of what happened, for people and for the test's own sake.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            restarts: self.history.restarts.len(),
            watches: self.history.watches.len(),
            ..Counts::default()
        };
        for call in &self.history.calls {
            match &call.outcome {
                Outcome::Answered(reply) => {
                    counts.answers += 1;
                    counts.writes += usize::from(reply.answer.is_effective());
                    counts.compactions += usize::from(matches!(call.request, Request::Compact(_)));
                    let is_gone = matches!(reply.answer, Answer::Left { ttl } if ttl <= 0);
                    counts.gone += usize::from(is_gone);
                }
                Outcome::Refused(_) => counts.refusals += 1,
                Outcome::Unknown(_) => counts.unknown += 1,
            }
        }
        for response in self.history.watches.iter().flat_map(|log| &log.responses) {
            counts.events += response.events.len();
            counts.notices += usize::from(response.is_progress());
            counts.overtaken += usize::from(response.compact_revision > 0);
        }
        counts
    }

    /// Passes a history in which every guarantee held, and says what was in it.
    ///
    /// # Panics
    /// When one did not: the report is printed, and the history kept and named.
    #[expect(
        clippy::must_use_candidate,
        reason = "what counts is that it does not panic"
    )]
    pub fn hold(&self, name: &str) -> Counts {
        let counts = self.counts();
        println!("{name} seed={}: {counts:?}", self.seed);
        if !self.report.is_clean() {
            let kept = self.keep(name);
            panic!(
                "{name} with seed {} broke:\n{}\nhistory: {}\nagain: make robustness SEED={}",
                self.seed,
                self.report,
                kept.display(),
                self.seed
            );
        }
        counts
    }

    /// Writes the history down where it outlives the test.
    fn keep(&self, name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join("sluice-robustness");
        let path = dir.join(format!("{}-{}.json", name.replace(' ', "-"), self.seed));
        let text = serde_json::to_vec(&self.history).unwrap_or_default();
        let kept = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, text));
        if let Err(error) = kept {
            println!("the history could not be kept: {error}");
        }
        path
    }
}

/// What was in a history.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub answers: usize,
    pub writes: usize,
    pub refusals: usize,
    pub unknown: usize,
    pub compactions: usize,
    pub gone: usize,
    pub restarts: usize,
    pub watches: usize,
    pub events: usize,
    pub notices: usize,
    pub overtaken: usize,
}
