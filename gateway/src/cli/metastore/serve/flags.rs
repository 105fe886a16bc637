//! The flags of `sluice metastore serve`: etcd's names where they mean the same, each also read from
//! the environment as `ETCD_...`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::super::scheduled::SnapshotFlags;
use super::foreign::Foreign;
use super::values::{self, Url};

/// What etcd's own documentation recommends as the most for a cluster of normal size.
pub(super) const QUOTA_BYTES: u64 = 8 << 30;
/// How etcd takes an interval of zero between progress notices.
pub(super) const PROGRESS_INTERVAL_OF_ZERO: Duration = Duration::from_mins(10);

#[derive(Debug, Args)]
pub(in crate::cli) struct ServeArgs {
    #[command(flatten)]
    pub(super) member: MemberFlags,
    #[command(flatten)]
    pub(super) security: SecurityFlags,
    #[command(flatten)]
    pub(super) access: AccessFlags,
    #[command(flatten)]
    pub(super) snapshots: SnapshotFlags,
    #[command(flatten)]
    pub(super) foreign: Foreign,
}

#[derive(Debug, Args)]
pub(super) struct MemberFlags {
    /// Print the version of the etcd API that is served, and end
    #[arg(long)]
    pub(super) version: bool,
    /// The name of this member
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    pub(super) name: String,
    /// Where the log and the checkpoints are, made when absent; NAME.etcd unless given
    #[arg(long, value_name = "DIR", env = "ETCD_DATA_DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// Where to listen: https://ADDRESS:PORT, or http:// on a loopback address; several by comma
    #[arg(long, value_name = "URLS", env = "ETCD_LISTEN_CLIENT_URLS", value_delimiter = ',',
          value_parser = values::listen_url, default_value = "http://localhost:2379")]
    pub(super) listen_client_urls: Vec<Url>,
    /// Where to serve /metrics, /version and the probes as well, without gRPC
    #[arg(long, value_name = "URLS", env = "ETCD_LISTEN_METRICS_URLS", value_delimiter = ',',
          value_parser = values::listen_url)]
    pub(super) listen_metrics_urls: Vec<Url>,
    /// The same; they stay on the client URLs too
    #[arg(long, value_name = "URLS", env = "ETCD_LISTEN_CLIENT_HTTP_URLS", value_delimiter = ',',
          value_parser = values::listen_url)]
    pub(super) listen_client_http_urls: Vec<Url>,
    /// The URLs clients are told of; those listened on unless given
    #[arg(
        long,
        value_name = "URLS",
        env = "ETCD_ADVERTISE_CLIENT_URLS",
        value_delimiter = ','
    )]
    pub(super) advertise_client_urls: Vec<String>,
    /// Peer URLs shown with the member; nothing listens there
    #[arg(
        long,
        value_name = "URLS",
        env = "ETCD_INITIAL_ADVERTISE_PEER_URLS",
        value_delimiter = ','
    )]
    pub(super) initial_advertise_peer_urls: Vec<String>,
    /// The members of the cluster: this one alone
    #[arg(long, value_name = "NAME=URL", env = "ETCD_INITIAL_CLUSTER")]
    pub(super) initial_cluster: Option<String>,
    /// How often a caught-up watch that asked for it hears how far it is; 0 is etcd's ten minutes
    #[arg(long, value_name = "TIME", env = "ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL",
          alias = "experimental-watch-progress-notify-interval",
          default_value = "5s", value_parser = values::time)]
    pub(super) watch_progress_notify_interval: Duration,
    /// Bytes on disk above which puts are refused; 0 is 8 GiB, less than 0 is no bound
    #[arg(
        long,
        value_name = "BYTES",
        env = "ETCD_QUOTA_BACKEND_BYTES",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(super) quota_backend_bytes: i64,
    /// Bytes of values that may stay in memory, the others are read from the disk when they are
    /// wanted; without it all stay. A flag of Sluice's own
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) memory_limit_bytes: Option<u64>,
    /// What is kept of history: a time, hours where it has no unit, or a number of revisions;
    /// 0 keeps all until somebody compacts
    #[arg(
        long,
        value_name = "KEPT",
        env = "ETCD_AUTO_COMPACTION_RETENTION",
        default_value = "0"
    )]
    pub(super) auto_compaction_retention: String,
    /// How that is meant: periodic or revision
    #[arg(
        long,
        value_name = "MODE",
        env = "ETCD_AUTO_COMPACTION_MODE",
        default_value = "periodic"
    )]
    pub(super) auto_compaction_mode: String,
    /// Operations a transaction may have
    #[arg(
        long,
        value_name = "N",
        env = "ETCD_MAX_TXN_OPS",
        default_value_t = 128
    )]
    pub(super) max_txn_ops: usize,
    /// Bytes a request may have
    #[arg(
        long,
        value_name = "BYTES",
        env = "ETCD_MAX_REQUEST_BYTES",
        default_value_t = 1_572_864
    )]
    pub(super) max_request_bytes: usize,
    /// Calls and watches open at once on one connection
    #[arg(long, value_name = "N", env = "ETCD_MAX_CONCURRENT_STREAMS", default_value_t = 1 << 20)]
    pub(super) max_concurrent_streams: u32,
    /// How often a quiet connection is asked whether it is still there; 0 never asks
    #[arg(long, value_name = "TIME", env = "ETCD_GRPC_KEEPALIVE_INTERVAL", default_value = "2m",
          value_parser = values::time)]
    pub(super) grpc_keepalive_interval: Duration,
    /// How long the answer to that may take
    #[arg(long, value_name = "TIME", env = "ETCD_GRPC_KEEPALIVE_TIMEOUT", default_value = "20s",
          value_parser = values::time)]
    pub(super) grpc_keepalive_timeout: Duration,
    /// The least severity that is logged
    #[arg(
        long,
        value_name = "LEVEL",
        env = "ETCD_LOG_LEVEL",
        default_value = "info"
    )]
    pub(super) log_level: String,
    /// How log lines look: json or console
    #[arg(long, value_name = "FORM", env = "ETCD_LOG_FORMAT", default_value = "json",
          value_parser = ["json", "console"])]
    pub(super) log_format: String,
}

