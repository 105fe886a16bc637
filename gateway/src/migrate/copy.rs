//! Into a live etcd, by its API: makes the target's prefixes equal to the source's.
//!
//! ```text
//! marker -> raise the revision -> walk both sides, write what differs -> compare -> marker goes
//! ```
//!
//! It looks before it writes, so beginning again after a kill costs reads only, a source that
//! compacted its revision away is read again at a newer one, and a second run just before the
//! cut-over writes what changed since the first.
//!
//! A key on a lease that has ended at the source is left out: it is gone there by now.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use pb::request_op::Request;

use super::compare::{Compare, Equal, Strict};
use super::error::shown;
use super::remote::Remote;
use super::report::Report;
use super::side::{Item, Side, Span, merged};
use super::target::{self, Marker, OWN};
use super::walk::{Walk, weight};
use super::{Access, Done, MigrateError, exact, pad};

/// etcd's default limit of a transaction is 128 operations.
const OPS: usize = 100;
/// And of a request 1.5 MiB; a larger value goes alone.
const OPS_BYTES: usize = 1 << 20;
/// Transactions in flight.
const AT_ONCE: usize = 8;
/// A source that compacts faster than it can be read needs the operator, not another try.
const PASSES: u32 = 5;

/// Where a copy comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A live etcd or Sluice.
    Live(Access),
    /// A data directory that nobody serves.
    Directory(PathBuf),
}

/// What to copy, and where to.
#[derive(Clone, Debug)]
pub struct IntoLive {
    /// The source.
    pub from: Origin,
    /// The target.
    pub to: Access,
    /// Which keys; empty is all of them.
    pub prefixes: Vec<Bytes>,
    /// Allow any number of writes that raise the revision.
    pub pad: bool,
    /// Allow the target to hold keys there: those that the source does not have are deleted.
    pub overwrite: bool,
    /// Whether both sides are read and compared at the end.
    pub compare: bool,
    /// Refuse to begin one: only go on.
    pub resume_only: bool,
}

