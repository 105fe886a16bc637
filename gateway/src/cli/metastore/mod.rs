//! `sluice metastore ...`: the store alone, one file a subcommand, and here only which there are.

mod migrate;
mod scheduled;
mod serve;
mod snapshot;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(super) enum MetastoreCommand {
    /// Serve the etcd v3 API from a data directory
    Serve(Box<serve::ServeArgs>),
    /// Move a store from or to a live etcd or another Sluice
    Migrate(Box<migrate::MigrateArgs>),
    /// Save, restore and look through snapshots, which are etcd's own kind
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
}

pub(super) fn run(command: MetastoreCommand) -> ExitCode {
    match command {
        MetastoreCommand::Serve(args) => serve::run(*args),
        MetastoreCommand::Migrate(args) => migrate::run(*args),
        MetastoreCommand::Snapshot(command) => snapshot::run(command),
    }
}
