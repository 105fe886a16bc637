//! The store in this process: opened from its directory, and served to kube-apiservers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_metastore::backup::{Schedule, schedule};
use sluice_metastore::compactor::{self, Retention};
use sluice_metastore::engine::Engine;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::etcd::{EtcdOptions, Listener};
use sluice_metastore::store::{Store, StoreOptions};
use tokio_util::sync::CancellationToken;

use super::access::AuditLines;
use super::ending::{self, Ended};
use super::{BootstrapError, EndSignals, runtime};

/// The segment being written is never given back: were it as large as the quota, a store that has
/// filled it could never get below again, and as large as the disk, it would never fit.
const SEGMENTS_AT_LEAST: u64 = 8;

/// What is set aside for deletes and compaction on a full disk: tens of thousands of them.
const RESERVE_BYTES: u64 = 4 << 20;

/// Where the store is and how large it may become.
#[derive(Clone, Debug)]
pub struct StoreSpec {
    /// Its directory, made when absent.
    pub dir: PathBuf,
    /// Bytes on disk above which puts are refused.
    pub quota_bytes: u64,
    /// Bytes of values that may stay in memory; `None` is all.
    pub memory_limit_bytes: Option<u64>,
    /// Operations a transaction may have.
    pub txn_ops_max: usize,
    /// Bytes a request may have.
    pub request_bytes_max: usize,
}

impl StoreSpec {
    /// A store of this size there, with etcd's own limits of requests.
    #[must_use]
    pub fn new(dir: PathBuf, quota_bytes: u64) -> Self {
        let defaults = StoreOptions::default();
        StoreSpec {
            dir,
            quota_bytes,
            memory_limit_bytes: None,
            txn_ops_max: defaults.txn_ops_max,
            request_bytes_max: defaults.request_bytes_max,
        }
    }
}

/// A store that is served by itself.
#[derive(Clone, Debug)]
pub struct ServeSpec {
    /// The store.
    pub store: StoreSpec,
    /// Its listener.
    pub etcd: EtcdOptions,
    /// When and where snapshots are taken, if they are.
    pub snapshots: Option<Schedule>,
    /// What is kept of history; `None` keeps all until somebody compacts.
    pub retention: Option<Retention>,
}

/// What a segment may have of what is wanted, so that some fit.
fn segment_bytes(wanted: u64, quota: u64, disk: Option<u64>) -> u64 {
    let room = disk.map_or(quota, |disk| disk.min(quota));
    wanted.min(room / SEGMENTS_AT_LEAST)
}

/// Size of the disk that a directory is on or will be on, where the file system says.
fn disk_bytes(dir: &Path) -> Option<u64> {
    let dir = std::path::absolute(dir).ok()?;
    let there = dir.ancestors().find(|dir| dir.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(disk.f_blocks.saturating_mul(disk.f_frsize)).filter(|bytes| *bytes > 0)
}

/// Opens the store: takes its lock and reads its log back. Blocks.
///
/// # Errors
/// When the directory is another's, cannot be read, or is damaged; each text says what to do.
pub(super) fn open(spec: &StoreSpec) -> Result<Store, BootstrapError> {
    let mut engine = EmbeddedOptions::new(&spec.dir);
    let disk = disk_bytes(&spec.dir);
    engine.segment_bytes = segment_bytes(engine.segment_bytes, spec.quota_bytes, disk);
    engine.reserve_bytes = RESERVE_BYTES.min(engine.segment_bytes);
    let engine: Arc<dyn Engine> = Embedded::open(engine)?;
    let options = StoreOptions {
        holder: format!("sluice, process {}", std::process::id()),
        quota_bytes: spec.quota_bytes,
        txn_ops_max: spec.txn_ops_max,
        request_bytes_max: spec.request_bytes_max,
        // More than can be addressed is no limit.
        memory_limit_bytes: spec
            .memory_limit_bytes
            .and_then(|limit| usize::try_from(limit).ok()),
        ..StoreOptions::default()
    };
    Ok(Store::open(engine, options)?)
}

/// Serves the store alone, until a signal to end; a second one ends it at once.
///
/// # Errors
/// When the address or the store cannot be had.
pub fn serve_store(spec: ServeSpec) -> Result<Ended, BootstrapError> {
    let ServeSpec {
        store: spec,
        etcd: options,
        snapshots,
        retention,
    } = spec;
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        // First, so that a taken port is said before a long recovery.
        let listener = Listener::bind(options).await?;
        let listener = listener.with_access_log(Arc::new(AuditLines));
        let store = tokio::task::spawn_blocking(move || open(&spec)).await??;
        let addresses = listener.local_addrs();
        tracing::info!(?addresses, revision = %store.revision(), "ready to serve client requests");
        let shutdown = CancellationToken::new();
        if let Some(retention) = retention {
            let stop = shutdown.child_token();
            tokio::spawn(compactor::run(store.clone(), retention, stop));
        }
        if let Some(snapshots) = snapshots {
            let stop = shutdown.child_token();
            tokio::spawn(schedule::run(store.clone(), snapshots, stop));
        }
        let mut signals = EndSignals::listen()?;
        let serving = tokio::spawn(listener.serve(store.clone(), shutdown.clone()));
        signals.next().await;
        shutdown.cancel();
        tokio::select! {
            biased; // a second wish comes before what it cuts short
            signal = signals.next() => return Ok(Ended::Cut(signal)),
            served = serving => served?,
        }
        store.close().await;
        Ok(Ended::Drained)
    });
    ending::shut_down(runtime, &served);
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_fit_a_small_disk_and_a_small_quota() {
        const MIB: u64 = 1 << 20;
        assert_eq!(segment_bytes(64 * MIB, 8192 * MIB, Some(40 * MIB)), 5 * MIB);
        assert_eq!(segment_bytes(64 * MIB, 80 * MIB, None), 10 * MIB);
        assert_eq!(segment_bytes(64 * MIB, u64::MAX, Some(u64::MAX)), 64 * MIB);
    }

    #[test]
    fn a_disk_is_known_before_the_directory_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let there = disk_bytes(dir.path());
        assert!(there.is_some_and(|bytes| bytes > 0), "{there:?}");
        assert_eq!(disk_bytes(&dir.path().join("not/yet")), there);
        assert!(disk_bytes(Path::new("relative")).is_some());
    }
}
