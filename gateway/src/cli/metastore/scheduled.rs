//! The flags of `sluice metastore serve` for snapshots on a schedule.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sluice_config::TimeSpan;
use sluice_metastore::backup::Schedule;

#[derive(Debug, Args)]
pub(in crate::cli) struct SnapshotFlags {
    /// Take snapshots on a schedule into this folder, best on another disk than --data-dir
    #[arg(long, value_name = "DIR")]
    snapshots_dir: Option<PathBuf>,
    /// From one scheduled snapshot to the next
    #[arg(long, value_name = "TIME", default_value = "6h", value_parser = interval,
          requires = "snapshots_dir")]
    snapshots_interval: Duration,
    /// How many scheduled snapshots stay
    #[arg(
        long,
        value_name = "N",
        default_value = "28",
        requires = "snapshots_dir"
    )]
    snapshots_keep: NonZeroUsize,
}

impl SnapshotFlags {
    /// The schedule asked for, if one is.
    pub(super) fn lower(self, data_dir: &Path) -> Option<Schedule> {
        Some(Schedule {
            dir: self.snapshots_dir?,
            interval: self.snapshots_interval,
            keep: self.snapshots_keep.get(),
            data_dir: data_dir.to_owned(),
        })
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let span: TimeSpan = text.parse()?;
    match span.get() {
        Duration::ZERO => Err("write more than zero, such as 6h".to_owned()),
        interval => Ok(interval),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: SnapshotFlags,
    }

    #[test]
    fn a_schedule_is_read_or_refused() {
        let lower = |line: &str| {
            let words = ["serve"].into_iter().chain(line.split_whitespace());
            let line = Line::try_parse_from(words)?;
            Ok::<_, clap::Error>(line.flags.lower(Path::new("data")))
        };
        assert_eq!(lower("").unwrap(), None);
        let schedule = lower("--snapshots-dir d --snapshots-interval 1h30m").unwrap();
        let schedule = schedule.unwrap();
        assert_eq!(schedule.interval, Duration::from_secs(5400));
        assert_eq!((schedule.keep, schedule.dir), (28, PathBuf::from("d")));
        for (wrong, told) in [
            ("--snapshots-interval 1h", "--snapshots-dir"),
            (
                "--snapshots-dir d --snapshots-interval 0s",
                "more than zero",
            ),
            (
                "--snapshots-dir d --snapshots-interval 6",
                "write a number and",
            ),
            ("--snapshots-dir d --snapshots-keep 0", "--snapshots-keep"),
        ] {
            let fault = lower(wrong).unwrap_err().to_string();
            assert!(fault.contains(told), "{wrong}: {fault}");
        }
    }
}
