//! Logs on standard error, as JSON lines or as text; levels as the process file says, or by module
//! with the usual filter directives. Colours only where a terminal shows them.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For a person.
    Text,
}

/// Starts logging for the process; a second call changes nothing.
///
/// # Errors
/// When `filter` is not one: a level, or directives such as `info,sluice_gateway::upstream=debug`.
pub fn init(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|e| format!("log level {filter:?} cannot be read: {e}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .finish()
            .try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
    Ok(())
}
