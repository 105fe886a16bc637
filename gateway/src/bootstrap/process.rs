//! Everything that runs, put together in order.
//!
//! What needs no store comes before it, and what takes over from a running process asks for the
//! store last: while the data directory changes hands, requests wait.

use std::sync::Arc;
use std::time::Duration;

use sluice_config::{GatewayConfig, Loaded};
use sluice_metastore::backup::schedule;
use sluice_metastore::store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ending::Pace;
use super::handover::{Giver, HandoverError, Taking};
use super::sockets::Sockets;
use super::{BootstrapError, access, gauges, operate};
use crate::admin;
use crate::api::{ApiOptions, ApiServer};
use crate::audit::Recorder;
use crate::clock;
use crate::control::{Control, ControlOptions};
use crate::drain::Drain;
use crate::flow::LiveState;
use crate::pipeline::Gateway;
use crate::profile::Profiles;
use crate::snapshot::Target;
use crate::telemetry::{Telemetry, Traces};

/// How often keys nobody uses are swept from limits and breakers.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How long a process that takes over may need for its clusters' first probes: the slowest of them
/// times out in seconds, and whoever is not there by then is down.
const PROBED_MAX: Duration = Duration::from_secs(30);

/// From one look at the probes to the next.
const PROBED_LOOK: Duration = Duration::from_millis(20);

/// Everything that runs.
pub(super) struct Process {
    pub(super) drain: Drain,
    pub(super) pace: Pace,
    pub(super) front: JoinHandle<()>,
    pub(super) admin: Option<JoinHandle<()>>,
    pub(super) stop_admin: CancellationToken,
    pub(super) etcd: Option<JoinHandle<()>>,
    pub(super) stop_etcd: CancellationToken,
    pub(super) store: Option<Store>,
    /// Requests are answered from the store, and not only apiservers'.
    pub(super) serves_api: bool,
    pub(super) recorder: Recorder,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) traces: Option<Traces>,
    /// An operator's wish, by the admin API.
    pub(super) asked_to_end: CancellationToken,
    /// Ends what runs beside the listeners.
    pub(super) stop_rest: CancellationToken,
    /// Hears the next process.
    pub(super) giver: Option<Giver>,
}

impl Process {
    /// Starts everything on `sockets`; takes over from a running process, if there is one.
    pub(super) async fn start(
        loaded: Loaded,
        sockets: Sockets,
        mut taking: Option<Taking>,
    ) -> Result<Self, BootstrapError> {
        let config = loaded.process.value.clone();
        let to_hand_on = sockets.try_clone()?;
        let listeners = sockets.open(&config).await?;
        let profiles = Profiles::new();
        let recorder = super::start_audit(&config, &profiles)?;
        let seed = u64::from(clock::wall().subsec_nanos()) ^ u64::from(std::process::id());
        let live = LiveState::new(clock::now(), seed);
        let serves_api = config.api.is_some();
        let early = if serves_api {
            None
        } else {
            Some(open_control(&loaded, &live, None).await?)
        };
        if let Some(taking) = &mut taking {
            if let Some(control) = &early {
                until_probed(control).await?;
            }
            if config.metastore.is_some() {
                taking.data_directory().await?;
            }
        }
        let store = super::open_store(&config).await?;
        let stop_etcd = CancellationToken::new();
        let etcd = match (&store, listeners.etcd) {
            (Some(store), Some(listener)) => {
                let log = access::Audited(recorder.clone());
                let listener = listener.with_access_log(Arc::new(log));
                tracing::info!(address = %listener.local_addr(), "the etcd API is served");
                let serving = listener.serve(store.clone(), stop_etcd.clone());
                Some(tokio::spawn(serving))
            }
            _ => None,
        };
        let control = match early {
            Some(control) => control,
            None => {
                let api = start_api(store.as_ref()).await?;
                open_control(&loaded, &live, api).await?
            }
        };
        if let Some(taking) = taking {
            taking.ready().await?;
        }
        let parts = Parts {
            config: &config,
            live,
            profiles,
            recorder,
            store,
            front: listeners.front,
            admin: listeners.admin,
        };
        let mut process = parts.serve(control)?;
        process.serves_api = serves_api;
        process.etcd = etcd;
        process.stop_etcd = stop_etcd;
        if let Some(path) = &config.upgrade_socket {
            let giver = Giver::listen(path.as_path(), to_hand_on.into_all())?;
            process.giver = Some(giver);
        }
        Ok(process)
    }
}

