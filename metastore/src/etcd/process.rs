//! What the system says of this process, in Linux's own files; elsewhere nothing is known.

use std::fs;

/// The kernel counts time for user space in hundredths of a second on every machine we run on.
const TICKS_PER_SECOND: f64 = 100.0;
// Places in /proc/self/stat behind the name, counted from zero.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// What was found; `None` where the system does not tell.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) max_files: Option<u64>,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) started_seconds: Option<u64>,
}

/// Looks now; some small files are read.
pub(crate) fn look() -> Seen {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name| field(&status, name).and_then(|value| value.checked_mul(1024));
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name stands in brackets and may hold anything.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = |place| -> Option<f64> { behind.split_whitespace().nth(place)?.parse().ok() };
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let opened = fs::read_dir("/proc/self/fd").ok();
    let system = fs::read_to_string("/proc/stat").unwrap_or_default();
    let started = field(&system, "btime").zip(ticks(START_TICKS));
    Seen {
        resident_bytes: kib("VmRSS:"),
        virtual_bytes: kib("VmSize:"),
        open_files: opened.map(|entries| entries.count() as u64),
        max_files: files.and_then(|line| line.split_whitespace().next()?.parse().ok()),
        cpu_seconds: ticks(USER_TICKS)
            .zip(ticks(SYSTEM_TICKS))
            .map(|(user, system)| (user + system) / TICKS_PER_SECOND),
        started_seconds: started.map(|(boot, ticks)| {
            std::time::Duration::from_secs_f64(ticks / TICKS_PER_SECOND).as_secs() + boot
        }),
    }
}

/// The first number of the line that begins with a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_all_of_it() {
        let seen = look();
        let (resident, all) = (seen.resident_bytes, seen.virtual_bytes);
        assert!(
            resident > Some(1 << 20) && resident < all,
            "{resident:?} {all:?}"
        );
        assert!(seen.open_files > Some(2) && seen.open_files <= seen.max_files);
        assert!(seen.cpu_seconds.is_some_and(|seconds| seconds < 10_000.0));
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let started = seen.started_seconds.unwrap();
        assert!(
            started <= now + 1 && started + 3600 * 24 > now,
            "{started} {now}"
        );
    }
}
