//! Flags of etcd that mean nothing here, or cannot be had.
//!
//! A unit file that ran a single etcd has some of them. Those that change nothing that is promised
//! are taken, with one line that says why they have no effect; those whose promise would be broken
//! in silence are refused.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

const NO_PEERS: &str = "there are no other members to speak with";
const NO_RAFT: &str = "there is no raft: one process orders all writes";
const NO_BOLT: &str = "there is no bbolt file: the log and its checkpoints need no tuning";
const NO_USERS: &str = "users are known by certificate, not by password or token";
const NO_BROWSERS: &str = "there is no JSON gateway for browsers";
const ALWAYS_CHECKED: &str = "everything read from disk is checked against its checksum, always";
const NO_TRACING: &str = "traces are not exported";
const BY_ITSELF: &str = "the store does this by itself";
const TO_STDERR: &str = "logs go to standard error";

/// Flags without effect, and why.
const IDLE: &[(&str, &str)] = &[
    (
        "snapshot-count",
        "checkpoints come by the size of the log, not by a number of writes",
    ),
    ("wal-dir", "the log is in --data-dir"),
    ("heartbeat-interval", NO_RAFT),
    ("election-timeout", NO_RAFT),
    ("initial-election-tick-advance", NO_RAFT),
    ("pre-vote", NO_RAFT),
    ("raft-read-timeout", NO_PEERS),
    ("raft-write-timeout", NO_PEERS),
    ("max-snapshots", BY_ITSELF),
    ("max-wals", BY_ITSELF),
    (
        "memory-mlock",
        "pages may be swapped like those of any process",
    ),
    ("backend-bbolt-freelist-type", NO_BOLT),
    ("backend-batch-interval", NO_BOLT),
    ("backend-batch-limit", NO_BOLT),
    ("bootstrap-defrag-threshold-megabytes", BY_ITSELF),
    ("compaction-batch-limit", BY_ITSELF),
    ("compaction-sleep-interval", BY_ITSELF),
    ("snapshot-catchup-entries", NO_RAFT),
    (
        "grpc-keepalive-min-time",
        "pings of clients are answered however often they come",
    ),
    ("socket-reuse-port", "a port is taken by one process"),
    (
        "socket-reuse-address",
        "a port can be taken again at once anyway",
    ),
    ("enable-grpc-gateway", NO_BROWSERS),
    ("cors", NO_BROWSERS),
    ("host-whitelist", NO_BROWSERS),
    ("listen-peer-urls", NO_PEERS),
    ("initial-cluster-state", NO_PEERS),
    ("initial-cluster-token", NO_PEERS),
    ("strict-reconfig-check", NO_PEERS),
    ("max-learners", NO_PEERS),
    ("peer-cert-file", NO_PEERS),
    ("peer-key-file", NO_PEERS),
    ("peer-client-cert-auth", NO_PEERS),
    ("peer-client-cert-file", NO_PEERS),
    ("peer-client-key-file", NO_PEERS),
    ("peer-trusted-ca-file", NO_PEERS),
    ("peer-cert-allowed-cn", NO_PEERS),
    ("peer-cert-allowed-hostname", NO_PEERS),
    ("peer-auto-tls", NO_PEERS),
    ("peer-crl-file", NO_PEERS),
    ("peer-skip-client-san-verification", NO_PEERS),
    ("client-cert-file", NO_PEERS),
    ("client-key-file", NO_PEERS),
    ("self-signed-cert-validity", "no certificates are made here"),
    ("v2-deprecation", "there is no v2 API"),
    ("enable-v2", "there is no v2 API"),
    ("auth-token", NO_USERS),
    ("auth-token-ttl", NO_USERS),
    ("bcrypt-cost", NO_USERS),
    ("enable-pprof", "there is no /debug/pprof"),
    ("metrics", "all there are, are always there"),
    ("logger", TO_STDERR),
    ("log-outputs", TO_STDERR),
    ("enable-log-rotation", TO_STDERR),
    ("log-rotation-config-json", TO_STDERR),
    (
        "warning-unary-request-duration",
        "slow requests are seen in the metrics",
    ),
    (
        "warning-apply-duration",
        "slow writes are seen in the metrics",
    ),
    ("enable-distributed-tracing", NO_TRACING),
    ("distributed-tracing-address", NO_TRACING),
    ("distributed-tracing-service-name", NO_TRACING),
    ("distributed-tracing-instance-id", NO_TRACING),
    ("distributed-tracing-sampling-rate", NO_TRACING),
    ("corrupt-check-time", ALWAYS_CHECKED),
    ("compact-hash-check-time", ALWAYS_CHECKED),
    ("experimental-initial-corrupt-check", ALWAYS_CHECKED),
    ("experimental-corrupt-check-time", ALWAYS_CHECKED),
    ("experimental-compact-hash-check-enabled", ALWAYS_CHECKED),
    ("experimental-compact-hash-check-time", ALWAYS_CHECKED),
    (
        "experimental-bootstrap-defrag-threshold-megabytes",
        BY_ITSELF,
    ),
    ("experimental-compaction-batch-limit", BY_ITSELF),
    ("experimental-compaction-sleep-interval", BY_ITSELF),
    ("experimental-backend-bbolt-freelist-type", NO_BOLT),
    ("experimental-enable-lease-checkpoint", BY_ITSELF),
    ("experimental-enable-lease-checkpoint-persist", BY_ITSELF),
    (
        "experimental-memory-mlock",
        "pages may be swapped like those of any process",
    ),
    ("experimental-txn-mode-write-with-shared-buffer", NO_BOLT),
    (
        "experimental-stop-grpc-service-on-defrag",
        "defragmenting interrupts nothing",
    ),
    (
        "experimental-warning-apply-duration",
        "slow writes are seen in the metrics",
    ),
    (
        "experimental-warning-unary-request-duration",
        "slow requests are seen in the metrics",
    ),
    ("experimental-snapshot-catchup-entries", NO_RAFT),
    ("experimental-max-learners", NO_PEERS),
    ("experimental-peer-skip-client-san-verification", NO_PEERS),
    ("experimental-enable-distributed-tracing", NO_TRACING),
    ("experimental-distributed-tracing-address", NO_TRACING),
    ("downgrade-check-time", "there is no version to go back to"),
    (
        "feature-gates",
        "there are no gates: what they check or allow is always so",
    ),
    ("force-new-cluster", "a cluster of one is what there is"),
    (
        "unsafe-no-fsync",
        "every write is synced before it is answered",
    ),
];

