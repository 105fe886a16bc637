//! `sluice metastore snapshot ...`: a store as a file and back, with the names of etcdctl and etcdutl
//! for commands and flags that mean the same.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use sluice_metastore::backup::{Bump, Contents, HashCheck, PartFile, Summary};
use sluice_metastore::{Error, Revision};

use crate::cli::fail;
use crate::cli::output::table;
use crate::cli::progress::Progress;
use crate::migrate::{Access, MigrateError, Report, TlsFiles, fetch_snapshot};

/// The length of a file with its checksum at the end, modulo a sector.
const WITH_CHECKSUM: u64 = 32;
const SECTOR: u64 = 512;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SnapshotCommand {
    /// Save a snapshot of a running Sluice or etcd
    Save(SaveArgs),
    /// Make a data directory of a snapshot, of Sluice or of etcd
    Restore(RestoreArgs),
    /// Say what a snapshot holds, as etcdutl does
    Status(StatusArgs),
    /// Look through a whole snapshot and say what is wrong with it and where
    Verify(FileArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct SaveArgs {
    /// Where the server is: https://HOST:PORT
    #[arg(
        long,
        value_name = "URL",
        alias = "endpoints",
        env = "ETCDCTL_ENDPOINTS"
    )]
    endpoint: String,
    /// CAs that sign the server, PEM
    #[arg(long, value_name = "FILE", env = "ETCDCTL_CACERT")]
    cacert: Option<PathBuf>,
    /// Client certificate, PEM
    #[arg(long, value_name = "FILE", env = "ETCDCTL_CERT")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, value_name = "FILE", env = "ETCDCTL_KEY")]
    key: Option<PathBuf>,
    /// The file to write, which must not be there
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct FileArgs {
    /// The snapshot
    file: PathBuf,
    /// Take a database file without the checksum that snapshots end with
    #[arg(long)]
    skip_hash_check: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct StatusArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The form of what is printed
    #[arg(short, long, value_name = "FORM", default_value = "simple")]
    write_out: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Simple,
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The data directory to make, which must be empty or absent
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Raise the revision by so much, so that it is above all that clients of the lost server saw
    #[arg(
        long,
        value_name = "N",
        requires = "mark_compacted",
        default_value_t = 0
    )]
    bump_revision: u64,
    /// Goes with --bump-revision: all before counts as compacted, so that watches begin anew
    #[arg(long, requires = "bump_revision")]
    mark_compacted: bool,
}

pub(super) fn run(command: SnapshotCommand) -> ExitCode {
    let done = match command {
        SnapshotCommand::Save(args) => save(args),
        SnapshotCommand::Restore(args) => restore(&args),
        SnapshotCommand::Status(args) => status(&args),
        SnapshotCommand::Verify(args) => verify(&args),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => fail(e),
    }
}

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Server(#[from] MigrateError),
    #[error("{0}")]
    Other(String),
}

fn save(args: SaveArgs) -> Result<String, Failure> {
    let SaveArgs {
        endpoint,
        cacert,
        cert,
        key,
        file,
    } = args;
    if endpoint.contains(',') {
        let text = format!("--endpoint {endpoint}: a snapshot is of one server: name one");
        return Err(Failure::Other(text));
    }
    let access = Access {
        endpoints: endpoint,
        tls: TlsFiles { cacert, cert, key },
    };
    let part = PartFile::create(&file)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::Other(e.to_string()))?;
    let part = runtime.block_on(fetch(&access, part))?;
    part.sync()?;
    let contents = look(part.part(), HashCheck::Wanted)?;
    let digest = contents.digest(&mut |_, _| {})?;
    part.finish()?;
    Ok(format!(
        "saved {}: {}, digest {}",
        file.display(),
        told(contents.summary()),
        digest.get()
    ))
}

async fn fetch(access: &Access, mut part: PartFile) -> Result<PartFile, Failure> {
    let progress = Arc::new(Progress::new());
    let report: Arc<dyn Report> = progress.clone();
    let (mut done, mut is_begun) = (0_u64, false);
    fetch_snapshot(access, report, &mut |piece, left| {
        done += piece.len() as u64;
        if !is_begun {
            progress.begin("saving", "bytes", Some(done + left + WITH_CHECKSUM));
            is_begun = true;
        }
        part.write(&piece)?;
        progress.at(done, 0);
        Ok::<_, Failure>(())
    })
    .await?;
    progress.end();
    if done % SECTOR != WITH_CHECKSUM {
        let text = format!("the server ended after {done} bytes, without a checksum: try again");
        return Err(Failure::Other(text));
    }
    Ok(part)
}

