//! Publishes what operators write: loads it, checks it, makes a routing snapshot of it, and follows
//! the files while the process runs.
//!
//! All or nothing: a content that is faulty anywhere changes nothing, and the last good one stays
//! in force. A change is noticed by a watch on folders, by polling, by SIGHUP, or because somebody
//! asks; whether there is one is decided by what the files hold. A faulty content is logged once and
//! shown by [`ConfigState`] until it is mended. The process file itself is read at the start only;
//! a later change of it is reported and takes a restart.

mod assemble;
mod clients;
mod content;
mod expiry;
mod issuer;
mod kept;
mod lower;
mod reviewer;
mod state;
mod watch;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sluice_config::{Diagnostics, GatewayConfig, KeptError, Loaded, RuleSet, Sourced};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::assemble::Assembler;
use self::content::Digest;
use self::watch::FolderWatch;
use crate::clock;
use crate::flow::LiveState;
use crate::listener::TlsSource;
use crate::material::Material;
use crate::snapshot::{RoutingSnapshot, Target};
use crate::upstream::Cluster;

pub use self::assemble::{AssembleError, unusable};
pub use self::clients::ClientsFault;
pub use self::expiry::expired;
pub use self::issuer::DiscoveryFault;
pub use self::state::{ConfigFault, ConfigState, ConfigView};

/// Requests to reload that wait at once; more are answered as soon as there is room.
const ASKING_MAX: usize = 16;

/// How often the rules are read for one reload while they change under it: an editor or a swap is
/// done by the second.
const READS_MAX: usize = 4;

/// When to look at the files.
#[derive(Clone, Copy, Debug)]
pub struct ControlOptions {
    /// How long the folders must be quiet: longer than a `kubectl cp` or a ConfigMap swap takes.
    pub debounce: Duration,
    /// The longest that unrest puts a reload off.
    pub debounce_max: Duration,
    /// How often the files are read whatever the watch says.
    pub poll: Duration,
}

impl Default for ControlOptions {
    fn default() -> Self {
        ControlOptions {
            debounce: Duration::from_millis(200),
            debounce_max: Duration::from_secs(2),
            poll: Duration::from_secs(30),
        }
    }
}

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// A new generation is in force.
    Applied(u64),
    /// The files hold what is in force already.
    Unchanged(u64),
    /// The files are faulty; the last good generation stays in force.
    Refused(String),
}

/// The configuration in force and what it takes to replace it.
pub struct Control {
    process: Sourced<GatewayConfig>,
    process_digest: Digest,
    /// Rule files and every file that the last good rules name.
    files: Vec<PathBuf>,
    in_force: Digest,
    generation: u64,
    assembler: Assembler,
    tls: Arc<TlsSource>,
    admin_tls: Option<Arc<TlsSource>>,
    published: Arc<ArcSwap<RoutingSnapshot>>,
    state: ConfigState,
    options: ControlOptions,
}

impl Control {
    /// Puts a loaded configuration into force as generation 1; where the rules cannot be used, those
    /// last in force, if they are kept. `local` serves the API of the metastore, where there is one.
    /// Blocking; needs a tokio runtime around it.
    ///
    /// # Errors
    /// What in the files cannot be used, although it is well written.
    pub fn open(
        loaded: Loaded,
        live: &Arc<LiveState>,
        local: Option<&Target>,
        options: ControlOptions,
    ) -> Result<Self, AssembleError> {
        let Loaded { process, rules } = loaded;
        let known = files_of(&process, &rules);
        let made = read_rules(&process, &known)
            .map_err(AssembleError::from)
            .and_then(|(rules, read)| {
                Control::with(process.clone(), &rules, read, (live, local), options)
            });
        let faults = match made {
            Ok(control) => return Ok(control),
            Err(faults) => faults,
        };
        let kept = match sluice_config::load_kept_rules(&process) {
            Ok(kept) => kept,
            Err(KeptError::NotKept) => return Err(faults),
            Err(also) => {
                tracing::error!("{also}");
                return Err(faults);
            }
        };
        // Nothing on disk is what is in force: each look at the files tries them anew.
        let unlike_any = Digest::of([]);
        match Control::with(process, &kept, unlike_any, (live, local), options) {
            Ok(control) => {
                let message = faults.to_string();
                tracing::error!(
                    "started by the rules that were last in force, for those of the folder are faulty: {message}"
                );
                control.state.refused(&message, clock::wall());
                Ok(control)
            }
            Err(also) => {
                tracing::error!("the rules last in force cannot be used either: {also}");
                Err(faults)
            }
        }
    }