impl IntoLive {
    /// Does it. `stop` ends it between two steps.
    ///
    /// # Errors
    /// See [`MigrateError`]; what was written stays, and the next try goes on from it.
    pub async fn run(
        self,
        stop: CancellationToken,
        report: Arc<dyn Report>,
    ) -> Result<Done, MigrateError> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(MigrateError::Interrupted),
            done = self.copy(report) => done,
        }
    }

    async fn copy(&self, report: Arc<dyn Report>) -> Result<Done, MigrateError> {
        let (target, _) = Remote::connect(&self.to, "target", Arc::clone(&report)).await?;
        let (source, name) = self.source(Arc::clone(&report)).await?;
        let spans = match self.prefixes.as_slice() {
            [] => vec![Span::all()],
            some => merged(some.iter().map(|prefix| Span::prefix(prefix)).collect()),
        };
        let prefixes = self.prefixes.iter().map(|prefix| shown(prefix)).collect();
        let marker = Marker::new(name, prefixes);
        self.begin(&target, &marker, &spans, &*report).await?;
        if let Side::Live(remote) = &source
            && target::marker(remote).await? == Some(marker)
        {
            target::unmark(&target).await?;
            let reason = "--from and --to are the same store".to_owned();
            return Err(MigrateError::Usage(reason));
        }
        let mut pass = 1;
        let (at, compared) = loop {
            match self.pass(&source, &target, &spans, &report).await {
                Err(error @ MigrateError::Compacted { .. }) if pass < PASSES => {
                    pass += 1;
                    report.say(&format!("{error}; going on at its newest revision"));
                }
                other => break other?,
            }
        };
        let revision = target::unmark(&target).await?;
        if let Side::Dir(store) = source {
            store.close().await;
        }
        Ok(Done {
            source_revision: at,
            revision,
            compared,
        })
    }

    async fn source(&self, report: Arc<dyn Report>) -> Result<(Side, String), MigrateError> {
        match &self.from {
            Origin::Live(access) => {
                let (source, standing) = Remote::connect(access, "source", report).await?;
                Ok((Side::Live(source), format!("{:x}", standing.cluster)))
            }
            Origin::Directory(dir) => {
                let place = dir.canonicalize();
                let place = place.map_err(|e| MigrateError::io("open", dir, e))?;
                let name = place.display().to_string();
                Ok((Side::Dir(exact::open(place).await?), name))
            }
        }
    }

    /// Sees that the target may be written to, and marks it.
    async fn begin(
        &self,
        target: &Remote,
        marker: &Marker,
        spans: &[Span],
        report: &dyn Report,
    ) -> Result<(), MigrateError> {
        match target::marker(target).await? {
            Some(found) if found.is_of(marker) => {
                report.say("going on with the unfinished copy");
                return target::mark(target, marker).await;
            }
            Some(found) if !self.overwrite => {
                return Err(MigrateError::NotEmpty(format!(
                    "the target holds an unfinished copy of {} from {}: finish that one, or allow \
                     what it holds to be overwritten with --overwrite",
                    all_or(&found.prefixes),
                    found.source
                )));
            }
            _ if self.resume_only => {
                return Err(MigrateError::NotEmpty(
                    "the target holds no unfinished copy of this source to go on with".to_owned(),
                ));
            }
            _ => {}
        }
        let held = Side::Live(target.clone()).count(spans, None).await?;
        if held > 0 && !self.overwrite {
            return Err(MigrateError::NotEmpty(format!(
                "the target holds {held} keys of {}: allow them to be overwritten, and what the \
                 source does not have to be deleted, with --overwrite",
                all_or(&marker.prefixes)
            )));
        }
        target::mark(target, marker).await
    }

    /// Reads the source at its newest revision and makes the target equal to it.
    async fn pass(
        &self,
        source: &Side,
        target: &Remote,
        spans: &[Span],
        report: &Arc<dyn Report>,
    ) -> Result<(i64, Option<Equal>), MigrateError> {
        let at = match source {
            Side::Live(remote) => remote.standing().await?.revision,
            Side::Dir(store) => store.revision().to_wire(),
        };
        pad::raise(target, at, self.pad, &**report).await?;
        let total = source.count(spans, Some(at)).await?;
        report.begin("copying", "keys", Some(total));
        let mut copying = Copying {
            source,
            target,
            report: &**report,
            leases: HashMap::new(),
            batch: Batch::default(),
            writes: JoinSet::new(),
            done: Counts::default(),
        };
        copying.run(spans, at).await?;
        let Counts {
            put,
            deleted,
            same,
            ended,
            ..
        } = copying.done;
        report.end();
        report.say(&format!(
            "at the source's revision {at}: {put} keys written, {same} were there already, \
             {deleted} deleted that the source does not have, {ended} left out whose lease ended"
        ));
        if !self.compare {
            return Ok((at, None));
        }
        report.begin("comparing both", "keys", Some(total));
        let there = Side::Live(target.clone());
        let left = Walk::begin(source.clone(), spans.to_vec(), Some(at), Some(OWN));
        let now = target.standing().await?.revision;
        let right = Walk::begin(there, spans.to_vec(), Some(now), Some(OWN));
        let mut compare = Compare::new(Strict::Values, &**report);
        let missing = compare.run(left, right).await?;
        report.end();
        let alive = if missing.is_empty() {
            Vec::new()
        } else {
            target.leases().await?
        };
        let equal = compare.verdict(|lease| alive.contains(&lease))?;
        Ok((at, Some(equal)))
    }
}

fn all_or(prefixes: &[String]) -> String {
    match prefixes {
        [] => "everything".to_owned(),
        some => some.join(", "),
    }
}

/// What was done with the keys.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    put: u64,
    deleted: u64,
    same: u64,
    ended: u64,
    bytes: u64,
}

/// Operations of a transaction being filled.
#[derive(Debug, Default)]
struct Batch {
    ops: Vec<pb::RequestOp>,
    bytes: usize,
    /// The first key in it, for whoever must be told that it was refused.
    first: Bytes,
}

struct Copying<'a> {
    source: &'a Side,
    target: &'a Remote,
    report: &'a dyn Report,
    /// Leases seen, and whether they live: those are granted in the target then.
    leases: HashMap<i64, bool>,
    batch: Batch,
    writes: JoinSet<Result<(), MigrateError>>,
    done: Counts,
}