fn restore(args: &RestoreArgs) -> Result<String, Failure> {
    let RestoreArgs {
        file,
        data_dir,
        bump_revision,
        mark_compacted: _,
    } = args;
    let contents = look(&file.file, file.check())?;
    let progress = Progress::new();
    let mut is_begun = false;
    let bump = Bump { by: *bump_revision };
    let holder = format!("sluice restore, process {}", std::process::id());
    let restored = contents.restore(data_dir, &holder, bump, &mut |done, all| {
        if !is_begun {
            progress.begin("restoring", "versions", Some(all));
            is_begun = true;
        }
        progress.at(done, 0);
    })?;
    progress.end();
    let mut text = format!(
        "restored {} into {}: revision {}, {}, {} keys, {} leases, digest {}\nserve it: sluice \
         metastore serve --data-dir {}",
        file.file.display(),
        data_dir.display(),
        restored.revision,
        history(restored.compacted),
        restored.made.keys,
        restored.made.leases,
        restored.made.digest.get(),
        data_dir.display(),
    );
    if contents.summary().has_users {
        text += "\nthe server it is from asked for users and passwords, which are left behind: here \
                 certificates say who may do what";
    }
    Ok(text)
}

fn status(args: &StatusArgs) -> Result<String, Failure> {
    let contents = look(&args.file.file, args.file.check())?;
    let summary = contents.summary();
    let cells = [
        format!("{:x}", summary.hash),
        summary.revision.to_string(),
        summary.total_keys.to_string(),
        size(summary.total_size),
        summary.version.clone(),
    ];
    Ok(match args.write_out {
        Form::Simple => cells.join(", "),
        Form::Table => {
            let head = ["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "VERSION"];
            table(head, &[cells]).trim_end().to_owned()
        }
        Form::Json => serde_json::json!({
            "hash": summary.hash,
            "revision": summary.revision.get(),
            "totalKey": summary.total_keys,
            "totalSize": summary.total_size,
            "version": summary.version,
        })
        .to_string(),
    })
}

fn verify(args: &FileArgs) -> Result<String, Failure> {
    let contents = look(&args.file, args.check())?;
    let progress = Progress::new();
    let versions = contents.summary().versions;
    progress.begin("reading values", "versions", Some(versions));
    let digest = contents.digest(&mut |done, _all| progress.at(done, 0))?;
    progress.end();
    let checked = match args.check() {
        HashCheck::Wanted => "whole",
        HashCheck::Skipped => "readable, though no checksum says that it is whole",
    };
    Ok(format!(
        "{} is {checked}: {}, digest {}\nthe digest is the hash that `etcdctl endpoint hashkv --rev \
         {}` answers on a Sluice with this content",
        args.file.display(),
        told(contents.summary()),
        digest.get(),
        contents.summary().revision,
    ))
}

impl FileArgs {
    fn check(&self) -> HashCheck {
        if self.skip_hash_check {
            HashCheck::Skipped
        } else {
            HashCheck::Wanted
        }
    }
}

/// Looks a file through, saying how far it is.
fn look(file: &Path, check: HashCheck) -> Result<Contents, Failure> {
    let progress = Progress::new();
    let mut is_begun = false;
    let contents = Contents::read(file, check, &mut |done, all| {
        if !is_begun {
            progress.begin("looking through", "bytes", Some(all));
            is_begun = true;
        }
        progress.at(done, 0);
    })?;
    progress.end();
    Ok(contents)
}

fn told(summary: &Summary) -> String {
    format!(
        "revision {}, {}, {} keys, {} versions, {} leases, {}",
        summary.revision,
        history(summary.compacted),
        summary.total_keys,
        summary.versions,
        summary.leases,
        size(summary.total_size)
    )
}

fn history(compacted: Revision) -> String {
    if compacted == Revision::ZERO {
        "all history".to_owned()
    } else {
        format!("history from {compacted}")
    }
}

/// A size as etcdutl prints it: thousands, and one digit after the point below ten.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut unit, mut scale) = (0, 1_u64);
    while bytes / scale >= 1000 {
        unit += 1;
        scale *= 1000;
    }
    let name = UNITS.get(unit).unwrap_or(&"B");
    if unit == 0 {
        return format!("{bytes} {name}");
    }
    let tenths = (u128::from(bytes) * 10 + u128::from(scale) / 2) / u128::from(scale);
    if tenths < 100 {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    } else {
        format!("{} {name}", (tenths + 5) / 10)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: SnapshotCommand,
    }

    #[test]
    fn a_raised_revision_and_its_mark_go_together() {
        let parse = |line: &str| {
            let words = ["snapshot"].into_iter().chain(line.split_whitespace());
            Line::try_parse_from(words)
        };
        parse("restore f --data-dir d").unwrap();
        parse("restore f --data-dir d --bump-revision 9 --mark-compacted").unwrap();
        for (wrong, told) in [
            (
                "restore f --data-dir d --bump-revision 9",
                "--mark-compacted",
            ),
            ("restore f --data-dir d --mark-compacted", "--bump-revision"),
            ("restore f", "--data-dir"),
            ("save --endpoint http://a:1", "FILE"),
        ] {
            let fault = parse(wrong).unwrap_err().to_string();
            assert!(fault.contains(told), "{wrong}: {fault}");
        }
    }

    #[test]
    fn sizes_are_as_etcdutl_prints_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (20_512, "21 kB"),
            (1_376_256, "1.4 MB"),
            (8_589_934_592, "8.6 GB"),
            (82_854_982, "83 MB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
