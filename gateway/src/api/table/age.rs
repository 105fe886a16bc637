//! How long ago, in the few characters that people know from kubectl.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time since an RFC 3339 timestamp; `<unknown>` when there is none, `<invalid>` for one that
/// cannot be read or lies well in the future.
pub(super) fn since(timestamp: Option<&Value>, now: Timestamp) -> String {
    match timestamp.and_then(Value::as_str) {
        None | Some("") => "<unknown>".to_owned(),
        Some(text) => text.parse::<Timestamp>().map_or_else(
            |_| "<invalid>".to_owned(),
            |then| short(now.as_second().saturating_sub(then.as_second())),
        ),
    }
}

/// A duration with two figures of precision: `90s`, `5m30s`, `3h20m`, `2d4h`, `3y10d`.
pub(super) fn short(seconds: i64) -> String {
    let pair = |whole: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{small}")
        }
    };
    match seconds {
        i64::MIN..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => pair(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_kubectls() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (YEAR, "365d"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR, "8y"),
        ];
        for (seconds, shown) in cases {
            assert_eq!(short(seconds), shown, "{seconds}");
        }
    }
}
