//! The command line: one file a subcommand, and here only which there are.

mod admin_client;
mod completion;
mod metastore;
mod output;
mod progress;
mod run;
mod version;

pub mod breaker;
pub mod check;
pub mod import;
pub mod rules;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::bootstrap::{BootstrapError, Ended};

pub use admin_client::{AdminClient, AdminClientError, AdminConnection};
pub use output::OutputFormat;

#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    about = "A Layer-7 gateway for kube-apiserver with a metastore of its own",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Run(run::RunArgs),
    /// Say everything that is wrong with a process file, its rules and every file they name
    Check(check::CheckArgs),
    /// See and move the breakers of a running gateway
    Breaker(breaker::BreakerArgs),
    /// Print another gateway's objects in this one's form
    Import(import::ImportArgs),
    /// Work on rule files
    Rules(rules::RulesArgs),
    /// The store alone, and what belongs to it
    #[command(subcommand)]
    Metastore(metastore::MetastoreCommand),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completion(completion::CompletionArgs),
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(&args),
        Command::Breaker(args) => move_breakers(args),
        Command::Import(args) => import::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Metastore(command) => metastore::run(command),
        Command::Version => version::run(),
        Command::Completion(args) => completion::run(&args),
    }
}

/// The exit code of a process that served: 0 when it drained or was taken over from, 1 when it failed, and what a shell
/// says of a signal when that cut the end short.
fn ended(served: Result<Ended, BootstrapError>) -> ExitCode {
    const SIGNALLED: u8 = 128;
    match served {
        Ok(Ended::Drained | Ended::HandedOver) => ExitCode::SUCCESS,
        Ok(Ended::Cut(signal)) => ExitCode::from(SIGNALLED.saturating_add(signal)),
        Err(e) => fail(e),
    }
}

/// Prints why a command failed, in one line to standard error, and answers with exit code 1.
fn fail(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("sluice: {why}");
    ExitCode::FAILURE
}

/// The admin client is the only subcommand that needs a runtime and nothing else.
fn move_breakers(args: breaker::BreakerArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(breaker::run(args, &mut std::io::stdout())),
        Err(e) => return fail(e),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(e),
    }
}
