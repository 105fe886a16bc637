//! Parts of a cluster's endpoints, and how requests are spread over all of them.

use serde::Deserialize;

use crate::address::EndpointUrl;
use crate::located::Located;
use crate::units::TimeSpan;

/// Some of a cluster's endpoints, under a name that rules send requests to: those that are listed,
/// or those with all of the labels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Subset {
    /// Unique within the cluster.
    pub name: Located<String>,
    /// Their URLs, as `spec.endpoints` gives them; not beside `labels`.
    #[serde(default)]
    pub endpoints: Vec<Located<EndpointUrl>>,
    /// Labels that each of them has, all of these; not beside `endpoints`.
    #[serde(default)]
    pub labels: Vec<Located<String>>,
    /// Whether its requests stay in it when none of its endpoints is in good standing. Without
    /// that they go to the cluster's others then.
    #[serde(default)]
    pub strict: bool,
}

/// How requests are spread over a cluster's endpoints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Balance {
    /// How long an endpoint that has come back takes to its full share; `0s` gives it at once.
    pub slow_start: TimeSpan,
}

impl Default for Balance {
    fn default() -> Self {
        Balance {
            slow_start: TimeSpan::from_secs(10),
        }
    }
}
