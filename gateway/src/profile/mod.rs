//! What the audit stream says about each client: how often it asks for what, how long that takes,
//! how much it is sent, and what was refused. Built from that stream alone, in bounded memory.
//!
//! A row is a (client, verb, group, resource); a client is a user name, that is, what limits are
//! keyed by. It knows neither limits nor upstreams.

mod row;
mod table;
mod view;

pub use table::{ProfileSink, Profiles};
pub use view::{ClientView, RowView, ShapesView};

#[cfg(test)]
mod tests;