const MAKE_CERTIFICATES: &str = "give --cert-file, --key-file and --trusted-ca-file";
const ONE_MEMBER: &str = "there is one member and nothing to discover: leave it out";

/// Flags that are refused, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "config-file",
        "give each setting as a flag or as ETCD_... in the environment",
    ),
    ("auto-tls", MAKE_CERTIFICATES),
    (
        "client-cert-allowed-hostname",
        "name who may come in by --access-writers and --access-readers",
    ),
    ("discovery", ONE_MEMBER),
    ("discovery-token", ONE_MEMBER),
    ("discovery-endpoints", ONE_MEMBER),
    ("discovery-srv", ONE_MEMBER),
    ("discovery-srv-name", ONE_MEMBER),
    ("discovery-proxy", ONE_MEMBER),
    ("discovery-fallback", ONE_MEMBER),
];

/// Those of them that were given.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    given: Vec<&'static str>,
}

impl Foreign {
    /// Why each has no effect, a line each.
    ///
    /// # Errors
    /// The first that is refused, with what to do instead.
    pub(super) fn explain(&self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for name in &self.given {
            let why = |table: &[(&str, &'static str)]| {
                let found = table.iter().find(|(known, _)| known == name);
                found.map(|(_, why)| *why)
            };
            if let Some(instead) = why(REFUSED) {
                return Err(format!("--{name} cannot be had here: {instead}"));
            }
            if let Some(why) = why(IDLE) {
                lines.push(format!("--{name} has no effect: {why}"));
            }
        }
        Ok(lines)
    }
}

impl Args for Foreign {
    fn augment_args(command: Command) -> Command {
        let names = IDLE.iter().chain(REFUSED).map(|(name, _)| *name);
        names.fold(command, |command, name| {
            let arg = Arg::new(name)
                .long(name)
                .num_args(0..=1)
                .default_missing_value("true")
                .action(ArgAction::Set)
                .value_parser(ValueParser::string())
                .hide(true);
            command.arg(arg)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Foreign {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let names = IDLE.iter().chain(REFUSED).map(|(name, _)| *name);
        // A switch that is set to off is one that was not given.
        let is_on = |name: &&str| {
            let value = matches.get_one::<String>(name);
            value.is_some_and(|value| value != "false")
        };
        Ok(Foreign {
            given: names.filter(is_on).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
