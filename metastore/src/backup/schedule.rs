//! Snapshots of a store on a schedule, into a folder, the oldest going as new ones come.
//!
//! Each has its time and revision in its name, and is due an interval after the newest one there, so
//! that restarts neither skip nor pile up. Nothing is removed before its successor is whole. One
//! that fails is logged, counted and tried again; the store does not notice.
//!
//! Room is looked at before the first byte: where snapshots share a file system with the store, they
//! leave it what its log needs to go on.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::file::{PART, PartFile};
use super::take::Snapshot;
use crate::{Error, Store};

/// Until a failed one is tried again; less where the interval is.
const RETRY: Duration = Duration::from_secs(60);
/// What stays free where the store's own files are: segments for some minutes of heavy writing.
const RESERVE_BYTES: u64 = 512 << 20;
const PREFIX: &str = "sluice-";
const SUFFIX: &str = ".db";

/// What is kept, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The folder, made when absent; best on another disk than the store's.
    pub dir: PathBuf,
    /// From one snapshot to the next.
    pub interval: Duration,
    /// How many stay; at least one.
    pub keep: usize,
    /// The store's own folder, which is left room.
    pub data_dir: PathBuf,
}

/// Takes snapshots until told to stop; one that is under way then is given up.
pub async fn run(store: Store, schedule: Schedule, stop: CancellationToken) {
    let mut wait = Duration::ZERO;
    loop {
        let pause = wait.max(until_due(&schedule, SystemTime::now()));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (task_store, task_schedule, task_stop) =
            (store.clone(), schedule.clone(), stop.clone());
        let taken =
            tokio::task::spawn_blocking(move || take(&task_store, &task_schedule, &task_stop));
        let taken = taken.await.unwrap_or_else(|lost| {
            Err(Error::Stopped {
                reason: lost.to_string(),
            })
        });
        if stop.is_cancelled() {
            return;
        }
        let counters = &store.shared().counters;
        match taken {
            Ok(file) => {
                counters.snapshots.fetch_add(1, Ordering::Relaxed);
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let seconds = now.map_or(0, |since| since.as_secs());
                counters.snapshot_at.store(seconds, Ordering::Relaxed);
                tracing::info!(file = %file.display(), "a snapshot was saved");
                wait = Duration::ZERO;
            }
            Err(error) => {
                counters.snapshots_failed.fetch_add(1, Ordering::Relaxed);
                wait = RETRY.min(schedule.interval);
                tracing::warn!(%error, again_in = ?wait, "a snapshot was not saved");
            }
        }
    }
}

/// How long until the next one is due.
fn until_due(schedule: &Schedule, now: SystemTime) -> Duration {
    let kept = saved(&schedule.dir).unwrap_or_default();
    let Some(newest) = kept.last() else {
        return Duration::ZERO;
    };
    let written = fs::metadata(newest).and_then(|file| file.modified());
    let Ok(written) = written else {
        return Duration::ZERO;
    };
    // A clock that went back must not hold the next one up for longer than an interval.
    let since = now.duration_since(written).unwrap_or_default();
    schedule.interval.saturating_sub(since)
}

/// Saves one, then lets the oldest go.
fn take(store: &Store, schedule: &Schedule, stop: &CancellationToken) -> Result<PathBuf, Error> {
    let Schedule {
        dir,
        interval: _,
        keep,
        data_dir,
    } = schedule;
    fs::create_dir_all(dir).map_err(|source| failed("make", dir, source))?;
    remove_parts(dir)?;
    let snapshot = Snapshot::take(store)?;
    check_room(dir, data_dir, snapshot.bytes())?;
    let path = dir.join(name(SystemTime::now(), snapshot.revision().get()));
    let mut file = PartFile::create(&path)?;
    snapshot.write(&mut |piece, _left| {
        if stop.is_cancelled() {
            return Err(Error::Stopped {
                reason: "the server ends".to_owned(),
            });
        }
        file.write(&piece)
    })?;
    file.finish()?;
    let kept = saved(dir)?;
    let beyond = kept.len().saturating_sub((*keep).max(1));
    for old in kept.iter().take(beyond) {
        fs::remove_file(old).map_err(|source| failed("remove", old, source))?;
    }
    Ok(path)
}

