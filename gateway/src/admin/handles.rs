//! What the admin API needs from the rest of the process, as traits and plain values. The process
//! implements them in its composition root, so that this module imports none of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_ratelimit::Ramp;

use crate::flow::ManualBreaker;
use crate::identity::UserInfo;

/// Something that can be asked for its present value, without waiting.
pub type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// A breaker as the API shows it, whatever its scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerRow {
    /// `cluster`, `rule`, `client` or `endpoint`.
    pub scope: String,
    /// Which.
    pub name: String,
    /// `closed`, `open`, `half-open` or `ramp`.
    pub phase: String,
    /// What share passes, in per cent.
    pub admitting_percent: u8,
    /// Why it left `closed`.
    #[serde(default)]
    pub reason: String,
    /// Who moved it; empty when it moved by itself.
    #[serde(default)]
    pub by: String,
    /// How long it has been in its phase.
    pub since_seconds: u64,
    /// Until the phase ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_seconds: Option<u64>,
    /// How many requests it refused.
    pub refused: u64,
}

impl From<ManualBreaker> for BreakerRow {
    fn from(breaker: ManualBreaker) -> Self {
        let ManualBreaker {
            scope,
            name,
            phase,
            admitting_percent,
            reason,
            by,
            since_seconds,
            remaining_seconds,
            refused,
        } = breaker;
        BreakerRow {
            scope: scope.as_str().to_owned(),
            name,
            phase: phase.to_owned(),
            admitting_percent,
            reason,
            by,
            since_seconds,
            remaining_seconds,
            refused,
        }
    }
}

/// Why a breaker was not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakerError {
    /// There is none of that name; 404.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be moved so; 409.
    #[error("{0}")]
    Conflict(String),
}

/// The breakers of endpoints, which live with the upstream clusters. Endpoints are named as
/// `/admin/v1/endpoints` shows them.
pub trait EndpointBreakers: Send + Sync {
    /// All that are not closed.
    fn list(&self) -> Vec<BreakerRow>;

    /// Opens one by hand, for some time or until it is reset.
    ///
    /// # Errors
    /// [`BreakerError`] when there is no such endpoint.
    fn trip(
        &self,
        name: &str,
        reason: &str,
        lasting: Option<Duration>,
        by: &str,
    ) -> Result<(), BreakerError>;

    /// Closes one by hand.
    ///
    /// # Errors
    /// [`BreakerError`] when there is no such endpoint, or it is closed.
    fn reset(&self, name: &str) -> Result<(), BreakerError>;

    /// Lets a growing share pass.
    ///
    /// # Errors
    /// [`BreakerError`] when there is no such endpoint.
    fn ramp(&self, name: &str, ramp: Ramp, by: &str) -> Result<(), BreakerError>;
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// Grows with each configuration that is put in force.
    pub generation: u64,
    /// Why the last attempt was not, if so; the one before stays in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The process, as far as operators move it.
pub trait Control: Send + Sync {
    /// The configuration in force.
    fn config(&self) -> ConfigView;

    /// Reads the files again and puts them in force. Called where blocking is allowed.
    ///
    /// # Errors
    /// What is wrong with them, with file, line and column; nothing has changed then.
    fn reload(&self) -> Result<ConfigView, String>;

    /// Begins to drain, and returns at once.
    fn drain(&self);

    /// The names of the upstream clusters, to tell a typing error from a trip.
    fn clusters(&self) -> Vec<String>;
}

/// A change that somebody asked for by the admin API.
#[derive(Clone, Debug)]
pub struct AdminChange {
    /// Who.
    pub who: Arc<UserInfo>,
    /// From where.
    pub from: SocketAddr,
    /// What: `breaker.trip`, `breaker.reset`, `breaker.ramp`, `reload`, `drain`.
    pub action: &'static str,
    /// To what: `cluster/prod`; empty for the whole process.
    pub target: String,
    /// How: `for 10m`, `from 5% over 10m`.
    pub how: String,
    /// Why, in the operator's words.
    pub reason: String,
    /// What came of it.
    pub outcome: Result<(), String>,
}

/// Where changes by the admin API are written down.
pub trait AuditSink: Send + Sync {
    /// Called once for each attempt, before it is answered. Must not wait.
    fn record(&self, change: &AdminChange);
}
