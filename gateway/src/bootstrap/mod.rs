//! The composition root: loads the files, builds the parts in order, runs them, and ends them in
//! order. The only module that knows all others.
//!
//! ```text
//! start: files -> log -> store, etcd listener -> Kubernetes API -> rules -> listeners -> ready
//! end:   not ready -> listeners drain -> etcd listener -> audit -> store
//! ```
//! Addresses are bound before anything slow is done, so that a taken port is said at once. The etcd
//! listener serves before the rules' clusters are probed: in store mode the apiservers behind the
//! gateway cannot become ready without it.

mod access;
pub mod dev;
mod ending;
mod error;
mod gauges;
mod handover;
mod notify;
mod operate;
mod process;
mod signals;
mod sockets;
mod store;

use std::path::Path;

use sluice_config::{GatewayConfig, KeptError, Loaded};
use sluice_metastore::backup::Schedule;
use sluice_metastore::etcd::{EtcdOptions, EtcdTls};
use sluice_metastore::store::Store;
use tokio::runtime::Handle;

use self::ending::Over;
use self::handover::Taking;
use self::notify::notify;
use self::process::Process;
use self::sockets::Sockets;
use crate::audit::{self, FileOptions, FileSink, Recorder, Sink};
use crate::clock;
use crate::control;
use crate::profile::Profiles;
use crate::telemetry::{LogFormat, TraceOptions, Traces, init_logs};

pub use ending::Ended;
pub use error::BootstrapError;
pub use handover::HandoverError;
pub(crate) use signals::EndSignals;
pub use store::{ServeSpec, StoreSpec, serve_store};

/// Runs the gateway by its process file until a signal ends it. `greeting` is printed once
/// everything listens. With `upgrade` it takes over from the running process, if there is one. Says
/// how it ended.
///
/// # Errors
/// Why it cannot start; nothing is left running then.
pub fn run(
    config: &Path,
    upgrade: bool,
    greeting: Option<String>,
) -> Result<Ended, BootstrapError> {
    // One provider for the process; a second call finds it set.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let loaded = load(config)?;
    let log = &loaded.process.log;
    let format = match log.format {
        sluice_config::LogFormat::Json => LogFormat::Json,
        sluice_config::LogFormat::Text => LogFormat::Text,
    };
    init_logs(log.level.as_str(), format).map_err(BootstrapError::Log)?;
    for expired in control::expired(&loaded.process, clock::wall()) {
        tracing::warn!("{expired}");
    }
    let runtime = gateway_runtime()?;
    let served = runtime.block_on(until_ended(config, loaded, upgrade, greeting));
    ending::shut_down(runtime, &served);
    served
}

/// Starts everything and serves; anew when a process that was to take over has failed after it was
/// given the data directory.
async fn until_ended(
    config: &Path,
    loaded: Loaded,
    upgrade: bool,
    greeting: Option<String>,
) -> Result<Ended, BootstrapError> {
    let mut signals = EndSignals::listen()?;
    let mut upgrades = signals::upgrade()?;
    let (mut taking, given) = match (upgrade, &loaded.process.upgrade_socket) {
        (false, _) => (None, Vec::new()),
        (true, None) => return Err(HandoverError::NoSocket.into()),
        (true, Some(path)) => match Taking::begin(path.as_path()).await? {
            Some((taking, given)) => (Some(taking), given),
            None => (None, Vec::new()),
        },
    };
    let sockets = Sockets::bind(&loaded.process, given)?;
    let mut greeting = greeting;
    let mut now = loaded.clone();
    loop {
        // Boxed: it is large, and moved into the select.
        let starting = Box::pin(Process::start(now, sockets.try_clone()?, taking.take()));
        let process = tokio::select! {
            biased; // nothing is served yet that a signal could tear
            signal = signals.next() => return Ok(Ended::Cut(signal)),
            process = starting => process?,
        };
        notify("READY=1");
        if let Some(greeting) = greeting.take() {
            println!("{greeting}");
        }
        match process.serve(&mut signals, &mut upgrades).await? {
            Over::Ended(ended) => return Ok(ended),
            Over::Again => {
                tracing::error!(
                    "the next process failed with the data directory: this one serves on"
                );
                now = load(config).unwrap_or_else(|_| loaded.clone());
            }
        }
    }
}

/// The runtime of a gateway. With one core there is nobody to share work with: one thread that
/// gives every task its turn gathers more requests for each write, and wakes nobody.
fn gateway_runtime() -> Result<tokio::runtime::Runtime, BootstrapError> {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        return runtime();
    }
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("sluice")
        .build()?)
}

