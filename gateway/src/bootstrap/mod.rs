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
mod operate;
mod signals;
mod store;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::{GatewayConfig, Loaded};
use sluice_metastore::backup::{Schedule, schedule};
use sluice_metastore::etcd::{EtcdOptions, EtcdTls};
use sluice_metastore::store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::api::{ApiOptions, ApiServer};
use crate::audit::{self, FileOptions, FileSink, Recorder, Sink};
use crate::clock;
use crate::control::{self, Control, ControlHandle, ControlOptions};
use crate::drain::Drain;
use crate::flow::LiveState;
use crate::listener::{BindError, Listener, ListenerOptions};
use crate::networks::Networks;
use crate::pipeline::Gateway;
use crate::profile::Profiles;
use crate::snapshot::Target;
use crate::telemetry::{LogFormat, Telemetry, init_logs};

pub use ending::Ended;
pub use error::BootstrapError;
pub(crate) use signals::EndSignals;
pub use store::{ServeSpec, StoreSpec, serve_store};

/// How often keys nobody uses are swept from limits and breakers.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Runs the gateway by its process file until a signal ends it. `greeting` is printed once
/// everything listens. Says how it ended.
///
/// # Errors
/// Why it cannot start; nothing is left running then.
pub fn run(config: &Path, greeting: Option<String>) -> Result<Ended, BootstrapError> {
    // One provider for the process; a second call finds it set.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let loaded = sluice_config::load(config)?;
    let log = &loaded.process.log;
    let format = match log.format {
        sluice_config::LogFormat::Json => LogFormat::Json,
        sluice_config::LogFormat::Text => LogFormat::Text,
    };
    init_logs(log.level.as_str(), format).map_err(BootstrapError::Log)?;
    for expired in control::expired(&loaded.process, clock::wall()) {
        tracing::warn!("{expired}");
    }
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let mut signals = EndSignals::listen()?;
        let process = tokio::select! {
            biased; // nothing is served yet that a signal could tear
            signal = signals.next() => return Ok(Ended::Cut(signal)),
            process = Process::start(loaded) => process?,
        };
        if let Some(greeting) = greeting {
            println!("{greeting}");
        }
        process.serve(&mut signals).await
    });
    ending::shut_down(runtime, &served);
    served
}

/// The runtime all tasks of the process share.
fn runtime() -> Result<tokio::runtime::Runtime, BootstrapError> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("sluice")
        .build()?)
}

/// Everything that runs.
struct Process {
    control: ControlHandle,
    drain: Drain,
    pace: ending::Pace,
    front: JoinHandle<()>,
    admin: Option<JoinHandle<()>>,
    stop_admin: CancellationToken,
    etcd: Option<JoinHandle<()>>,
    stop_etcd: CancellationToken,
    store: Option<Store>,
    recorder: Recorder,
    telemetry: Arc<Telemetry>,
    /// An operator's wish, by the admin API.
    asked_to_end: CancellationToken,
    /// Ends what runs beside the listeners.
    stop_rest: CancellationToken,
}

