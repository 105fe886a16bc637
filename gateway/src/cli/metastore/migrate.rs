//! `sluice metastore migrate`: a store moved from or to a live etcd, with etcdctl's own names for
//! flags that mean the same.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::serve::time;
use crate::cli::fail;
use crate::cli::progress::Progress;
use crate::migrate::{
    Access, Done, Follow, IntoDirectory, IntoLive, MigrateError, Origin, Report, TlsFiles,
};

/// What a shell says of a process that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

#[derive(Debug, Args)]
pub(in crate::cli) struct MigrateArgs {
    /// A live etcd or Sluice to read: https://HOST:PORT, several with commas
    #[arg(long, value_name = "ENDPOINTS")]
    from: Option<String>,
    /// With --from: the directory to make, exact to the revision. With --to: the one to read, which
    /// nobody serves meanwhile
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// A live etcd or Sluice to write to, by its API: keys and values are the same, revisions higher
    #[arg(long, value_name = "ENDPOINTS")]
    to: Option<String>,
    /// With --to: only keys that begin like this; may be given again
    #[arg(long, value_name = "PREFIX")]
    prefix: Vec<String>,
    /// With --data-dir: carry the source's writes over until told to end (Ctrl-C, SIGTERM)
    #[arg(long)]
    follow: bool,
    /// Follow, and end by itself once nothing was written for this long
    #[arg(long, value_name = "TIME", value_parser = time)]
    until_idle: Option<Duration>,
    /// With --to: raise the target's revision above the source's, however many writes that takes
    #[arg(long)]
    pad: bool,
    /// With --to: let the target hold keys there; those that the source does not have are deleted
    #[arg(long)]
    overwrite: bool,
    /// Only go on with an unfinished move (the same command does that anyway), begin none
    #[arg(long)]
    resume: bool,
    /// Do not read and compare both sides at the end
    #[arg(long)]
    no_verify: bool,
    /// CAs that sign the servers, PEM
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Client certificate, PEM
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// In place of --cacert, for the source
    #[arg(long, value_name = "FILE")]
    from_cacert: Option<PathBuf>,
    /// In place of --cert, for the source
    #[arg(long, value_name = "FILE")]
    from_cert: Option<PathBuf>,
    /// In place of --key, for the source
    #[arg(long, value_name = "FILE")]
    from_key: Option<PathBuf>,
    /// In place of --cacert, for the target
    #[arg(long, value_name = "FILE")]
    to_cacert: Option<PathBuf>,
    /// In place of --cert, for the target
    #[arg(long, value_name = "FILE")]
    to_cert: Option<PathBuf>,
    /// In place of --key, for the target
    #[arg(long, value_name = "FILE")]
    to_key: Option<PathBuf>,
}

/// What was asked for.
#[derive(Debug)]
enum Job {
    Directory(IntoDirectory),
    Live(IntoLive),
}

pub(super) fn run(args: MigrateArgs) -> ExitCode {
    let job = match args.lower() {
        Ok(job) => job,
        Err(e) => return fail(e),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(work(job)),
        Err(e) => return fail(e),
    };
    match done {
        Ok(done) => {
            println!("{}", told(&done));
            ExitCode::SUCCESS
        }
        Err(e) => fail(e),
    }
}

async fn work(job: Job) -> Result<Done, MigrateError> {
    let stop = CancellationToken::new();
    let report: Arc<dyn Report> = Arc::new(Progress::new());
    // Ends with the runtime.
    tokio::spawn(end_on_signal(stop.clone()));
    match job {
        Job::Directory(job) => job.run(stop, report).await,
        Job::Live(job) => job.run(stop, report).await,
    }
}

/// The first signal asks for an end, the second one is it: all that is done can be gone on with.
async fn end_on_signal(stop: CancellationToken) {
    let Ok(mut signals) = crate::bootstrap::EndSignals::listen() else {
        return;
    };
    signals.next().await;
    stop.cancel();
    signals.next().await;
    std::process::exit(INTERRUPTED);
}

fn told(done: &Done) -> String {
    let mut text = format!(
        "moved: source at revision {}, here at {}",
        done.source_revision, done.revision
    );
    match &done.compared {
        None => text += "\nnot compared",
        Some(equal) => {
            text += &format!(
                "\nboth sides are the same: {} keys, {} bytes, sha256 {}",
                equal.keys, equal.bytes, equal.digest
            );
            if equal.leased > 0 {
                text += &format!("\nand {} keys on leases, compared one by one", equal.leased);
            }
        }
    }
    text
}

