//! `/version`: which Kubernetes this API behaves as.
//!
//! Clients choose features by it, so it names a recent release; what comes after the plus is ours.

use serde_json::{Value, json};

/// The Kubernetes release whose behaviour the API follows.
pub const MAJOR: &str = "1";
/// Its minor number.
pub const MINOR: &str = "36";
/// The whole version as clients read it.
pub const GIT_VERSION: &str = concat!("v1.36.2+sluice-", env!("CARGO_PKG_VERSION"));

/// The document.
#[must_use]
pub fn document() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
