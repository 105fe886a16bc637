//! The `sluice` binary: the allocator, and the command line.

use std::process::ExitCode;

/// The only allocator of the process; it builds in a second.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sluice_gateway::cli::main()
}
