//! From a live etcd into a data directory, revisions and all.
//!
//! ```text
//! scan (R, into the folder) -> import (all or nothing) -> follow (R+1 ..) -> compare -> folder goes
//! ```
//!
//! Each phase is noted before it begins, so a kill finds the phase to go on with. A source that
//! compacts R away before it is read makes the scan begin anew at its newest revision: what was read
//! of R is of no use then.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_metastore::engine::Engine;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::events::Change;
use sluice_metastore::follow::Follower;
use sluice_metastore::import::{Import, Standing as ImportStanding};
use sluice_metastore::store::{Store, StoreOptions};
use sluice_metastore::{Error, LeaseId, Record, Revision};
use tokio_util::sync::CancellationToken;

use super::compare::{Compare, Equal, Strict};
use super::lease;
use super::remote::{Remote, Standing};
use super::report::Report;
use super::side::{Item, Side, Span};
use super::spool::Pages;
use super::tail::{Tail, Until, changes_at};
use super::walk::{Walk, weight};
use super::work::{Phase, State, Work};
use super::{Access, Done, MigrateError};

/// A source that compacts faster than it can be read needs the operator, not another try.
const SCANS: u32 = 5;
/// Keys between two reports of an import.
const REPORT_EVERY: u64 = 1000;

/// Whether and how the source's writes are carried over after the scan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Follow {
    /// End once nothing was written for this long; else only when told to.
    pub until_idle: Option<Duration>,
}

/// What to move, and where to.
#[derive(Clone, Debug)]
pub struct IntoDirectory {
    /// The source.
    pub from: Access,
    /// The data directory to make.
    pub dir: PathBuf,
    /// Whether the source's writes are carried over until it is stopped.
    pub follow: Option<Follow>,
    /// Whether both sides are read and compared at the end.
    pub compare: bool,
    /// Refuse to begin one: only go on.
    pub resume_only: bool,
}

impl IntoDirectory {
    /// Does it. `stop` ends following, or anything before that.
    ///
    /// # Errors
    /// See [`MigrateError`]; what was done so far is kept for the next try.
    pub async fn run(
        self,
        stop: CancellationToken,
        report: Arc<dyn Report>,
    ) -> Result<Done, MigrateError> {
        let (source, standing) = Remote::connect(&self.from, "source", Arc::clone(&report)).await?;
        let work = Work::take(&self.dir)?;
        let state = match self.begin(&work, standing, &*report) {
            Ok(state) => state,
            Err(error) => {
                if matches!(work.state(), Ok(None)) {
                    work.remove()?;
                }
                return Err(error);
            }
        };
        let mut filling = Filling {
            job: &self,
            source,
            report,
            work,
            state,
            is_made_here: false,
        };
        filling.fill(&stop).await?;
        let compared = filling.compare().await?;
        let revision = filling.state.revision;
        filling.work.remove()?;
        Ok(Done {
            source_revision: revision,
            revision,
            compared,
        })
    }

    /// Goes on with what was noted, or notes a beginning.
    fn begin(
        &self,
        work: &Work,
        standing: Standing,
        report: &dyn Report,
    ) -> Result<State, MigrateError> {
        let fresh = State::begin(standing.cluster, standing.revision);
        let dir = self.dir.display();
        if let Some(state) = work.state()? {
            if state.cluster != fresh.cluster {
                return Err(MigrateError::NotEmpty(format!(
                    "{dir} is being filled from cluster {}, and this source is cluster {}: name the \
                     same source, or remove {dir} and {dir}.migrate",
                    state.cluster, fresh.cluster
                )));
            }
            let revision = state.revision;
            report.say(&format!(
                "going on with the unfinished move at revision {revision}"
            ));
            return Ok(state);
        }
        if self.resume_only {
            return Err(MigrateError::NotEmpty(format!(
                "there is no unfinished move into {dir} to go on with"
            )));
        }
        if !is_empty(&self.dir)? {
            return Err(MigrateError::NotEmpty(format!(
                "{dir} is not empty: name an empty directory or a new one"
            )));
        }
        work.note(&fresh)?;
        Ok(fresh)
    }
}

fn is_empty(dir: &Path) -> Result<bool, MigrateError> {
    match std::fs::read_dir(dir) {
        Ok(mut names) => Ok(names.next().is_none()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(MigrateError::io("read", dir, e)),
    }
}

struct Filling<'a> {
    job: &'a IntoDirectory,
    source: Remote,
    report: Arc<dyn Report>,
    work: Work,
    state: State,
    /// This process made the data directory, so nobody else can have written to it.
    is_made_here: bool,
}

