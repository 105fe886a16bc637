//! `sluice version`.

use std::process::ExitCode;

pub(super) fn run() -> ExitCode {
    println!("sluice {}", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
