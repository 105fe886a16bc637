//! A moment, written as `2026-01-31T12:00:00Z`: in UTC, so that it means the same to whoever reads
//! the file.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{Deserialize, Deserializer};

use crate::units::from_text;

const DAY_SECONDS: u64 = 24 * 3600;

/// Seconds since the beginning of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The plain value.
    #[must_use]
    pub fn get(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.0)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text).map(Moment).ok_or_else(|| {
            format!("`{text}` is not a moment; write it in UTC, such as 2026-01-31T12:00:00Z")
        })
    }
}

fn read(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days_of = |year: u64, month: u64| match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date =
        year >= 1970 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let years: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    let days = years + months + day - 1;
    Some(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)
}

/// Three numbers of exactly so many digits.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let parts: Vec<&str> = text.split(between).collect();
    let parts: [&str; 3] = parts.try_into().ok()?;
    let mut read = [0; 3];
    for ((number, part), digits) in read.iter_mut().zip(parts).zip(digits) {
        let is_plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_plain.then(|| part.parse().ok())??;
    }
    Some(read)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s after the beginning of 1970", self.0)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a moment such as 2026-01-31T12:00:00Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_1970() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2026-11-30T12:00:00Z", 1_796_040_000),
            ("2100-03-01T00:00:01Z", 4_107_542_401),
        ] {
            assert_eq!(text.parse(), Ok(Moment(seconds)), "{text}");
        }
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T12:00:00",
            "2026-11-30T12:00:00+01:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "1969-12-31T00:00:00Z",
            "2026-1-30T12:00:00Z",
            "+026-11-30T12:00:00Z",
        ] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