impl Copying<'_> {
    async fn run(&mut self, spans: &[Span], at: i64) -> Result<(), MigrateError> {
        let there = Side::Live(self.target.clone());
        let mut left = Walk::begin(self.source.clone(), spans.to_vec(), Some(at), Some(OWN));
        let mut right = Walk::begin(there, spans.to_vec(), None, Some(OWN));
        let (mut source, mut target) = (left.next().await?, right.next().await?);
        let mut seen = 0_u64;
        while source.is_some() || target.is_some() {
            let order = match (&source, &target) {
                (Some(one), Some(two)) => one.key.cmp(&two.key),
                (Some(_), None) => std::cmp::Ordering::Less,
                _ => std::cmp::Ordering::Greater,
            };
            let wanted = if order.is_le() { source.take() } else { None };
            let held = if order.is_ge() { target.take() } else { None };
            if wanted.is_some() {
                source = left.next().await?;
                seen += 1;
                self.report.at(seen, self.done.bytes);
            }
            if held.is_some() {
                target = right.next().await?;
            }
            self.settle(wanted, held).await?;
        }
        self.flush().await?;
        while let Some(written) = self.writes.join_next().await {
            landed(written)?;
        }
        Ok(())
    }

    /// Makes the target's key what the source's is.
    async fn settle(
        &mut self,
        wanted: Option<Item>,
        held: Option<Item>,
    ) -> Result<(), MigrateError> {
        let wanted = match wanted {
            Some(item) if !self.lives(item.lease).await? => {
                self.done.ended += 1;
                None
            }
            other => other,
        };
        match (wanted, held) {
            (Some(item), Some(held)) if held.value == item.value && held.lease == item.lease => {
                self.done.same += 1;
                Ok(())
            }
            (Some(item), _) => {
                self.done.put += 1;
                self.done.bytes += weight(&item) as u64;
                let bytes = weight(&item);
                let put = pb::PutRequest {
                    key: item.key.clone(),
                    value: item.value,
                    lease: item.lease,
                    ..Default::default()
                };
                self.add(item.key, Request::RequestPut(put), bytes).await
            }
            (None, Some(held)) => {
                self.done.deleted += 1;
                let delete = pb::DeleteRangeRequest {
                    key: held.key.clone(),
                    ..Default::default()
                };
                let bytes = held.key.len();
                self.add(held.key, Request::RequestDeleteRange(delete), bytes)
                    .await
            }
            (None, None) => Ok(()),
        }
    }

    /// Whether a key on this lease is still there; the lease is then granted in the target.
    async fn lives(&mut self, lease: i64) -> Result<bool, MigrateError> {
        if lease == 0 {
            return Ok(true);
        }
        if let Some(lives) = self.leases.get(&lease) {
            return Ok(*lives);
        }
        let left = self.source.lease_left(lease).await?;
        if let Some(left) = left {
            self.target.grant(lease, left).await?;
        }
        self.leases.insert(lease, left.is_some());
        Ok(left.is_some())
    }

    async fn add(
        &mut self,
        key: Bytes,
        request: Request,
        bytes: usize,
    ) -> Result<(), MigrateError> {
        if !self.batch.ops.is_empty() && self.batch.bytes + bytes > OPS_BYTES {
            self.flush().await?;
        }
        if self.batch.ops.is_empty() {
            self.batch.first = key;
        }
        self.batch.ops.push(target::op(request));
        self.batch.bytes += bytes;
        if self.batch.ops.len() >= OPS {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what is filled; waits while too much is in flight.
    async fn flush(&mut self) -> Result<(), MigrateError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.ops.is_empty() {
            return Ok(());
        }
        while self.writes.len() >= AT_ONCE
            && let Some(written) = self.writes.join_next().await
        {
            landed(written)?;
        }
        let target = self.target.clone();
        self.writes.spawn(async move {
            let Batch { ops, first, .. } = batch;
            let count = ops.len();
            match target.txn(target::all(ops)).await {
                Ok(_) => Ok(()),
                Err(MigrateError::Refused { reason, .. }) => Err(MigrateError::Unfit(format!(
                    "the target refused a write of {count} keys from {} on: {reason}",
                    shown(&first)
                ))),
                Err(error) => Err(error),
            }
        });
        Ok(())
    }
}

fn landed(
    written: Result<Result<(), MigrateError>, tokio::task::JoinError>,
) -> Result<(), MigrateError> {
    written.map_err(|e| MigrateError::Unfit(format!("a write broke off: {e}")))?
}
