//! The process file, `kind: GatewayConfig`: what one process is, apart from the rules it serves by.
//!
//! Everything here but the contents of certificate files takes effect at a restart.

use serde::Deserialize;

use crate::address::{HostPattern, ListenAddress, Network};
use crate::located::Located;
use crate::moment::Moment;
use crate::path::FilePath;
use crate::units::{ByteSize, Count, TimeSpan};

/// The process file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GatewayConfig {
    /// Always `sluice.io/v1alpha1`.
    pub api_version: String,
    /// Always `GatewayConfig`.
    pub kind: String,
    /// Where clients of Kubernetes come in.
    pub listen: Listen,
    /// Where operators come in; without it there is no admin API.
    pub admin: Option<Admin>,
    /// The store in this process; without it the gateway only forwards.
    pub metastore: Option<Located<Metastore>>,
    /// The Kubernetes API served from the metastore.
    pub api: Option<Located<Api>>,
    /// The folder of rule files.
    pub rules_dir: Option<FilePath>,
    /// The file that holds the rules that were last in force, written by the process itself: it
    /// starts by them when the rules folder is faulty. Without it such a start is refused.
    pub last_good_file: Option<FilePath>,
    /// Where this process stands, in the words of the endpoints' `zone`.
    pub zone: Option<Located<String>>,
    /// Where audit events go; without it they go nowhere.
    pub audit: Option<Audit>,
    /// The Unix socket by which the next process takes over from this one; without it none can.
    pub upgrade_socket: Option<FilePath>,
    /// How long the process goes on serving once it was asked to end and says that it is not ready
    /// any more: as long as load balancers take to notice.
    #[serde(default = "default_shutdown_delay")]
    pub shutdown_delay: TimeSpan,
    /// How long requests in flight may take to finish at the end.
    #[serde(default = "default_drain_timeout")]
    pub drain_timeout: TimeSpan,
    /// The process's own log, on standard error.
    #[serde(default)]
    pub log: Log,
    /// Where traces of requests go; without it none are made.
    pub tracing: Option<Tracing>,
}

/// The listener of the Kubernetes side.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Listen {
    /// Address and port.
    pub address: ListenAddress,
    /// Its certificate.
    pub tls: ServerTls,
    /// Networks of load balancers that begin each connection with a PROXY header; nobody else may.
    /// Networks or addresses, no negation; an empty list is nobody.
    #[serde(default)]
    pub proxy_protocol_from: Vec<Located<Network>>,
    /// Networks of proxies whose `X-Forwarded-For` and `X-Real-IP` say where a request comes from.
    /// Networks or addresses, no negation; an empty list is nobody.
    #[serde(default)]
    pub forwarded_for_from: Vec<Located<Network>>,
}

/// A server's certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ServerTls {
    /// Certificate chain, PEM, leaf first.
    pub cert_file: FilePath,
    /// Private key, PEM.
    pub key_file: FilePath,
    /// CAs of client certificates, PEM, beside those that clusters name.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: Option<FilePath>,
}

/// A server's certificate, where clients must show one too.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MutualTls {
    /// Certificate chain, PEM, leaf first.
    pub cert_file: FilePath,
    /// Private key, PEM.
    pub key_file: FilePath,
    /// CAs of client certificates, PEM.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: FilePath,
}

/// The listener of the admin API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Admin {
    /// Address and port.
    pub address: ListenAddress,
    /// Its certificate and the CA of its users.
    pub tls: MutualTls,
    /// Groups (organizations of the certificate) whose members may use it. Exact text: no `*`, no
    /// negation; an empty list admits no group.
    #[serde(default = "default_admin_groups")]
    pub allowed_groups: Vec<String>,
    /// Users (common name of the certificate) who may use it. Exact text: no `*`, no negation; an
    /// empty list admits no user.
    #[serde(default)]
    pub allowed_users: Vec<String>,
}

/// The store in this process, on the embedded engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Metastore {
    /// Its folder, made when absent.
    pub data_dir: FilePath,
    /// The size at which it refuses writes.
    #[serde(default = "default_quota")]
    pub quota_bytes: ByteSize,
    /// What its values may take of the memory: the others are read back from the disk when they are
    /// wanted. Without it all stay in memory. Keys and requests come on top.
    pub memory_limit: Option<ByteSize>,
    /// The etcd v3 listener.
    pub etcd: Option<Located<Etcd>>,
    /// Snapshots on a schedule; without it none are taken.
    pub snapshots: Option<Snapshots>,
}

/// Snapshots of the store on a schedule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Snapshots {
    /// Their folder, made when absent; best on another disk than the store's.
    pub dir: FilePath,
    /// From one to the next.
    #[serde(default = "default_snapshot_interval")]
    pub interval: Located<TimeSpan>,
    /// How many stay.
    #[serde(default = "default_snapshots_kept")]
    pub keep: Count,
}

/// The etcd v3 listener.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Etcd {
    /// Address and port.
    pub address: Located<ListenAddress>,
    /// Its certificate and the CA of its clients.
    pub tls: Option<MutualTls>,
    /// Serve without TLS, on a loopback address only.
    #[serde(default)]
    pub insecure_loopback: bool,
    /// How often idle watches that asked for it hear of progress.
    #[serde(default = "default_progress")]
    pub watch_progress_notify_interval: Located<TimeSpan>,
    /// Who may do what; without it every certificate of the CA may read and write.
    pub access: Option<Located<EtcdAccess>>,
}