impl Process {
    async fn start(loaded: Loaded) -> Result<Self, BootstrapError> {
        let config = loaded.process.value.clone();
        let sockets = Sockets::bind(&config).await?;
        let profiles = Profiles::new();
        let recorder = start_audit(&config, &profiles)?;
        let store = open_store(&config).await?;
        let stop_etcd = CancellationToken::new();
        let etcd = match (&store, sockets.etcd) {
            (Some(store), Some(listener)) => {
                let log = access::Audited(recorder.clone());
                let listener = listener.with_access_log(Arc::new(log));
                tracing::info!(address = %listener.local_addr(), "the etcd API is served");
                Some(tokio::spawn(
                    listener.serve(store.clone(), stop_etcd.clone()),
                ))
            }
            _ => None,
        };
        let api = match (&store, &config.api) {
            (Some(store), Some(_)) => {
                let api = ApiServer::open(store.clone(), ApiOptions::default())?;
                // The first request tries again, and is told why when that fails too.
                if let Err(refusal) = api.start().await {
                    tracing::error!(reason = refusal.message, "first objects cannot be written");
                }
                Some(api)
            }
            _ => None,
        };
        let seed = u64::from(clock::wall().subsec_nanos()) ^ u64::from(std::process::id());
        let live = LiveState::new(clock::now(), seed);
        let target = api.map(Target::Api);
        let opened = {
            let live = Arc::clone(&live);
            let handle = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || {
                let _inside = handle.enter();
                Control::open(loaded, live, target, ControlOptions::default())
            })
        };
        let control = opened.await??;
        let telemetry = Arc::new(Telemetry::new()?);
        let snapshot = control.snapshot();
        let (tls, admin_tls) = (control.tls(), control.admin_tls());
        let (asked_to_end, stop_rest) = (CancellationToken::new(), CancellationToken::new());
        let control = control.spawn(stop_rest.child_token());
        if let (Some(store), Some(schedule)) = (&store, snapshots(&config)) {
            let stop = stop_rest.child_token();
            tokio::spawn(schedule::run(store.clone(), schedule, stop));
        }
        telemetry.observe(gauges::source(gauges::Sources {
            live: Arc::clone(&live),
            snapshot: Arc::clone(&snapshot),
            control: control.clone(),
            recorder: recorder.clone(),
            store: store.clone(),
        }));
        let gateway = Gateway::new(
            Arc::clone(&snapshot),
            recorder.clone(),
            telemetry.requests(),
        );
        let drain = Drain::new();
        let front = tokio::spawn(sockets.front.serve(tls, gateway.handler(), drain.clone()));
        let stop_admin = CancellationToken::new();
        let handles = operate::handles(operate::Parts {
            config: &config,
            live: Arc::clone(&live),
            snapshot,
            control: control.clone(),
            recorder: recorder.clone(),
            profiles,
            telemetry: Arc::clone(&telemetry),
            store: store.clone(),
            drain: drain.clone(),
            asked_to_end: asked_to_end.clone(),
        });
        let admin = match (sockets.admin, admin_tls) {
            (Some(listener), Some(tls)) => Some(tokio::spawn(admin::serve(
                listener,
                Arc::new(move || tls.current()),
                admin::router(handles),
                stop_admin.clone(),
            ))),
            _ => None,
        };
        tokio::spawn(sweep(live, stop_rest.child_token()));
        Ok(Process {
            control,
            drain,
            pace: ending::Pace {
                delay: config.shutdown_delay.get(),
                drain: config.drain_timeout.get(),
            },
            front,
            admin,
            stop_admin,
            etcd,
            stop_etcd,
            store,
            recorder,
            telemetry,
            asked_to_end,
            stop_rest,
        })
    }
}

/// The addresses of a process, all taken before anything slow is done.
struct Sockets {
    front: Listener,
    admin: Option<TcpListener>,
    etcd: Option<sluice_metastore::etcd::Listener>,
}

impl Sockets {
    async fn bind(config: &GatewayConfig) -> Result<Self, BootstrapError> {
        let address = config.listen.address.get();
        let front = Listener::bind_with(address, lower_listen(&config.listen)).await?;
        tracing::info!(address = %front.address(), "the Kubernetes API is served");
        let admin = match &config.admin {
            Some(admin) => {
                let address = admin.address.get();
                let bound = TcpListener::bind(address).await;
                let bound = bound.map_err(|source| BindError { address, source })?;
                tracing::info!(%address, "the admin API is served");
                Some(bound)
            }
            None => None,
        };
        let etcd = config
            .metastore
            .as_ref()
            .and_then(|store| store.value.etcd.as_ref());
        let etcd = match etcd {
            Some(etcd) => {
                let options = lower_etcd(&etcd.value);
                Some(sluice_metastore::etcd::Listener::bind(options).await?)
            }
            None => None,
        };
        Ok(Sockets { front, admin, etcd })
    }
}

fn lower_listen(config: &sluice_config::Listen) -> ListenerOptions {
    let sluice_config::Listen {
        address: _,
        tls: _,
        proxy_protocol_from,
        forwarded_for_from,
    } = config;
    let networks = |list: &[sluice_config::Located<sluice_config::Network>]| {
        Networks::new(list.iter().map(|network| network.get()))
    };
    ListenerOptions {
        proxied_from: networks(proxy_protocol_from),
        forwarded_from: Arc::new(networks(forwarded_for_from)),
        ..ListenerOptions::default()
    }
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

async fn sweep(live: Arc<LiveState>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = ticks.tick() => live.sweep(clock::now()),
        }
    }
}