    fn with(
        process: Sourced<GatewayConfig>,
        rules: &RuleSet,
        in_force: Digest,
        (live, local): (&Arc<LiveState>, Option<&Target>),
        options: ControlOptions,
    ) -> Result<Self, AssembleError> {
        let tls = TlsSource::new(&assemble::listen_spec(&process, rules)?)?;
        let admin_tls = match lower::lower_admin(&process) {
            Some(plan) => Some(TlsSource::new(&assemble::admin_spec(&plan)?)?),
            None => None,
        };
        let files = files_of(&process, rules);
        let mut assembler = Assembler::new(Arc::clone(live), local.cloned());
        let snapshot = assembler.assemble(1, &process, rules, &tls)?;
        kept::keep(&process, rules);
        tell_differences(rules);
        let state = ConfigState::default();
        state.applied(1, in_force.short(), clock::wall());
        Ok(Control {
            process_digest: Digest::of([process.file()]),
            process,
            files,
            in_force,
            generation: 1,
            assembler,
            tls,
            admin_tls,
            published: Arc::new(ArcSwap::from_pointee(snapshot)),
            state,
            options,
        })
    }

    /// The process file as it was at the start.
    #[must_use]
    pub fn process(&self) -> &GatewayConfig {
        &self.process
    }

    /// Where the snapshot in force is found; each request takes it once.
    #[must_use]
    pub fn snapshot(&self) -> Arc<ArcSwap<RoutingSnapshot>> {
        Arc::clone(&self.published)
    }

    /// What the Kubernetes listener shows; follows the files.
    #[must_use]
    pub fn tls(&self) -> Arc<TlsSource> {
        Arc::clone(&self.tls)
    }

    /// What the admin listener shows; follows the files.
    #[must_use]
    pub fn admin_tls(&self) -> Option<Arc<TlsSource>> {
        self.admin_tls.clone()
    }

    /// What became of the configuration.
    #[must_use]
    pub fn state(&self) -> ConfigState {
        self.state.clone()
    }

    /// The clusters in force.
    #[must_use]
    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.assembler.clusters()
    }

    /// Follows the files until `stop`, and reloads when the handle asks for it.
    #[must_use]
    pub fn spawn(self, stop: CancellationToken) -> ControlHandle {
        let (ask, asked) = mpsc::channel(ASKING_MAX);
        let handle = ControlHandle {
            ask,
            state: self.state.clone(),
        };
        // The task holds a handle of its own, so that it goes on when all others are gone.
        tokio::spawn(follow(self, (handle.clone(), asked), stop));
        handle
    }

    /// Reads the files, and puts them into force if they hold something new and good. Blocking.
    fn reload(&mut self) -> Reloaded {
        let wall = clock::wall();
        let process_now = Digest::of([self.process.file()]);
        if self
            .state
            .process_changed(process_now != self.process_digest)
        {
            tracing::warn!(
                file = %self.process.file().display(),
                "the process file has changed; restart to follow it"
            );
        }
        let now = digest(&self.process, &self.files);
        if now == self.in_force {
            self.state.settled();
            return Reloaded::Unchanged(self.generation);
        }
        match self.replace() {
            Ok(()) => {
                let content = self.in_force.short();
                tracing::info!(
                    generation = self.generation,
                    content,
                    "configuration applied"
                );
                self.state.applied(self.generation, content, wall);
                Reloaded::Applied(self.generation)
            }
            Err(message) => {
                if self.state.refused(&message, wall) {
                    tracing::error!(
                        generation = self.generation,
                        "configuration refused, the last good one stays in force: {message}"
                    );
                }
                Reloaded::Refused(message)
            }
        }
    }

    /// Loads, makes and publishes.
    fn replace(&mut self) -> Result<(), String> {
        let (rules, read) =
            read_rules(&self.process, &self.files).map_err(|faults| faults.to_string())?;
        let admin = match lower::lower_admin(&self.process) {
            Some(plan) => Some(assemble::admin_spec(&plan).map_err(|e| e.to_string())?),
            None => None,
        };
        let generation = self.generation + 1;
        let snapshot = self
            .assembler
            .assemble(generation, &self.process, &rules, &self.tls)
            .map_err(|error| error.to_string())?;
        self.published.store(Arc::new(snapshot));
        kept::keep(&self.process, &rules);
        tell_differences(&rules);
        self.generation = generation;
        if let (Some(source), Some(spec)) = (&self.admin_tls, admin) {
            source.replace(&spec).map_err(|e| format!("admin {e}"))?;
        }
        self.files = files_of(&self.process, &rules);
        self.in_force = read;
        Ok(())
    }
}

/// Reads the rules between two equal digests of all that matters, so that what is in force is known
/// to be what the digest says. Under constant change it settles for the last try, whose digest is
/// then old, and the next look finds a difference.
fn read_rules(
    process: &Sourced<GatewayConfig>,
    known: &[PathBuf],
) -> Result<(RuleSet, Digest), Diagnostics> {
    let mut before = digest(process, known);
    let mut rules = sluice_config::load_rules_of(process)?;
    for _ in 1..READS_MAX {
        let after = digest(process, &files_of(process, &rules));
        if after == before {
            break;
        }
        before = after;
        rules = sluice_config::load_rules_of(process)?;
    }
    Ok((rules, before))
}

