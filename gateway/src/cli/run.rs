//! `sluice run`: the gateway by a process file, or all-in-one by a development directory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::bootstrap;
use crate::bootstrap::dev::{self, DevOptions};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The process file (kind: GatewayConfig)
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "dev",
        conflicts_with = "dev"
    )]
    config: Option<PathBuf>,
    /// Take over from the running process, if there is one: its listening sockets and its data
    /// directory, by the process file's upgradeSocket
    #[arg(long, conflicts_with = "dev")]
    upgrade: bool,
    /// All-in-one with certificates and a kubeconfig of its own; not for production
    #[arg(long)]
    dev: bool,
    /// The development directory
    #[arg(long, value_name = "DIR", default_value = ".sluice", requires = "dev")]
    dir: PathBuf,
    /// The Kubernetes API's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 6443, requires = "dev")]
    api_port: u16,
    /// The etcd API's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 2379, requires = "dev")]
    etcd_port: u16,
    /// The admin API's port on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 9443, requires = "dev")]
    admin_port: u16,
}

pub(super) fn run(args: RunArgs) -> ExitCode {
    let RunArgs {
        config,
        upgrade,
        dev: _,
        dir,
        api_port,
        etcd_port,
        admin_port,
    } = args;
    if let Some(config) = config {
        return super::ended(bootstrap::run(&config, upgrade, None));
    }
    let options = DevOptions {
        dir,
        api_port,
        etcd_port,
        admin_port,
    };
    match dev::prepare(&options) {
        // The files, and with them the directory, are held until the end.
        Ok(files) => {
            let greeting = dev::greeting(&files, &options);
            super::ended(bootstrap::run(&files.config, false, Some(greeting)))
        }
        Err(e) => super::fail(e),
    }
}
