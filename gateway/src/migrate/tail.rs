//! Carries a source's writes over as they happen, each under its own revision.
//!
//! ```text
//! watch from R+1 -> whole revisions -> leases they need -> append, durable
//! ```
//!
//! It ends when the operator says so or the source has been idle for as long as was asked: from then
//! on there is a goal, the source's newest revision at that moment, and what is beyond it is not
//! waited for. A stream that breaks is opened again from the revision after the last one appended,
//! so nothing is lost or doubled. A source that compacted what is still needed ends it.

use std::collections::HashSet;
use std::time::Duration;

use sluice_metastore::Revision;
use sluice_metastore::etcd::client::etcdserverpb::WatchResponse;
use sluice_metastore::events::Change;
use sluice_metastore::follow::Follower;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::MigrateError;
use super::group::Group;
use super::lease;
use super::remote::{Remote, is_passing};
use super::report::Report;

/// Between two looks at where the source stands.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Before a broken stream is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// The newest revision of a store whose history was not cut is answered at once.
const NEWEST_WITHIN: Duration = Duration::from_secs(5);

/// When to stop following.
#[derive(Clone, Debug)]
pub(super) struct Until {
    /// The operator's word.
    pub(super) stop: CancellationToken,
    /// How long nothing must have been written.
    pub(super) idle: Option<Duration>,
}

/// See the module.
pub(super) struct Tail<'a> {
    source: &'a Remote,
    follower: &'a mut Follower,
    report: &'a dyn Report,
    group: Group,
    /// Leases whose time was asked for already.
    known: HashSet<i64>,
    /// Revisions and bytes carried over.
    done: (u64, u64),
    last_write: Instant,
    is_caught_up: bool,
    goal: Option<i64>,
}

impl<'a> Tail<'a> {
    pub(super) fn new(
        source: &'a Remote,
        follower: &'a mut Follower,
        report: &'a dyn Report,
    ) -> Self {
        Tail {
            source,
            follower,
            report,
            group: Group::default(),
            known: HashSet::new(),
            done: (0, 0),
            last_write: Instant::now(),
            is_caught_up: false,
            goal: None,
        }
    }

    /// Follows until it is told to stop; all up to the goal is then durable here.
    pub(super) async fn run(mut self, until: &Until) -> Result<(), MigrateError> {
        self.report.begin("following the source", "revisions", None);
        let mut look = interval(LOOK_EVERY);
        while !self.is_over() {
            let next = self.follower.revision().next().to_wire();
            let mut answers = self.source.watch(next).await?;
            self.group = Group::default();
            while !self.is_over() {
                tokio::select! {
                    biased;
                    // First: a source that never pauses must not put the operator's word off.
                    () = until.stop.cancelled(), if self.goal.is_none() => self.end_here().await?,
                    _ = look.tick() => self.look(until).await?,
                    answer = answers.message() => {
                        if !self.take(answer).await? {
                            break;
                        }
                    }
                }
            }
        }
        // What is left of each at the moment of the cut: the other side counts on from there.
        let leases = lease::all(self.source).await?;
        self.follower.append(&leases, &[]).await?;
        self.report.end();
        Ok(())
    }

    fn is_over(&self) -> bool {
        let at = self.follower.revision().to_wire();
        self.goal.is_some_and(|goal| at >= goal)
    }

    async fn end_here(&mut self) -> Result<(), MigrateError> {
        let goal = self.source.standing().await?.revision;
        self.report
            .say(&format!("ending at the source's revision {goal}"));
        self.goal = Some(goal);
        Ok(())
    }

    /// Sees how far behind it is.
    async fn look(&mut self, until: &Until) -> Result<(), MigrateError> {
        let (source, here) = (
            self.source.standing().await?.revision,
            self.follower.revision().to_wire(),
        );
        if source < here {
            return Err(MigrateError::Unfit(format!(
                "the source went back to revision {source}, and {here} was copied from it: it was \
                 restored or is another one; begin the move anew"
            )));
        }
        if source > here {
            return Ok(());
        }
        if !self.is_caught_up {
            self.is_caught_up = true;
            self.report.say(&format!(
                "caught up at revision {here}: stop what writes to the source, then end this with \
                 Ctrl-C or SIGTERM"
            ));
        }
        let idle = until.idle.filter(|idle| self.last_write.elapsed() >= *idle);
        if idle.is_some() && self.goal.is_none() {
            self.goal = Some(source);
        }
        Ok(())
    }

