//! Why the process cannot start. Each text names the thing and says what to do, since it is all
//! that an operator sees.

/// Why the process cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The files operators write have faults.
    #[error("{0}")]
    Config(#[from] sluice_config::Diagnostics),
    /// The rules have faults, and those last in force cannot stand in for them.
    #[error("{faults}\n{also}")]
    Rules {
        /// Of the rules folder.
        faults: sluice_config::Diagnostics,
        /// Why the others cannot be had.
        also: sluice_config::KeptError,
    },
    /// What they say cannot be put to work.
    #[error("{0}")]
    Control(#[from] crate::control::AssembleError),
    /// An address cannot be listened on.
    #[error("{0}")]
    Bind(#[from] crate::listener::BindError),
    /// A process cannot take over from another, or be taken over from.
    #[error("{0}")]
    Handover(#[from] super::HandoverError),
    /// The etcd listener cannot be had.
    #[error("{0}")]
    Etcd(#[from] sluice_metastore::etcd::ListenError),
    /// The store cannot be opened.
    #[error("the metastore cannot be opened: {0}")]
    Store(#[from] sluice_metastore::Error),
    /// A certificate cannot be used.
    #[error("{what}: {source}")]
    Tls {
        /// Whose.
        what: &'static str,
        /// Why.
        source: crate::listener::TlsError,
    },
    /// A file cannot be read or written.
    #[error("{what} {path}: {source}")]
    File {
        /// What it is for.
        what: &'static str,
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Metrics cannot be set up.
    #[error("{0}")]
    Telemetry(#[from] crate::telemetry::TelemetryError),
    /// Traces cannot be set up.
    #[error("{0}")]
    Traces(#[from] crate::telemetry::TraceFault),
    /// The log level cannot be read.
    #[error("{0}")]
    Log(String),
    /// The operating system refuses something every process needs.
    #[error("the operating system refuses: {0}")]
    System(#[from] std::io::Error),
    /// A task of the process's own ended badly.
    #[error("a task of the process ended badly: {0}")]
    Task(#[from] tokio::task::JoinError),
}