/// Refuses a snapshot that would not fit, or leave the store no room.
fn check_room(dir: &Path, data_dir: &Path, bytes: u64) -> Result<(), Error> {
    let room = rustix::fs::statvfs(dir).map_err(|errno| failed("look at", dir, errno.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
    let is_shared = device(dir).is_some() && device(dir) == device(data_dir);
    let reserve = if is_shared { RESERVE_BYTES } else { 0 };
    if free >= bytes.saturating_add(reserve) {
        return Ok(());
    }
    let what = if is_shared {
        format!(
            "{bytes} bytes are needed and {reserve} more stay free for the store, {free} are free: make room, or name a folder on another disk"
        )
    } else {
        format!("{bytes} bytes are needed, {free} are free: make room")
    };
    Err(failed("save a snapshot in", dir, io::Error::other(what)))
}

/// Ours among the files of a folder, oldest first.
fn saved(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).map_err(|source| failed("read", dir, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| failed("read", dir, source))?;
        if is_ours(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// What a process that was killed has left.
fn remove_parts(dir: &Path) -> Result<(), Error> {
    let entries = fs::read_dir(dir).map_err(|source| failed("read", dir, source))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_suffix(PART).is_some_and(is_ours) {
            let path = entry.path();
            fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
        }
    }
    Ok(())
}

/// `sluice-20261130T061500Z-r4711.db`: in order of time when sorted by name.
fn name(now: SystemTime, revision: u64) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = seconds.map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!(
        "{PREFIX}{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-r{revision}{SUFFIX}"
    )
}

fn is_ours(name: &str) -> bool {
    let inner = name
        .strip_prefix(PREFIX)
        .and_then(|it| it.strip_suffix(SUFFIX));
    let Some((time, revision)) = inner.and_then(|inner| inner.split_once("Z-r")) else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = |(day, clock): (&str, &str)| {
        day.len() == 8 && clock.len() == 6 && digits(day) && digits(clock)
    };
    time.split_once('T').is_some_and(is_time) && digits(revision)
}

/// Year, month and day of a day since 1970, by the calendar in use.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted from the first of March of year 0, so that leap days come last.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

fn failed(action: &str, path: &Path, source: io::Error) -> Error {
    Error::Io {
        action: format!("cannot {action} {}", path.display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_time_and_tell_ours_from_others() {
        let at = |seconds| name(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), 9);
        assert_eq!(at(0), "sluice-19700101T000000Z-r9.db");
        assert_eq!(at(951_827_696), "sluice-20000229T123456Z-r9.db");
        assert_eq!(at(1_796_083_199), "sluice-20261130T235959Z-r9.db");
        assert_eq!(at(1_798_761_600), "sluice-20270101T000000Z-r9.db");
        for seconds in (0..4_000_000_000).step_by(40_000_003) {
            assert!(is_ours(&at(seconds)));
            assert!(at(seconds) < at(seconds + 1));
        }
        for other in [
            "sluice-20270101T000000Z-r9.db.part",
            "sluice-20270101T000000Z-r.db",
            "sluice-2027010T0000000Z-r9.db",
            "sluice-.db",
            "etcd.db",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn a_snapshot_leaves_room() {
        let dir = tempfile::tempdir().unwrap();
        check_room(dir.path(), Path::new("/proc"), 1).unwrap();
        let fault = check_room(dir.path(), Path::new("/proc"), u64::MAX).unwrap_err();
        assert!(fault.to_string().contains("are free: make room"), "{fault}");
        let fault = check_room(dir.path(), dir.path(), u64::MAX).unwrap_err();
        assert!(fault.to_string().contains("another disk"), "{fault}");
    }
}