#[derive(Debug, Args)]
pub(super) struct SecurityFlags {
    /// Certificate chain, PEM, leaf first; looked at again as clients come
    #[arg(long, value_name = "FILE", env = "ETCD_CERT_FILE")]
    pub(super) cert_file: Option<PathBuf>,
    /// Private key, PEM
    #[arg(long, value_name = "FILE", env = "ETCD_KEY_FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// CAs of client certificates, PEM; every client must show one
    #[arg(long, value_name = "FILE", env = "ETCD_TRUSTED_CA_FILE")]
    pub(super) trusted_ca_file: Option<PathBuf>,
    /// Client certificates that are no longer good, PEM
    #[arg(long, value_name = "FILE", env = "ETCD_CLIENT_CRL_FILE")]
    pub(super) client_crl_file: Option<PathBuf>,
    /// Every client must show a certificate, which is so wherever there is a CA
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL",
          env = "ETCD_CLIENT_CERT_AUTH")]
    pub(super) client_cert_auth: bool,
    /// Suites offered with TLS 1.2, by comma; all that are sound unless given
    #[arg(
        long,
        value_name = "NAMES",
        env = "ETCD_CIPHER_SUITES",
        value_delimiter = ','
    )]
    pub(super) cipher_suites: Vec<String>,
    /// The oldest version offered: TLS1.2 or TLS1.3
    #[arg(long, value_name = "VERSION", env = "ETCD_TLS_MIN_VERSION", default_value = "TLS1.2",
          value_parser = ["TLS1.2", "TLS1.3"])]
    pub(super) tls_min_version: String,
    /// The newest version offered: TLS1.2 or TLS1.3
    #[arg(long, value_name = "VERSION", env = "ETCD_TLS_MAX_VERSION", default_value = "TLS1.3",
          value_parser = ["TLS1.2", "TLS1.3", ""])]
    pub(super) tls_max_version: String,
    /// Serve clients without a certificate wherever they are: http:// beyond loopback, and https://
    /// without --trusted-ca-file. Whoever reaches the port can then write
    #[arg(long)]
    pub(super) insecure_allow_anonymous: bool,
    /// What http:// says by itself
    #[arg(long, hide = true)]
    pub(super) insecure_loopback: bool,
}

#[derive(Debug, Args)]
pub(super) struct AccessFlags {
    /// Common names of certificates that may read and write, by comma; with this or
    /// --access-readers, others may do nothing
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) access_writers: Vec<String>,
    /// Common names of certificates that may read
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) access_readers: Vec<String>,
    /// Break the glass: every certificate may write. Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(super) break_glass_reason: Option<String>,
    /// Until when, such as 2026-11-30T12:00:00Z
    #[arg(long, value_name = "TIME", requires = "break_glass_reason",
          value_parser = values::moment)]
    pub(super) break_glass_until: Option<SystemTime>,
}
