//! The `date` of answers that say none, spelt once a second and thread.

use std::cell::RefCell;

use http::HeaderValue;

use crate::clock;

thread_local! {
    static LAST: RefCell<(u64, HeaderValue)> =
        const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The present (RFC 9110, section 5.6.7).
pub(super) fn now() -> HeaderValue {
    let second = clock::wall().as_secs();
    LAST.with_borrow_mut(|(at, spelt)| {
        if *at != second {
            *at = second;
            *spelt = spell(second);
        }
        spelt.clone()
    })
}

fn spell(second: u64) -> HeaderValue {
    let second = i64::try_from(second).unwrap_or(0);
    let at = jiff::Timestamp::from_second(second).unwrap_or_default();
    let text = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_spelt_as_http_has_them() {
        for (second, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (4_102_444_800, "Fri, 01 Jan 2100 00:00:00 GMT"),
        ] {
            assert_eq!(spell(second), expected);
        }
    }
}
