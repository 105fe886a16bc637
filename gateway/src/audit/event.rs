//! What is known of one finished request, or of one change by an operator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::context::RequestId;
use crate::identity::UserInfo;
use crate::request::RequestInfo;

/// How far a request is when it is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventStage {
    /// A tunnel stands; its end is another event.
    Started,
    /// It is over.
    #[default]
    Complete,
}

/// A finished request, or a tunnel that has begun.
#[derive(Clone, Debug)]
pub struct Event {
    /// How far it is.
    pub stage: EventStage,
    /// The request's number.
    pub id: RequestId,
    /// When its head had been read, as time since the Unix epoch.
    pub received: Duration,
    /// From its head to its last byte.
    pub took: Duration,
    /// From its head to the answer's head, where one came.
    pub head_took: Duration,
    /// What it asked for; `None` when that could not be read.
    pub info: Option<RequestInfo>,
    /// Method and URI as they came, for requests that could not be read.
    pub raw: Option<Box<(String, String)>>,
    /// Who made it; `None` when that was not found out.
    pub user: Option<Arc<UserInfo>>,
    /// With `--as`, who really made it.
    pub impersonator: Option<Arc<UserInfo>>,
    /// The client's address.
    pub source: SocketAddr,
    /// Its user agent.
    pub user_agent: Option<HeaderValue>,
    /// The answer's code.
    pub code: u16,
    /// Bytes of the answer's body, or those that a tunnel has carried to the client.
    pub sent: u64,
    /// Bytes that a tunnel has carried from the client.
    pub taken: u64,
    /// Whether the answer broke off before its end.
    pub broken: bool,
    /// What the phases added.
    pub facts: Facts,
}

/// What the gateway's phases know beyond a kube-apiserver's audit.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The cluster it went to.
    pub cluster: Option<Arc<str>>,
    /// The endpoint that answered.
    pub endpoint: Option<Arc<str>>,
    /// How many endpoints or connections were tried.
    pub attempts: u32,
    /// The flow rule that matched.
    pub rule: Option<Arc<str>>,
    /// The phase that refused it, when the answer is the gateway's own.
    pub refused_by: Option<&'static str>,
    /// Rules in observe mode that would have refused it.
    pub would_refuse: Vec<Arc<str>>,
}

/// A change by an operator through the admin API.
#[derive(Clone, Debug)]
pub struct AdminChange {
    /// When, as time since the Unix epoch.
    pub at: Duration,
    /// Who: the certificate's user.
    pub user: String,
    /// Their groups.
    pub groups: Vec<String>,
    /// From where.
    pub source: Option<SocketAddr>,
    /// The admin API's path.
    pub path: String,
    /// What was done, in a word: `trip`, `reset`, `ramp`, `reload`, `drain`.
    pub verb: String,
    /// To what.
    pub target: String,
    /// Why, as the operator said.
    pub reason: String,
    /// The answer's code.
    pub code: u16,
}