/// Who may do what to the store over the etcd API, by the common name of the certificate. Whoever
/// is not named may do nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EtcdAccess {
    /// Names that may read and write. Exact text: no `*`, no negation; an empty list admits nobody.
    #[serde(default)]
    pub writers: Vec<Located<String>>,
    /// Names that may read, snapshots included. Exact text: no `*`, no negation; an empty list
    /// admits nobody.
    #[serde(default)]
    pub readers: Vec<Located<String>>,
    /// Lets every certificate of the CA write, and writes down who does.
    pub break_glass: Option<BreakGlass>,
}

/// Everybody with a certificate may write, for a reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BreakGlass {
    /// Why, for the audit.
    pub reason: Located<String>,
    /// Until when; without it until the process ends.
    pub until: Option<Moment>,
}

/// The Kubernetes API served from the metastore; to the rules it is the cluster `local`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Api {
    /// The hosts under which it is reached. `*.` and a name stands for every name one label longer;
    /// an empty list leaves only the default; there is no negation.
    #[serde(default)]
    pub hosts: Vec<Located<HostPattern>>,
    /// Serve requests for hosts that nobody names.
    #[serde(default)]
    pub default: Located<bool>,
    /// CAs of its users' certificates, PEM; the listener's own without it.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: Option<FilePath>,
}

/// Audit events in files of `audit.k8s.io/v1` JSON lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Audit {
    /// The file being written.
    pub path: FilePath,
    /// The size at which a new file is begun.
    #[serde(default = "default_audit_size")]
    pub max_size: Located<ByteSize>,
    /// How many finished files are kept; the oldest goes first.
    #[serde(default = "default_audit_backups")]
    pub max_backups: u16,
}

/// Traces of requests, sent to a collector by OTLP over HTTP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Tracing {
    /// The collector's URL with the path that takes traces.
    pub endpoint: Located<String>,
    /// CAs of the collector's certificate, PEM; needed for `https`.
    pub ca_file: Option<FilePath>,
    /// Of a million requests whose callers do not say whether they are traced, so many are.
    pub samples_per_million: Located<u32>,
}

/// The process's own log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    /// The least severity written.
    #[serde(default)]
    pub level: LogLevel,
    /// Its form.
    #[serde(default)]
    pub format: LogFormat,
}

/// Severities of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLevel {
    /// What stopped something.
    Error,
    /// What an operator should look at.
    Warn,
    /// What changed.
    #[default]
    Info,
    /// What a developer asks for.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The level's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// Lines for people.
    Text,
}

/// As kube-apiserver's own: whoever has no balancer in front waits for nothing.
fn default_shutdown_delay() -> TimeSpan {
    TimeSpan::from_secs(0)
}

fn default_drain_timeout() -> TimeSpan {
    TimeSpan::from_secs(30)
}

fn default_admin_groups() -> Vec<String> {
    vec!["system:masters".to_owned()]
}

/// What etcd's own documentation recommends as the most for a cluster of normal size.
fn default_quota() -> ByteSize {
    ByteSize::from_mib(8 * 1024)
}

fn default_progress() -> Located<TimeSpan> {
    Located::unwritten(TimeSpan::from_secs(5))
}

fn default_audit_size() -> Located<ByteSize> {
    Located::unwritten(ByteSize::from_mib(100))
}

fn default_snapshot_interval() -> Located<TimeSpan> {
    Located::unwritten(TimeSpan::from_secs(6 * 3600))
}

fn default_snapshots_kept() -> Count {
    // A week of them.
    Count::of(28)
}

fn default_audit_backups() -> u16 {
    5
}

impl GatewayConfig {
    /// Every path with its key; the flag says whether the file must be there already.
    pub(crate) fn each_path(&mut self, visit: &mut dyn FnMut(&str, &mut FilePath, bool)) {
        let server = &mut self.listen.tls;
        visit("listen.tls.certFile", &mut server.cert_file, true);
        visit("listen.tls.keyFile", &mut server.key_file, true);
        if let Some(path) = &mut server.client_ca_file {
            visit("listen.tls.clientCAFile", path, true);
        }
        if let Some(admin) = &mut self.admin {
            admin.tls.each_path("admin.tls", visit);
        }
        if let Some(metastore) = &mut self.metastore {
            visit("metastore.dataDir", &mut metastore.value.data_dir, false);
            if let Some(snapshots) = &mut metastore.value.snapshots {
                visit("metastore.snapshots.dir", &mut snapshots.dir, false);
            }
            if let Some(tls) = metastore
                .value
                .etcd
                .as_mut()
                .and_then(|e| e.value.tls.as_mut())
            {
                tls.each_path("metastore.etcd.tls", visit);
            }
        }
        if let Some(path) = self
            .api
            .as_mut()
            .and_then(|a| a.value.client_ca_file.as_mut())
        {
            visit("api.clientCAFile", path, true);
        }
        if let Some(path) = &mut self.rules_dir {
            visit("rulesDir", path, true);
        }
        if let Some(path) = &mut self.last_good_file {
            visit("lastGoodFile", path, false);
        }
        if let Some(path) = &mut self.upgrade_socket {
            visit("upgradeSocket", path, false);
        }
        if let Some(audit) = &mut self.audit {
            visit("audit.path", &mut audit.path, false);
        }
        if let Some(path) = self.tracing.as_mut().and_then(|it| it.ca_file.as_mut()) {
            visit("tracing.caFile", path, true);
        }
    }
}

impl MutualTls {
    fn each_path(&mut self, key: &str, visit: &mut dyn FnMut(&str, &mut FilePath, bool)) {
        visit(&format!("{key}.certFile"), &mut self.cert_file, true);
        visit(&format!("{key}.keyFile"), &mut self.key_file, true);
        visit(
            &format!("{key}.clientCAFile"),
            &mut self.client_ca_file,
            true,
        );
    }
}
