//! A metastore with an etcd listener that shows one known fault, for the suites that must find it.
//!
//! ```text
//! faulty --data-dir DIR --listen 127.0.0.1:PORT --fault NAME
//! ```
//!
//! The names are those of `sluice_metastore::faults`; `none` is the store as it is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::etcd::{EtcdOptions, Listener};
use sluice_metastore::faults::{Fault, inject};
use sluice_metastore::store::{Store, StoreOptions};
use tokio_util::sync::CancellationToken;

/// Small, so that a second of traffic is some checkpoints.
const CHECKPOINT_BYTES: u64 = 48 << 10;
/// Large enough for a run: the fault that holds a frame back must not meet a second segment.
const SEGMENT_BYTES: u64 = 8 << 20;

fn main() -> ExitCode {
    let outcome = tokio::runtime::Runtime::new()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(run()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faulty: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let (mut dir, mut address) = (None, None);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--data-dir" => dir = Some(PathBuf::from(value)),
            "--listen" => {
                let parsed: SocketAddr = value.parse().map_err(|e| format!("{value}: {e}"))?;
                address = Some(parsed);
            }
            "--fault" if value == "none" => {}
            "--fault" => {
                let fault = Fault::named(&value);
                inject(fault.ok_or_else(|| format!("there is no fault {value}"))?);
            }
            other => return Err(format!("unknown flag {other}")),
        }
    }
    let dir = dir.ok_or("--data-dir is missing")?;
    let address = address.ok_or("--listen is missing")?;
    serve(dir, address).await
}

async fn serve(dir: PathBuf, address: SocketAddr) -> Result<(), String> {
    let engine = EmbeddedOptions {
        segment_bytes: SEGMENT_BYTES,
        spares: 0,
        ..EmbeddedOptions::new(dir)
    };
    let engine = Embedded::open(engine).map_err(|error| error.to_string())?;
    let options = StoreOptions {
        checkpoint_every_bytes: CHECKPOINT_BYTES,
        lease_ttl_min: Duration::from_secs(1),
        ..StoreOptions::default()
    };
    let opened = tokio::task::spawn_blocking(|| Store::open(engine, options)).await;
    let store = opened.map_err(|error| error.to_string())?;
    let store = store.map_err(|error| error.to_string())?;
    let options = EtcdOptions {
        insecure_loopback: true,
        progress_interval: Duration::from_millis(150),
        ..EtcdOptions::new(address)
    };
    let listener = Listener::bind(options).await;
    let listener = listener.map_err(|error| error.to_string())?;
    // It is ended by a kill alone.
    listener.serve(store, CancellationToken::new()).await;
    Ok(())
}
