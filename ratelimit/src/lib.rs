//! Admission decisions: quotas, keys, costs and time.
//!
//! Every function here takes the present ([`Moment`]) and its randomness as arguments, answers at
//! once, and holds no configuration: a quota, a maximum or a breaker's policy is handed in with
//! each question, while only what has happened is kept. So a reload needs no hand-over, and
//! can neither refill a bucket nor forget a permit or an open breaker.
//!
//! | question | answered by |
//! | --- | --- |
//! | how often | [`Bucket`], by GCRA |
//! | how many at once, and who is next | [`InFlight`], handing out [`Permit`]s and [`Place`]s |
//! | how much, known only afterwards | [`Debt`] |
//! | whether at all | [`Breaker`] |
//! | for whom | [`Keyed`], (rule, key) to any of these, bounded |
//!
//! It knows neither HTTP nor who a user is, and nothing in it is `async`.

mod breaker;
mod bucket;
mod debt;
mod decision;
mod inflight;
mod key;
mod keyed;
mod moment;
mod quota;
mod spread;

pub use breaker::{
    Breaker, BreakerPolicy, BreakerView, Cause, FailureRatio, Outcome, Pass, Percent, PhaseView,
    Ramp,
};
pub use bucket::Bucket;
pub use debt::Debt;
pub use decision::{Decision, Limits, Reason, Rejection, decide};
pub use inflight::{InFlight, Joined, Permit, Place};
pub use key::{Key, RuleId};
pub use keyed::{Idle, KEYS_MAX_DEFAULT, Keyed};
pub use moment::{Epoch, Moment};
pub use quota::{Quota, QuotaError};