/// What serving is made of.
struct Parts<'a> {
    config: &'a GatewayConfig,
    live: Arc<LiveState>,
    profiles: Profiles,
    recorder: Recorder,
    store: Option<Store>,
    front: crate::listener::Listener,
    admin: Option<tokio::net::TcpListener>,
}

impl Parts<'_> {
    /// Follows the files, and accepts.
    fn serve(self, control: Control) -> Result<Process, BootstrapError> {
        let Parts {
            config,
            live,
            profiles,
            recorder,
            store,
            front,
            admin,
        } = self;
        let telemetry = Arc::new(Telemetry::new()?);
        let snapshot = control.snapshot();
        let (tls, admin_tls) = (control.tls(), control.admin_tls());
        let (asked_to_end, stop_rest) = (CancellationToken::new(), CancellationToken::new());
        let control = control.spawn(stop_rest.child_token());
        if let (Some(store), Some(schedule)) = (&store, super::snapshots(config)) {
            let stop = stop_rest.child_token();
            tokio::spawn(schedule::run(store.clone(), schedule, stop));
        }
        telemetry.observe(gauges::source(gauges::Sources {
            listener: front.counters(),
            live: Arc::clone(&live),
            snapshot: Arc::clone(&snapshot),
            control: control.clone(),
            recorder: recorder.clone(),
            store: store.clone(),
        }));
        let requests = telemetry.requests();
        let traces = super::start_traces(config)?;
        let gateway = Gateway::tracing(
            Arc::clone(&snapshot),
            recorder.clone(),
            requests,
            traces.clone(),
        );
        let drain = Drain::new();
        let front = tokio::spawn(front.serve(tls, gateway.handler(), drain.clone()));
        let handles = operate::handles(operate::Parts {
            config,
            live: Arc::clone(&live),
            snapshot,
            control,
            recorder: recorder.clone(),
            profiles,
            telemetry: Arc::clone(&telemetry),
            store: store.clone(),
            drain: drain.clone(),
            asked_to_end: asked_to_end.clone(),
        });
        let stop_admin = CancellationToken::new();
        let admin = match (admin, admin_tls) {
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
            drain,
            pace: Pace {
                delay: config.shutdown_delay.get(),
                drain: config.drain_timeout.get(),
            },
            front,
            admin,
            stop_admin,
            etcd: None,
            stop_etcd: CancellationToken::new(),
            store,
            serves_api: false,
            recorder,
            telemetry,
            traces,
            asked_to_end,
            stop_rest,
            giver: None,
        })
    }
}

/// Puts the files into force; blocking work, off the runtime's own threads.
async fn open_control(
    loaded: &Loaded,
    live: &Arc<LiveState>,
    api: Option<Target>,
) -> Result<Control, BootstrapError> {
    let (loaded, live) = (loaded.clone(), Arc::clone(live));
    let handle = tokio::runtime::Handle::current();
    let opened = tokio::task::spawn_blocking(move || {
        let _inside = handle.enter();
        Control::open(loaded, &live, api.as_ref(), ControlOptions::default())
    });
    Ok(opened.await??)
}

async fn start_api(store: Option<&Store>) -> Result<Option<Target>, BootstrapError> {
    let Some(store) = store else { return Ok(None) };
    let api = ApiServer::open(store.clone(), ApiOptions::default())?;
    // The first request tries again, and is told why when that fails too.
    if let Err(refusal) = api.start().await {
        tracing::error!(reason = refusal.message, "first objects cannot be written");
    }
    Ok(Some(Target::Api(api)))
}

/// Waits until the clusters could serve, as the running process's do.
async fn until_probed(control: &Control) -> Result<(), HandoverError> {
    let snapshot = control.snapshot();
    let until = clock::now() + PROBED_MAX;
    loop {
        let Err(why) = operate::clusters_serve(&snapshot.load()) else {
            return Ok(());
        };
        if clock::now() >= until {
            let after = PROBED_MAX;
            return Err(HandoverError::NotReady { after, why });
        }
        tokio::time::sleep(PROBED_LOOK).await;
    }
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
