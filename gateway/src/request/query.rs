//! The query of a request, converted as Kubernetes converts `ListOptions`: the first value of a
//! key counts, a boolean is true unless it is "0" or "false", a number is a decimal `i64`.
//!
//! A pair with a bare semicolon or a broken escape is dropped by Go and split or kept by others;
//! such a query is refused.

use std::borrow::Cow;
use std::num::NonZeroU64;

use super::text::{Span, Text, percent_decode};

/// The parameters of reads that the gateway itself looks at.
#[derive(Clone, Debug, Default)]
pub(super) struct Query {
    pub(super) label_selector: Text,
    pub(super) field_selector: Text,
    pub(super) resource_version: Text,
    pub(super) resource_version_match: Text,
    pub(super) continue_token: Text,
    pub(super) watch: Option<bool>,
    pub(super) allow_watch_bookmarks: Option<bool>,
    pub(super) send_initial_events: Option<bool>,
    pub(super) limit: Option<NonZeroU64>,
    pub(super) timeout_seconds: Option<u64>,
    /// A parameter that the server's own decoder will not take.
    pub(super) fault: Option<&'static str>,
}

/// Reads a raw query.
///
/// # Errors
/// Says why the query is refused.
pub(super) fn parse(raw: &str) -> Result<Query, &'static str> {
    let mut query = Query::default();
    // Absent and given twice are told apart for numbers, whose zero looks like absence.
    let (mut limit_seen, mut timeout_seen) = (false, false);
    let mut start = 0;
    for pair in raw.split('&') {
        let at = start;
        start += pair.len() + 1;
        if pair.contains(';') {
            return Err("a bare semicolon; write %3B");
        }
        let (raw_key, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = decode(raw_key)?;
        let value_at = at + pair.len() - raw_value.len();
        match key.as_ref() {
            "labelSelector" => keep(&mut query.label_selector, raw_value, value_at)?,
            "fieldSelector" => keep(&mut query.field_selector, raw_value, value_at)?,
            "resourceVersion" => keep(&mut query.resource_version, raw_value, value_at)?,
            "resourceVersionMatch" => {
                keep(&mut query.resource_version_match, raw_value, value_at)?;
            }
            "continue" => keep(&mut query.continue_token, raw_value, value_at)?,
            "watch" => keep_bool(&mut query.watch, raw_value)?,
            "allowWatchBookmarks" => keep_bool(&mut query.allow_watch_bookmarks, raw_value)?,
            "sendInitialEvents" => keep_bool(&mut query.send_initial_events, raw_value)?,
            "limit" if !std::mem::replace(&mut limit_seen, true) => {
                match decode(raw_value)?.parse::<i64>() {
                    // A negative limit means none to most of the server, as zero does.
                    Ok(limit) => query.limit = u64::try_from(limit).ok().and_then(NonZeroU64::new),
                    Err(_) => query.fault = Some("limit is not a number"),
                }
            }
            "timeoutSeconds" if !std::mem::replace(&mut timeout_seen, true) => {
                match decode(raw_value)?.parse::<i64>() {
                    Ok(seconds) => {
                        query.timeout_seconds = Some(u64::try_from(seconds).unwrap_or(0))
                    }
                    Err(_) => query.fault = Some("timeoutSeconds is not a number"),
                }
            }
            _ => {
                decode_bytes(raw_value)?;
            }
        }
    }
    Ok(query)
}

/// The first value of `key`, decoded; `None` when the key is not there.
pub(super) fn value<'a>(raw: &'a str, key: &str) -> Option<Cow<'a, str>> {
    raw.split('&').find_map(|pair| {
        let (raw_key, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(raw_key).ok()? == key).then(|| decode(raw_value).ok())?
    })
}

fn keep(slot: &mut Text, raw: &str, at: usize) -> Result<(), &'static str> {
    if slot.is_absent() {
        *slot = match decode(raw)? {
            Cow::Borrowed(_) => {
                Text::Raw(Span::new(at, at + raw.len()).ok_or("longer than a URI may be")?)
            }
            Cow::Owned(text) => Text::Owned(text.into_boxed_str()),
        };
    }
    Ok(())
}

fn keep_bool(slot: &mut Option<bool>, raw: &str) -> Result<(), &'static str> {
    if slot.is_none() {
        let value = decode(raw)?;
        *slot = Some(value != "0" && !value.eq_ignore_ascii_case("false"));
    }
    Ok(())
}

fn decode(raw: &str) -> Result<Cow<'_, str>, &'static str> {
    match decode_bytes(raw)? {
        None => Ok(Cow::Borrowed(raw)),
        Some(bytes) => String::from_utf8(bytes)
            .map(Cow::Owned)
            .map_err(|_| "bytes that are not UTF-8"),
    }
}

/// `None` when there is nothing to decode.
fn decode_bytes(raw: &str) -> Result<Option<Vec<u8>>, &'static str> {
    if !raw.contains(['%', '+']) {
        return Ok(None);
    }
    percent_decode(raw, true)
        .map(Some)
        .ok_or("a percent sign without two hex digits")
}
