//! Quantities that say their unit. A bare number is refused: nobody can tell what it counts.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A length of time, written as `200ms`, `1s`, `2m`, `1h` or a sum such as `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(Duration);

impl TimeSpan {
    /// So many seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        TimeSpan(Duration::from_secs(seconds))
    }

    /// The plain value.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!("`{text}` is not a duration; write a number and ms, s, m or h, such as 200ms")
        };
        let mut total = Duration::ZERO;
        let mut rest = text;
        while !rest.is_empty() {
            let (number, unit, after) = split_quantity(rest).ok_or_else(fault)?;
            let millis = match unit {
                "ms" => Some(number),
                "s" => number.checked_mul(1000),
                "m" => number.checked_mul(60_000),
                "h" => number.checked_mul(3_600_000),
                _ => None,
            };
            total = millis
                .and_then(|millis| total.checked_add(Duration::from_millis(millis)))
                .ok_or_else(fault)?;
            rest = after;
        }
        if text.is_empty() {
            return Err(fault());
        }
        Ok(TimeSpan(total))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A number of bytes, written as `512B`, `64KiB`, `100MiB`, `8GiB`, `1TiB` or with KB, MB, GB, TB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// So many mebibytes.
    #[must_use]
    pub const fn from_mib(mib: u32) -> Self {
        ByteSize((mib as u64) << 20)
    }

    /// The plain value.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}` is not a size; write a number and B, KiB, MiB, GiB or TiB, such as 100MiB"
            )
        };
        let (number, unit, after) = split_quantity(text).ok_or_else(fault)?;
        let factor = match unit {
            "B" => 1_u64,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            "KB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => return Err(fault()),
        };
        match number.checked_mul(factor) {
            Some(bytes) if after.is_empty() => Ok(ByteSize(bytes)),
            _ => Err(fault()),
        }
    }
}

/// A number of things, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(NonZeroU32);

impl Count {
    /// The plain value.
    #[must_use]
    pub const fn get(self) -> NonZeroU32 {
        self.0
    }

    /// So many; none for zero.
    pub(crate) const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Count(number)),
            None => None,
        }
    }

    /// A default; for constants, since it refuses zero when compiled.
    pub(crate) const fn of(number: u32) -> Self {
        Count(NonZeroU32::new(number).expect("a default is not zero"))
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Count)
            .map_err(|_| format!("`{text}` is not a count; write a whole number, one or more"))
    }
}

/// A number, its unit, and what follows them.
fn split_quantity(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = text.split_at_checked(digits)?;
    let letters = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, after) = rest.split_at_checked(letters)?;
    Some((number.parse().ok()?, unit, after))
}

struct FromText<T> {
    what: &'static str,
    made: std::marker::PhantomData<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Decodes a scalar by its `FromStr`; `what` is what a reader is told to write.
pub(crate) fn from_text<'de, T, D>(deserializer: D, what: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(FromText {
        what,
        made: std::marker::PhantomData,
    })
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a duration such as 200ms")
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a count such as 1")
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a size such as 100MiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_say_their_unit() {
        for (text, millis) in [
            ("200ms", 200),
            ("1s", 1000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1m30s", 90_000),
            ("0s", 0),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.get(), Duration::from_millis(millis), "{text}");
        }
        for text in [
            "",
            "1",
            "s",
            "1d",
            "-1s",
            "1.5s",
            "1 s",
            "1s ",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_say_their_unit() {
        for (text, bytes) in [
            ("1B", 1),
            ("1KiB", 1024),
            ("100MiB", 104_857_600),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap().bytes(), bytes, "{text}");
        }
        for text in [
            "",
            "1",
            "MiB",
            "1Mi",
            "1mib",
            "1MiB1MiB",
            "1.5GiB",
            "99999999TiB",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