/// What the files that matter hold: the rule files that are there, and those known by name.
fn digest(process: &GatewayConfig, known: &[PathBuf]) -> Digest {
    let listed = process
        .rules_dir
        .as_ref()
        .and_then(|dir| sluice_config::rule_files(dir.as_path()).ok())
        .unwrap_or_default();
    let mut files: Vec<&PathBuf> = listed.iter().chain(known).collect();
    files.sort();
    files.dedup();
    Digest::of(files.into_iter().map(PathBuf::as_path))
}

/// Rule files, what they name, and the certificates of the process's own listeners.
fn files_of(process: &GatewayConfig, rules: &RuleSet) -> Vec<PathBuf> {
    let mut files = rules.files.clone();
    let listen = lower::lower_listen(process);
    for plan in [Some(listen), lower::lower_admin(process)] {
        let Some(lower::TlsPlan {
            cert_file,
            key_file,
            client_ca_file,
        }) = plan
        else {
            continue;
        };
        let named = [Some(cert_file), Some(key_file), client_ca_file];
        files.extend(named.iter().flatten().filter_map(file_of));
    }
    let of_api = lower::lower_api(process).and_then(|api| api.authn.client_ca_file);
    files.extend(of_api.iter().filter_map(file_of));
    files
}

/// That something is not as it was in the peer's form it is written in.
fn tell_differences(rules: &RuleSet) {
    let differences = rules.differences.len();
    if differences > 0 {
        tracing::info!(
            differences,
            "objects of KubeGateway's form are in force; `sluice check` says what differs"
        );
    }
}

fn file_of(material: &Material) -> Option<PathBuf> {
    material.file().map(Path::to_owned)
}

/// Asks the task that follows the files.
#[derive(Clone, Debug)]
pub struct ControlHandle {
    ask: mpsc::Sender<oneshot::Sender<Reloaded>>,
    state: ConfigState,
}

impl ControlHandle {
    /// Reads the files now. `None` when the process is stopping.
    ///
    /// # Cancellation
    /// The reload goes on.
    pub async fn reload(&self) -> Option<Reloaded> {
        let (answer, answered) = oneshot::channel();
        self.ask.send(answer).await.ok()?;
        answered.await.ok()
    }

    /// What became of the configuration.
    #[must_use]
    pub fn state(&self) -> &ConfigState {
        &self.state
    }
}

async fn follow(
    control: Control,
    (_handle, mut asked): (ControlHandle, mpsc::Receiver<oneshot::Sender<Reloaded>>),
    stop: CancellationToken,
) {
    let options = control.options;
    let stirred = Arc::new(Notify::new());
    let mut watch = FolderWatch::new(Arc::clone(&stirred));
    let mut control = Some(control);
    let mut hang_up = hang_ups();
    // What changed before the watch stood is found by the first look.
    let mut answer = None;
    loop {
        let Some(mut taken) = control.take() else {
            return;
        };
        let reloading = tokio::task::spawn_blocking(move || {
            let dir = taken.process.rules_dir.as_ref().map(|dir| dir.as_path());
            let files = taken.files.iter().map(PathBuf::as_path);
            watch.arm(dir, files.chain([taken.process.file()]));
            let outcome = taken.reload();
            (taken, watch, outcome)
        });
        let Ok((back, watching, outcome)) = reloading.await else {
            tracing::error!("reloading has failed for good; restart to follow the files");
            return;
        };
        (control, watch) = (Some(back), watching);
        if let Some(answer) = answer.take() {
            // Whoever asked may have gone.
            let _: Result<(), Reloaded> = oneshot::Sender::send(answer, outcome);
        }
        let poll = Instant::now() + options.poll;
        tokio::select! {
            // Stopping first; then those who wait for an answer; the clock last.
            biased;
            () = stop.cancelled() => return,
            next = asked.recv() => answer = next,
            () = hang_up.recv() => tracing::info!("asked to reload by SIGHUP"),
            () = stirred.notified() => quiet(&stirred, options).await,
            () = sleep_until(poll) => {}
        }
    }
}

/// Waits until the folders are quiet, or have been restless for too long.
async fn quiet(stirred: &Notify, options: ControlOptions) {
    let last = Instant::now() + options.debounce_max;
    loop {
        let until = (Instant::now() + options.debounce).min(last);
        tokio::select! {
            biased;
            () = sleep_until(until) => return,
            () = stirred.notified() => {}
        }
    }
}

/// SIGHUPs, where they can be had.
struct HangUps(Option<tokio::signal::unix::Signal>);

fn hang_ups() -> HangUps {
    let kind = tokio::signal::unix::SignalKind::hangup();
    match tokio::signal::unix::signal(kind) {
        Ok(signal) => HangUps(Some(signal)),
        Err(error) => {
            tracing::warn!(%error, "SIGHUP cannot be received; reload by the admin API");
            HangUps(None)
        }
    }
}

impl HangUps {
    /// # Cancellation
    /// Loses nothing.
    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}
