//! `sluice completion bash|zsh|fish|...`: a script for the shell to load.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _};

#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &CompletionArgs) -> ExitCode {
    let mut command = super::Cli::command();
    clap_complete::generate(args.shell, &mut command, "sluice", &mut std::io::stdout());
    ExitCode::SUCCESS
}
