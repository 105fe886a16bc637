//! The command line: one file a subcommand.

mod admin_client;
mod output;

pub mod breaker;

pub use admin_client::{AdminClient, AdminClientError, AdminConnection};
pub use output::OutputFormat;
