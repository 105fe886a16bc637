//! Classify, break, limit: which rule a request falls under, and whether it may go on.
//!
//! [`FlowSpec`] is what operators wrote, as plain values; [`FlowTable::compile`] makes of it one
//! immutable table a cluster, evaluated in the order of the rules, each rule's cheapest predicate
//! first. What has happened (buckets, permits, counters, breakers) is not in the table but in
//! [`LiveState`], found by stable ids: any number of tables come and go over it, and a reload
//! neither refills a bucket nor drops a permit.
//!
//! The order within one request: breakers of cluster and client, then for each matching rule its
//! breaker and its limits, up to the first rule that is enforced. It reads no body, waits for
//! nothing but a turn in the line that a rule may have, and knows neither configuration types nor HTTP beyond [`crate::status::Refusal`].

mod admission;
mod breakers;
mod live;
mod matcher;
mod refuse;
mod shares;
mod spec;
mod table;
mod terms;
mod turn;

#[cfg(test)]
mod tests;

pub use admission::Admission;
pub use breakers::{BreakerFault, Breakers, Heartbeats, ManualBreaker, Scope, Trip};
pub use live::{LiveState, RuleCounts};
pub use spec::{
    FlowSpec, InFlightSpec, KeyField, MatchSpec, Mode, QueueSpec, RateSpec, Refuse, RuleSpec,
    SendSpec, SpecFault,
};
pub use table::{Entry, FlowTable, FlowView};
pub use turn::Waiting;