/// Reads the files; where only the rules are faulty and those last in force are kept, these. What is
/// wrong with the rules is said when they are put into force.
fn load(config: &Path) -> Result<Loaded, BootstrapError> {
    let faults = match sluice_config::load(config) {
        Ok(loaded) => return Ok(loaded),
        Err(faults) => faults,
    };
    match sluice_config::load_kept(config) {
        Ok(loaded) => Ok(loaded),
        Err(KeptError::NotKept) => Err(faults.into()),
        Err(also) => Err(BootstrapError::Rules { faults, also }),
    }
}

/// The runtime all tasks of the process share.
fn runtime() -> Result<tokio::runtime::Runtime, BootstrapError> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("sluice")
        .build()?)
}

fn lower_etcd(config: &sluice_config::Etcd) -> EtcdOptions {
    let sluice_config::Etcd {
        address,
        tls,
        insecure_loopback,
        watch_progress_notify_interval,
        access,
    } = config;
    let mut options = EtcdOptions::new(address.value.get());
    options.insecure_loopback = *insecure_loopback;
    options.progress_interval = watch_progress_notify_interval.value.get();
    options.access = access.as_ref().map(|access| access::lower(&access.value));
    options.tls = tls.as_ref().map(|tls| {
        let sluice_config::MutualTls {
            cert_file,
            key_file,
            client_ca_file,
        } = tls;
        EtcdTls {
            cert_file: cert_file.as_path().to_owned(),
            key_file: key_file.as_path().to_owned(),
            client_ca_file: Some(client_ca_file.as_path().to_owned()),
            ..EtcdTls::default()
        }
    });
    options
}

async fn open_store(config: &GatewayConfig) -> Result<Option<Store>, BootstrapError> {
    let Some(metastore) = &config.metastore else {
        return Ok(None);
    };
    let sluice_config::Metastore {
        data_dir,
        quota_bytes,
        memory_limit,
        etcd: _,
        snapshots: _,
    } = &metastore.value;
    let spec = StoreSpec {
        memory_limit_bytes: memory_limit.map(|limit| limit.bytes()),
        ..StoreSpec::new(data_dir.as_path().to_owned(), quota_bytes.bytes())
    };
    let store = tokio::task::spawn_blocking(move || store::open(&spec)).await??;
    tracing::info!(revision = %store.revision(), "the metastore is open");
    Ok(Some(store))
}

/// When and where snapshots are taken, if they are.
fn snapshots(config: &GatewayConfig) -> Option<Schedule> {
    let metastore = &config.metastore.as_ref()?.value;
    let sluice_config::Snapshots {
        dir,
        interval,
        keep,
    } = metastore.snapshots.as_ref()?;
    Some(Schedule {
        dir: dir.as_path().to_owned(),
        interval: interval.value.get(),
        keep: usize::try_from(keep.get().get()).unwrap_or(usize::MAX),
        data_dir: metastore.data_dir.as_path().to_owned(),
    })
}

/// Begins to trace requests, if that is wanted.
fn start_traces(config: &GatewayConfig) -> Result<Option<Traces>, BootstrapError> {
    let Some(tracing) = &config.tracing else {
        return Ok(None);
    };
    let sluice_config::Tracing {
        endpoint,
        ca_file,
        samples_per_million,
    } = tracing;
    let authorities = match ca_file {
        None => Vec::new(),
        Some(path) => {
            let path = path.as_path();
            std::fs::read(path).map_err(|source| BootstrapError::File {
                what: "cannot read the collector's authorities",
                path: path.to_owned(),
                source,
            })?
        }
    };
    let options = TraceOptions {
        endpoint: endpoint.value.clone(),
        authorities,
        samples_per_million: samples_per_million.value,
    };
    Ok(Some(Traces::start(&options, Handle::current())?))
}

fn start_audit(config: &GatewayConfig, profiles: &Profiles) -> Result<Recorder, BootstrapError> {
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(profiles.sink())];
    if let Some(audit) = &config.audit {
        let sluice_config::Audit {
            path,
            max_size,
            max_backups,
        } = audit;
        let options = FileOptions {
            path: path.as_path().to_owned(),
            bytes_max: max_size.value.bytes(),
            backups_max: usize::from(*max_backups),
        };
        let path = options.path.clone();
        let sink = FileSink::open(options).map_err(|source| BootstrapError::File {
            what: "cannot open the audit file",
            path,
            source,
        })?;
        sinks.push(Box::new(sink));
    }
    Ok(audit::spawn(sinks)?)
}