    /// Takes what the stream said; false when it is over and another is to be opened.
    async fn take(
        &mut self,
        answer: Result<Option<WatchResponse>, Status>,
    ) -> Result<bool, MigrateError> {
        let Some(answer) = open_answer(self.source, self.follower.revision(), answer)? else {
            let role = self.source.role();
            self.report
                .say(&format!("the {role}'s watch ended, opening it again"));
            self.source.leave().await;
            sleep(PAUSE).await;
            return Ok(false);
        };
        let changes = self.group.take(answer, self.follower.revision())?;
        let Some(last) = changes.last().map(Change::revision) else {
            return Ok(true);
        };
        let unknown = leases_of(&changes).filter(|id| self.known.insert(*id));
        let unknown: Vec<i64> = unknown.collect();
        let leases = lease::some(self.source, unknown).await?;
        self.done.0 += last.get() - self.follower.revision().get();
        self.done.1 += changes.iter().map(weight).sum::<u64>();
        self.follower.append(&leases, &changes).await?;
        self.last_write = Instant::now();
        self.report.at(self.done.0, self.done.1);
        Ok(true)
    }
}

fn leases_of(changes: &[Change]) -> impl Iterator<Item = i64> {
    changes.iter().filter_map(|change| match change {
        Change::Put(record) => Some(record.lease().0).filter(|id| *id != 0),
        Change::Delete { .. } => None,
    })
}

fn weight(change: &Change) -> u64 {
    let bytes = match change {
        Change::Put(record) => record.encoded().len(),
        Change::Delete { key, .. } => key.len(),
    };
    bytes as u64
}

/// An answer that is not the end of its watch; `None` when the stream broke.
fn open_answer(
    source: &Remote,
    here: Revision,
    answer: Result<Option<WatchResponse>, Status>,
) -> Result<Option<WatchResponse>, MigrateError> {
    let refused = |reason: String| {
        MigrateError::Unfit(format!(
            "the {}'s watch was refused: {reason}",
            source.role()
        ))
    };
    match answer {
        Ok(Some(answer)) if answer.compact_revision != 0 => Err(MigrateError::Compacted {
            role: source.role(),
            revision: here.next().to_wire(),
        }),
        Ok(Some(answer)) if answer.canceled => Err(refused(answer.cancel_reason)),
        Ok(Some(answer)) => Ok(Some(answer)),
        Ok(None) => Ok(None),
        Err(status) if is_passing(&status) => Ok(None),
        Err(status) => Err(refused(status.message().to_owned())),
    }
}

/// What the source changed at exactly one revision, its newest when the move began. A store that
/// stands there shows those changes, deletions too, to whoever watches from it.
pub(super) async fn changes_at(
    source: &Remote,
    revision: i64,
) -> Result<Vec<Change>, MigrateError> {
    let before = u64::try_from(revision).map_or(Revision::ZERO, |at| Revision::new(at).prev());
    if before <= Revision::FIRST.prev() {
        // A store that was never written to.
        return Ok(Vec::new());
    }
    let mut answers = source.watch(revision).await?;
    let read = timeout(NEWEST_WITHIN, first_changes(source, before, &mut answers)).await;
    let mut changes = match read {
        Ok(changes) => changes?,
        // A store restored under a raised revision has nothing there.
        Err(_elapsed) => return Ok(Vec::new()),
    };
    changes.retain(|change| change.revision().to_wire() == revision);
    Ok(changes)
}

async fn first_changes(
    source: &Remote,
    before: Revision,
    answers: &mut Streaming<WatchResponse>,
) -> Result<Vec<Change>, MigrateError> {
    let mut group = Group::default();
    loop {
        let Some(answer) = open_answer(source, before, answers.message().await)? else {
            let reason = "the stream ended early; begin again".to_owned();
            return Err(MigrateError::Unfit(reason));
        };
        let changes = group.take(answer, before)?;
        if !changes.is_empty() {
            return Ok(changes);
        }
    }
}
