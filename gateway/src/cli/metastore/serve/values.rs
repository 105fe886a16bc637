//! Values as etcd's flags write them: times, URLs, lists, what is kept by compaction.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use sluice_metastore::compactor::Retention;

/// A time as Go writes it: `100ms`, `5s`, `1.5h`, `1h30m`; zero needs no unit.
pub(in crate::cli::metastore) fn time(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text} is not a time: write 100ms, 5s, 10m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut sum = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, behind) = rest.split_at(digits.ok_or_else(fault)?);
        let unit = behind.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, behind) = behind.split_at(unit.unwrap_or(behind.len()));
        let seconds = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(fault()),
        };
        sum += number.parse::<f64>().map_err(|_| fault())? * seconds;
        rest = behind;
    }
    if text.is_empty() {
        return Err(fault());
    }
    // Whole nanoseconds, so that 0.1s is what it says.
    let nanos = (sum * 1e9).round();
    let read = Duration::try_from_secs_f64(nanos / 1e9).map_err(|_| fault())?;
    // What Go can hold: some 292 years.
    let greatest = Duration::from_nanos(u64::MAX / 2);
    Some(read)
        .filter(|time| *time <= greatest)
        .ok_or_else(fault)
}

/// A URL of one of etcd's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
}

/// An address to listen on, as etcd takes it: by IP or `localhost`.
pub(super) fn listen_url(url: &str) -> Result<Url, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let is_tls = match scheme {
        "https" => true,
        "http" => false,
        _ => {
            return Err(format!(
                "{url}: write https://ADDRESS:PORT or http://ADDRESS:PORT"
            ));
        }
    };
    let rest = rest.trim_end_matches('/');
    let rest = match rest.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => rest.to_owned(),
    };
    let address = rest
        .parse()
        .map_err(|e| format!("{url}: {rest} is not an IP address with a port: {e}"))?;
    Ok(Url { address, is_tls })
}

/// How history is kept: by time in hours where no unit is given, or by number.
pub(super) fn retention(mode: &str, kept: &str) -> Result<Option<Retention>, String> {
    let fault = |help: &str| format!("--auto-compaction-retention {kept}: {help}");
    let number = kept.parse::<u64>();
    let retention = match (mode, number) {
        ("periodic", Ok(hours)) => {
            let seconds = hours.checked_mul(3600);
            Retention::Time(Duration::from_secs(
                seconds.ok_or_else(|| fault("too long"))?,
            ))
        }
        ("periodic", Err(_)) => Retention::Time(time(kept).map_err(|e| fault(&e))?),
        ("revision", Ok(revisions)) => Retention::Revisions(revisions),
        ("revision", Err(_)) => return Err(fault("with mode revision write a whole number")),
        _ => {
            return Err(format!(
                "--auto-compaction-mode {mode}: write periodic or revision"
            ));
        }
    };
    let is_off = matches!(
        retention,
        Retention::Time(Duration::ZERO) | Retention::Revisions(0)
    );
    Ok((!is_off).then_some(retention))
}

/// A moment such as `2026-11-30T12:00:00Z`.
pub(super) fn moment(text: &str) -> Result<SystemTime, String> {
    let read: jiff::Timestamp = text
        .parse()
        .map_err(|e| format!("{text} is not a moment such as 2026-11-30T12:00:00Z: {e}"))?;
    let seconds = u64::try_from(read.as_second())
        .map_err(|_| format!("{text} was before there were clocks of this kind"))?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The members of `--initial-cluster`: names, each as often as it has URLs.
pub(super) fn members(cluster: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    for member in cluster.split(',').filter(|member| !member.is_empty()) {
        let (name, _url) = member
            .split_once('=')
            .ok_or_else(|| format!("--initial-cluster {cluster}: {member} is not NAME=URL"))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("100ms", 100),
            ("5s", 5_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in [
            "5",
            "s",
            "5d",
            "-1s",
            "",
            "1h30",
            "1..5s",
            "99999999999999h",
            "5 s",
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_are_read_or_refused_with_what_to_write() {
        let url = |address: ([u8; 4], u16), is_tls| {
            let address = address.into();
            Ok(Url { address, is_tls })
        };
        assert_eq!(
            listen_url("https://127.0.0.1:1"),
            url(([127, 0, 0, 1], 1), true)
        );
        assert_eq!(
            listen_url("http://localhost:9/"),
            url(([127, 0, 0, 1], 9), false)
        );
        assert!(listen_url("http://[::1]:2379").is_ok());
        for wrong in [
            "127.0.0.1:1",
            "ftp://127.0.0.1:1",
            "https://example.com:1",
            "https://::1",
            "",
        ] {
            assert!(listen_url(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_kept_is_read_by_its_mode() {
        let time = |seconds| Ok(Some(Retention::Time(Duration::from_secs(seconds))));
        assert_eq!(retention("periodic", "1"), time(3600));
        assert_eq!(retention("periodic", "5m"), time(300));
        assert_eq!(retention("periodic", "0"), Ok(None));
        assert_eq!(
            retention("revision", "1000"),
            Ok(Some(Retention::Revisions(1000)))
        );
        assert_eq!(retention("revision", "0"), Ok(None));
        for (mode, kept) in [
            ("revision", "5m"),
            ("periodic", "x"),
            ("size", "1"),
            ("revision", "-1"),
        ] {
            assert!(retention(mode, kept).is_err(), "{mode} {kept}");
        }
    }

    #[test]
    fn members_are_counted_by_name() {
        assert_eq!(members("a=http://x:1,a=http://y:1"), Ok(vec!["a"]));
        assert_eq!(members("a=http://x:1,b=http://y:1").unwrap().len(), 2);
        assert!(members("a").unwrap_err().contains("NAME=URL"));
    }
}