impl Filling<'_> {
    /// All phases but the last, with as many scans as it takes.
    async fn fill(&mut self, stop: &CancellationToken) -> Result<(), MigrateError> {
        for scan in 1.. {
            let lost = match self.phases(stop).await {
                Err(error @ MigrateError::Compacted { .. }) if scan < SCANS => error,
                other => return other,
            };
            if self.state.phase == Phase::Follow && !self.is_made_here {
                let dir = self.job.dir.display();
                return Err(MigrateError::Unfit(format!(
                    "{lost}. What {dir} holds is whole as of revision {} and can not be carried on: \
                     use it as it is, or remove it and {dir}.migrate and begin anew",
                    self.state.revision
                )));
            }
            let standing = self.source.standing().await?;
            self.report.say(&format!(
                "{lost}; scanning anew at revision {}",
                standing.revision
            ));
            self.state = State::begin(standing.cluster, standing.revision);
            self.work.note(&self.state)?;
            self.work.forget_spool()?;
            if self.is_made_here {
                remove(&self.job.dir)?;
                self.is_made_here = false;
            }
        }
        Ok(())
    }

    async fn phases(&mut self, stop: &CancellationToken) -> Result<(), MigrateError> {
        if self.state.phase == Phase::Scan {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(MigrateError::Interrupted),
                scanned = self.scan() => scanned?,
            }
            self.state.phase = Phase::Import;
            self.work.note(&self.state)?;
        }
        if self.state.phase == Phase::Import {
            self.import().await?;
            self.state.phase = Phase::Follow;
            self.work.note(&self.state)?;
            self.work.forget_spool()?;
        }
        let mut follower = self.follower()?;
        if let Some(follow) = self.job.follow {
            let until = Until {
                stop: stop.clone(),
                idle: follow.until_idle,
            };
            let tail = Tail::new(&self.source, &mut follower, &*self.report);
            tail.run(&until).await?;
        }
        self.state.revision = follower.revision().to_wire();
        drop(follower);
        // For the comparison alone: nothing is lost when this is not noted.
        self.work.note(&self.state)
    }

    /// Reads every key at the revision, from where an earlier process left off.
    async fn scan(&self) -> Result<(), MigrateError> {
        let side = Side::Live(self.source.clone());
        let at = self.state.revision;
        let total = side.count(&[Span::all()], Some(at)).await?;
        let mut spool = self.work.spool()?;
        self.report.begin("reading the source", "keys", Some(total));
        let left = match &spool.last {
            Some(last) => Span::all().after(last),
            None => Span::all(),
        };
        let mut walk = Walk::begin(side, vec![left], Some(at), None);
        while let Some(page) = walk.page().await? {
            tokio::task::block_in_place(|| spool.append(&page))?;
            self.report.at(spool.keys, spool.bytes);
        }
        tokio::task::block_in_place(|| spool.sync())?;
        self.report.end();
        if spool.keys != total {
            let read = spool.keys;
            return Err(MigrateError::Unfit(format!(
                "the source counts {total} keys at revision {at} and handed out {read}: ask it \
                 again, or another member"
            )));
        }
        Ok(())
    }

    async fn import(&mut self) -> Result<(), MigrateError> {
        if self.is_imported()? {
            return Ok(());
        }
        let revision = self.state.revision;
        let newest = changes_at(&self.source, revision).await?;
        let leases = lease::all(&self.source).await?;
        let pages = self.work.pages()?;
        let (dir, report) = (self.job.dir.clone(), Arc::clone(&self.report));
        let making = move || import(&dir, revision, pages, &newest, &leases, &*report);
        let made = tokio::task::spawn_blocking(making).await;
        made.map_err(|e| MigrateError::Unfit(format!("the import broke off: {e}")))??;
        self.is_made_here = true;
        Ok(())
    }

    /// Whether an earlier process was killed between the import's end and its note.
    fn is_imported(&self) -> Result<bool, MigrateError> {
        let dir = &self.job.dir;
        if is_empty(dir)? {
            return Ok(false);
        }
        match self.follower() {
            Ok(follower) if follower.revision() == Revision::ZERO => {
                drop(follower);
                remove(dir)?;
                Ok(false)
            }
            Ok(follower) if follower.revision().to_wire() == self.state.revision => Ok(true),
            Ok(_) => Err(MigrateError::NotEmpty(format!(
                "{} was written to by somebody else: remove it and {0}.migrate and begin anew",
                dir.display()
            ))),
            // It was being filled: the next import begins anew in the same place.
            Err(MigrateError::Store(Error::Import { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn follower(&self) -> Result<Follower, MigrateError> {
        let engine: Arc<dyn Engine> = Embedded::open(EmbeddedOptions::new(&self.job.dir))?;
        Ok(Follower::open(engine, "sluice metastore migrate")?)
    }

    async fn compare(&self) -> Result<Option<Equal>, MigrateError> {
        if !self.job.compare {
            return Ok(None);
        }
        let at = self.state.revision;
        let store = open(self.job.dir.clone()).await?;
        let there = Side::Live(self.source.clone());
        let here = Side::Dir(store.clone());
        let all = vec![Span::all()];
        let total = here.count(&all, Some(at)).await?;
        self.report.begin("comparing both", "keys", Some(total));
        let mut compare = Compare::new(Strict::Exact, &*self.report);
        let left = Walk::begin(there, all.clone(), Some(at), None);
        let right = Walk::begin(here, all, Some(at), None);
        let read = compare.run(left, right).await;
        store.close().await;
        self.report.end();
        match read {
            Ok(_) => compare.verdict(|_| true).map(Some),
            Err(error @ MigrateError::Compacted { .. }) => Err(MigrateError::Unfit(format!(
                "{error}. The data directory is whole and was not compared: do the same again with \
                 --no-verify to take it as it is, or remove it and begin anew"
            ))),
            Err(error) => Err(error),
        }
    }
}

/// Opens a data directory to read it: its clock stands still, so no lease ends in it.
pub(super) async fn open(dir: PathBuf) -> Result<Store, MigrateError> {
    let opening = tokio::task::spawn_blocking(move || {
        let engine: Arc<dyn Engine> = Embedded::open(EmbeddedOptions::new(&dir))?;
        let now = Instant::now();
        let options = StoreOptions {
            holder: "sluice metastore migrate".to_owned(),
            now: Arc::new(move || now),
            ..StoreOptions::default()
        };
        Store::open(engine, options)
    });
    let opened = opening.await;
    Ok(opened.map_err(|e| MigrateError::Unfit(format!("the store cannot be opened: {e}")))??)
}

fn remove(dir: &Path) -> Result<(), MigrateError> {
    std::fs::remove_dir_all(dir).map_err(|e| MigrateError::io("remove", dir, e))
}

/// Makes the data directory of what was read; blocks.
fn import(
    dir: &Path,
    revision: i64,
    mut pages: Pages,
    newest: &[Change],
    leases: &[(LeaseId, Duration)],
    report: &dyn Report,
) -> Result<(), MigrateError> {
    let at = Revision::from_wire(revision).unwrap_or(Revision::FIRST);
    let standing = ImportStanding {
        revision: at,
        compacted: at,
        next_lease: 1,
    };
    report.begin("making the data directory", "keys", None);
    let mut import = Import::begin(dir, "sluice metastore migrate", standing)?;
    let mut deleted: BTreeMap<&Bytes, Revision> = BTreeMap::new();
    for change in newest {
        if let Change::Delete { key, revision } = change {
            deleted.insert(key, *revision);
        }
    }
    let mut hung_on = HashSet::new();
    let (mut keys, mut bytes) = (0, 0);
    while let Some(page) = pages.next_page()? {
        for item in &page {
            while let Some(first) = deleted.first_entry()
                && **first.key() < item.key
            {
                import.delete(first.key(), *first.get())?;
                first.remove();
            }
            import.put(&record(item))?;
            hung_on.insert(item.lease);
            keys += 1;
            bytes += weight(item) as u64;
            if keys % REPORT_EVERY == 0 {
                report.at(keys, bytes);
            }
        }
    }
    for (key, revision) in deleted {
        import.delete(key, revision)?;
    }
    let changed: Vec<&[u8]> = newest.iter().map(Change::key).collect();
    if changed.len() > 1 {
        import.order(at, &changed)?;
    }
    for (id, left) in leases {
        hung_on.remove(&id.0);
        import.lease(*id, *left)?;
    }
    hung_on.remove(&0);
    for id in hung_on {
        import.lease(LeaseId(id), lease::ENDED)?;
    }
    import.finish()?;
    report.at(keys, bytes);
    report.end();
    Ok(())
}

fn record(item: &Item) -> Record {
    let number = |field: i64| u64::try_from(field).unwrap_or(0);
    Record::new(
        &item.key,
        &item.value,
        Revision::new(number(item.create_revision)),
        Revision::new(number(item.mod_revision)),
        number(item.version),
        LeaseId(item.lease),
    )
}