impl MigrateArgs {
    fn access(&self, endpoints: &str, own: [&Option<PathBuf>; 3]) -> Access {
        let [cacert, cert, key] = own;
        Access {
            endpoints: endpoints.to_owned(),
            tls: TlsFiles {
                cacert: cacert.as_ref().or(self.cacert.as_ref()).cloned(),
                cert: cert.as_ref().or(self.cert.as_ref()).cloned(),
                key: key.as_ref().or(self.key.as_ref()).cloned(),
            },
        }
    }

    fn lower(self) -> Result<Job, String> {
        let own = [&self.from_cacert, &self.from_cert, &self.from_key];
        let from = self.from.as_deref().map(|given| self.access(given, own));
        let own = [&self.to_cacert, &self.to_cert, &self.to_key];
        let to = self.to.as_deref().map(|given| self.access(given, own));
        let origin = match (from, to, self.data_dir.clone()) {
            (Some(from), None, Some(dir)) => return self.into_directory(from, dir),
            (Some(from), Some(to), None) => (Origin::Live(from), to),
            (None, Some(to), Some(dir)) => (Origin::Directory(dir), to),
            _ => {
                return Err(
                    "name a source and a destination: --from and --data-dir (into a directory), \
                     --from and --to, or --data-dir and --to (into a live store)"
                        .to_owned(),
                );
            }
        };
        if self.follow || self.until_idle.is_some() {
            return Err(
                "--follow and --until-idle go with --from and --data-dir; into a live store, run \
                 the same command again with --overwrite when the writers have stopped: it writes \
                 only what changed since"
                    .to_owned(),
            );
        }
        let prefixes = self.prefix.into_iter().map(Bytes::from).collect();
        Ok(Job::Live(IntoLive {
            from: origin.0,
            to: origin.1,
            prefixes,
            pad: self.pad,
            overwrite: self.overwrite,
            compare: !self.no_verify,
            resume_only: self.resume,
        }))
    }

    fn into_directory(self, from: Access, dir: PathBuf) -> Result<Job, String> {
        if !self.prefix.is_empty() || self.pad || self.overwrite {
            return Err(
                "--prefix, --pad and --overwrite go with --to: a data directory is made whole and \
                 exact, in an empty place"
                    .to_owned(),
            );
        }
        let follow = (self.follow || self.until_idle.is_some()).then_some(Follow {
            until_idle: self.until_idle,
        });
        Ok(Job::Directory(IntoDirectory {
            from,
            dir,
            follow,
            compare: !self.no_verify,
            resume_only: self.resume,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: MigrateArgs,
    }

    fn lower(line: &str) -> Result<Job, String> {
        let words = ["migrate"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args.lower()
    }

    #[test]
    fn flags_say_which_way_or_are_refused() {
        let Ok(Job::Directory(job)) = lower(
            "--from https://a:1 --data-dir d --until-idle 5s --cacert c --from-cert x --from-key y",
        ) else {
            panic!("into a directory");
        };
        assert_eq!(job.from.tls.cacert, Some(PathBuf::from("c")));
        assert_eq!(job.from.tls.cert, Some(PathBuf::from("x")));
        let idle = job.follow.and_then(|follow| follow.until_idle);
        assert_eq!(idle, Some(Duration::from_secs(5)));
        let line = "--from http://a:1 --to https://b:1 --prefix /a --prefix /b --to-cacert t";
        let Ok(Job::Live(job)) = lower(line) else {
            panic!("into a live store");
        };
        assert_eq!(job.prefixes, ["/a", "/b"]);
        assert_eq!(job.to.tls.cacert, Some(PathBuf::from("t")));
        assert!(matches!(
            lower("--data-dir d --to http://b:1"),
            Ok(Job::Live(_))
        ));
        for (wrong, told) in [
            ("", "--from and --data-dir"),
            ("--from http://a:1", "--from and --data-dir"),
            ("--from a --to b --data-dir d", "--from and --data-dir"),
            ("--from a --to b --follow", "--overwrite"),
            ("--from a --data-dir d --pad", "go with --to"),
            ("--from a --data-dir d --prefix /x", "go with --to"),
        ] {
            let error = lower(wrong).unwrap_err();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }
}
