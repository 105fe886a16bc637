//! Profiles as operators read them.

use serde::Serialize;

/// What one client did.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientView {
    /// The user name.
    pub client: String,
    /// Its last user agent.
    pub user_agent: String,
    /// Requests a second over the last minute, all rows together.
    pub rate_per_second: f64,
    /// One row a verb and resource, busiest first.
    pub rows: Vec<RowView>,
}

/// What one client did with one verb on one resource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowView {
    /// The verb.
    pub verb: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource with its subresource, or the path's first part for others.
    pub resource: String,
    /// Requests in all.
    pub count: u64,
    /// Requests a second over the last minute.
    pub rate_per_second: f64,
    /// Answers of 500 and above, and answers that broke off.
    pub errors: u64,
    /// Refusals by the gateway.
    pub refused: u64,
    /// Requests that a rule in observe mode would have refused.
    pub would_refuse: u64,
    /// Watches that have ended.
    pub watches: u64,
    /// The shapes of its lists, if it made any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists: Option<ShapesView>,
    /// Median, 90th and 99th percentile of the time to the answer's head, within 10 %.
    pub latency_seconds: [f64; 3],
    /// Median, 90th and 99th percentile of the answer's size, within 10 %.
    pub response_bytes: [u64; 3],
}

/// How a client lists; each count is of all lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShapesView {
    /// Lists in all.
    pub total: u64,
    /// Without a limit.
    pub unpaged: u64,
    /// Content with whatever a cache has (`resourceVersion=0`).
    pub from_cache: u64,
    /// Over all namespaces.
    pub cluster_wide: u64,
    /// With a label or field selector.
    pub selected: u64,
}
