//! The command line of `sluice` in a process that dies at a step of its store's, as by `kill -9`,
//! for the suites that start it again.
//!
//! ```text
//! SLUICE_DIE_AT="write segment half" SLUICE_DIE_AFTER=3 mortal metastore serve --data-dir DIR ...
//! ```
//!
//! `sluice_metastore::faults::die_at` says what steps there are; without one it is `sluice`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let passes = std::env::var("SLUICE_DIE_AFTER").ok();
    let passes = passes.map_or(Ok(0), |text| text.parse::<u64>());
    let passes = passes.map_err(|error| format!("SLUICE_DIE_AFTER: {error}"));
    let planned = passes.and_then(|passes| match std::env::var("SLUICE_DIE_AT") {
        Ok(path) => sluice_metastore::faults::die_at(&path, passes),
        Err(_unset) => Ok(()),
    });
    if let Err(error) = planned {
        eprintln!("mortal: {error}");
        return ExitCode::FAILURE;
    }
    sluice_gateway::cli::main()
}
