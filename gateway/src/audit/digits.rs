//! Numbers, times and addresses as text, straight into a buffer.
//!
//! The standard library's formatting is general, and costs more than the digits do; a line of the
//! audit has eight such values.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

/// A number in decimal.
pub(super) fn number(out: &mut Vec<u8>, mut number: u64) {
    let start = out.len();
    loop {
        out.push(digit(number));
        number /= 10;
        if number == 0 {
            break;
        }
    }
    if let Some(written) = out.get_mut(start..) {
        written.reverse();
    }
}

/// The last `count` digits of a number.
fn padded(out: &mut Vec<u8>, number: u64, count: u32) {
    for place in (0..count).rev() {
        out.push(digit(number / 10_u64.pow(place)));
    }
}

fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).unwrap_or_default()
}

/// A request's number as a UUID.
pub(super) fn uuid(out: &mut Vec<u8>, id: u128) {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let text = uuid::Uuid::from_u128(id)
        .hyphenated()
        .encode_lower(&mut text);
    out.extend_from_slice(text.as_bytes());
}

/// An IPv4 or IPv6 address.
pub(super) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (n, octet) in address.octets().into_iter().enumerate() {
                if n > 0 {
                    out.push(b'.');
                }
                number(out, octet.into());
            }
        }
        IpAddr::V6(address) => {
            write!(out, "{address}").expect("a buffer in memory takes everything");
        }
    }
}

/// Seconds with microseconds.
pub(super) fn seconds(out: &mut Vec<u8>, span: Duration) {
    let micros = span.as_nanos().saturating_add(500) / 1000;
    let micros = u64::try_from(micros).unwrap_or(u64::MAX);
    number(out, micros / 1_000_000);
    out.push(b'.');
    padded(out, micros, 6);
}

/// A time since the Unix epoch in RFC 3339 with microseconds, as `metav1.MicroTime`.
pub(super) fn time(out: &mut Vec<u8>, since_epoch: Duration) {
    let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    let at = jiff::tz::Offset::UTC.to_datetime(at);
    padded(out, at.year().unsigned_abs().into(), 4);
    out.push(b'-');
    padded(out, at.month().unsigned_abs().into(), 2);
    out.push(b'-');
    padded(out, at.day().unsigned_abs().into(), 2);
    out.push(b'T');
    padded(out, at.hour().unsigned_abs().into(), 2);
    out.push(b':');
    padded(out, at.minute().unsigned_abs().into(), 2);
    out.push(b':');
    padded(out, at.second().unsigned_abs().into(), 2);
    out.push(b'.');
    padded(
        out,
        (at.subsec_nanosecond().unsigned_abs() / 1_000).into(),
        6,
    );
    out.push(b'Z');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_and_spans_read_as_the_standard_library_writes_them() {
        for n in [0, 7, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(text(|out| number(out, n)), n.to_string());
        }
        for micros in [0, 1, 999, 1_500, 1_000_000, 61_000_001] {
            let span = Duration::from_micros(micros);
            let expected = format!("{:.6}", span.as_secs_f64());
            assert_eq!(text(|out| seconds(out, span)), expected);
        }
        let long = Duration::from_nanos(1_999_999_600);
        assert_eq!(text(|out| seconds(out, long)), "2.000000");
        for ip in ["192.0.2.107", "0.0.0.0", "2001:db8::9"] {
            assert_eq!(text(|out| address(out, ip.parse().unwrap())), ip);
        }
    }

    #[test]
    fn every_day_of_four_centuries_has_its_date() {
        for day in 0..146_097 {
            let micros = day * 86_400_000_000 + (day * 7_919_123_457) % 86_400_000_000;
            let expected = jiff::Timestamp::from_microsecond(i64::try_from(micros).unwrap());
            let expected = format!("{:.6}", expected.unwrap());
            assert_eq!(
                text(|out| time(out, Duration::from_micros(micros))),
                expected
            );
        }
    }
}
