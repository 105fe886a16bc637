//! Every metric's name, once. `gateway/METRICS.md` describes each; a test compares the two.
//!
//! A kube-apiserver's or etcd's own name is used where the meaning is the same, so that dashboards
//! and alerts carry over.

/// Connections of clients that were accepted.
pub(super) const CONNECTIONS: &str = "sluice_connections_total";
/// Connections of clients that were given up, by reason.
pub(super) const CONNECTIONS_GIVEN_UP: &str = "sluice_connections_given_up_total";
/// Requests answered, by cluster, verb and code.
pub(super) const REQUESTS: &str = "apiserver_request_total";
/// Time to the answer's head, by cluster and verb; watches and tunnels aside.
pub(super) const REQUEST_DURATION: &str = "apiserver_request_duration_seconds";
/// Requests being served, long-running ones aside, by kind.
pub(super) const INFLIGHT: &str = "apiserver_current_inflight_requests";
/// Watches, logs and tunnels being served.
pub(super) const LONG_RUNNING: &str = "apiserver_longrunning_requests";
/// Requests refused by the gateway itself, by stage and code.
pub(super) const REFUSALS: &str = "sluice_refusals_total";
/// Bytes of answers.
pub(super) const SENT_BYTES: &str = "sluice_response_sent_bytes_total";
/// Answers that broke off.
pub(super) const BROKEN: &str = "sluice_responses_broken_total";
/// Requests a rule admitted.
pub(super) const RULE_ADMITTED: &str = "sluice_rule_admitted_total";
/// Requests a rule refused.
pub(super) const RULE_REFUSED: &str = "sluice_rule_refused_total";
/// Requests a rule in observe mode would have refused.
pub(super) const RULE_WOULD_REFUSE: &str = "sluice_rule_would_refuse_total";
/// Requests that had to wait for their turn under a rule.
pub(super) const RULE_WAITED: &str = "sluice_rule_waited_total";
/// Requests that wait for their turn under a rule now.
pub(super) const RULE_WAITING: &str = "sluice_rule_waiting_requests";
/// Breakers that are not closed, by scope, name and phase: 1 while they are.
pub(super) const BREAKER_OPEN: &str = "sluice_breaker_open";
/// Endpoints, by cluster and endpoint: 1 when ready, else 0.
pub(super) const ENDPOINT_READY: &str = "sluice_endpoint_ready";
/// Requests in flight at an endpoint.
pub(super) const ENDPOINT_INFLIGHT: &str = "sluice_endpoint_inflight_requests";
/// Requests an endpoint was given.
pub(super) const ENDPOINT_REQUESTS: &str = "sluice_endpoint_requests_total";
/// Tunnels that stand, by cluster.
pub(super) const TUNNELS_OPEN: &str = "sluice_tunnels_open";
/// Bytes that tunnels have carried, by cluster and direction: `up` from clients, `down` to them.
pub(super) const TUNNEL_BYTES: &str = "sluice_tunnel_bytes_total";
/// Audit events lost: the writer could not keep up, or the file could not be written.
pub(super) const AUDIT_DROPPED: &str = "sluice_audit_events_dropped_total";
/// The configuration's generation.
pub(super) const CONFIG_GENERATION: &str = "sluice_config_generation";
/// 1 while the files on disk are not what is running, since they have faults.
pub(super) const CONFIG_FAULTY: &str = "sluice_config_faulty";
/// Bytes of the store on disk.
pub(super) const STORE_SIZE: &str = "etcd_mvcc_db_total_size_in_bytes";
/// Bytes of the store in use.
pub(super) const STORE_IN_USE: &str = "etcd_mvcc_db_total_size_in_use_in_bytes";
/// The store's newest revision.
pub(super) const STORE_REVISION: &str = "etcd_debugging_mvcc_current_revision";
/// Snapshots saved on the schedule.
pub(super) const SNAPSHOTS: &str = "sluice_store_snapshots_total";
/// Scheduled snapshots that could not be saved, each try.
pub(super) const SNAPSHOTS_FAILED: &str = "sluice_store_snapshots_failed_total";
/// When the last scheduled snapshot was saved, in seconds since 1970; 0 for never.
pub(super) const SNAPSHOT_AT: &str = "sluice_store_snapshot_timestamp_seconds";
/// The store's compacted floor.
pub(super) const STORE_COMPACTED: &str = "etcd_debugging_mvcc_compact_revision";
