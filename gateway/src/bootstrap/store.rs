//! The store in this process: opened from its directory, and served to kube-apiservers.

use std::path::PathBuf;
use std::sync::Arc;

use sluice_metastore::engine::Engine;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::etcd::{EtcdOptions, Listener};
use sluice_metastore::store::{Store, StoreOptions};
use tokio_util::sync::CancellationToken;

use super::{BootstrapError, runtime, signals};

/// The segment being written is never given back: were it as large as the quota, a store that has
/// filled it could never get below again.
const SEGMENTS_OF_QUOTA: u64 = 8;

/// Where the store is and how large it may become.
#[derive(Clone, Debug)]
pub struct StoreSpec {
    /// Its directory, made when absent.
    pub dir: PathBuf,
    /// Bytes on disk above which puts are refused.
    pub quota_bytes: u64,
}

/// Opens the store: takes its lock and reads its log back. Blocks.
///
/// # Errors
/// When the directory is another's, cannot be read, or is damaged; each text says what to do.
pub(super) fn open(spec: &StoreSpec) -> Result<Store, BootstrapError> {
    let mut engine = EmbeddedOptions::new(&spec.dir);
    engine.segment_bytes = engine
        .segment_bytes
        .min(spec.quota_bytes / SEGMENTS_OF_QUOTA);
    let engine: Arc<dyn Engine> = Embedded::open(engine)?;
    let options = StoreOptions {
        holder: format!("sluice, process {}", std::process::id()),
        quota_bytes: spec.quota_bytes,
        ..StoreOptions::default()
    };
    Ok(Store::open(engine, options)?)
}

/// Serves the store alone, until a signal to end.
///
/// # Errors
/// When the address or the store cannot be had.
pub fn serve_store(spec: &StoreSpec, options: EtcdOptions) -> Result<(), BootstrapError> {
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        // First, so that a taken port is said before a long recovery.
        let listener = Listener::bind(options).await?;
        let opening = spec.clone();
        let store = tokio::task::spawn_blocking(move || open(&opening)).await??;
        let address = listener.local_addr();
        tracing::info!(%address, revision = %store.revision(), "ready to serve client requests");
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(listener.serve(store.clone(), shutdown.clone()));
        signals::end().await?;
        shutdown.cancel();
        serving.await?;
        store.close().await;
        Ok(())
    });
    // Blocking work that is still out must not hold the end up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    served
}
