//! Where a cluster's endpoints are asked for, beside the list that is written.

use serde::Deserialize;

use crate::address::EndpointUrl;
use crate::located::Located;
use crate::units::TimeSpan;

/// Who knows the endpoints: one of these. Those that are written are kept for when none of the
/// found ones can be used.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Discovery {
    /// The addresses of a name.
    pub dns: Option<Dns>,
    /// The cluster itself: its EndpointSlice `kubernetes` in the namespace `default`.
    pub kubernetes: Option<Slice>,
}

/// The addresses of a name, each an endpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Dns {
    /// `https://name:port`; certificates must bear the name, or `tls.serverName`.
    pub url: Located<EndpointUrl>,
    /// From one question to the next, a tenth more or less.
    #[serde(default = "default_dns_interval")]
    pub interval: Located<TimeSpan>,
}

/// The EndpointSlice that kube-apiservers keep of themselves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Slice {
    /// From one question to the next, a tenth more or less.
    #[serde(default = "default_slice_interval")]
    pub interval: Located<TimeSpan>,
}

/// As long as resolvers in a cluster keep an answer.
fn default_dns_interval() -> Located<TimeSpan> {
    Located::unwritten(TimeSpan::from_secs(30))
}

/// An apiserver that has gone leaves the slice after fifteen seconds.
fn default_slice_interval() -> Located<TimeSpan> {
    Located::unwritten(TimeSpan::from_secs(5))
}
