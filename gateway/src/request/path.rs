//! From a path to request attributes, by kube-apiserver's own algorithm.
//!
//! The text that is parsed is the percent-decoded path; what goes upstream is the raw one. Where
//! the two could be read apart (an encoded slash, an empty or dot segment, a second layer of
//! escapes, a control byte), the path is refused, since a rule might then see another object than
//! the apiserver. What follows a `proxy` subresource belongs to somebody else's server and is left
//! alone, as long as it does not climb out of the proxied root.

use http::Method;

use super::text::{Span, percent_decode};
use super::verb::Verb;

/// The longest path that means something: apis, group, version, watch, namespaces, namespace,
/// resource, name, subresource.
const SEGMENTS_MAX: usize = 9;

/// A path's attributes, as places in the decoded path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) verb: Verb,
    pub(super) is_resource: bool,
    /// The verb is a word of the path; selectors are then no attributes.
    pub(super) verb_in_path: bool,
    pub(super) group: Span,
    pub(super) version: Span,
    pub(super) resource: Span,
    pub(super) subresource: Span,
    pub(super) namespace: Span,
    pub(super) name: Span,
    /// The index of the first segment that belongs to the proxied server.
    pub(super) proxied_from: Option<usize>,
}

/// The decoded path and where it first differs in shape from the raw one.
pub(super) struct Decoded {
    /// `None` when decoding changes nothing.
    pub(super) path: Option<Box<str>>,
    /// The first raw segment with an encoded slash or with bytes that are not UTF-8.
    first_odd: Option<usize>,
}

/// Decodes segment by segment.
///
/// # Errors
/// Says what is wrong with an escape.
pub(super) fn decode(raw: &str) -> Result<Decoded, &'static str> {
    if !raw.contains('%') {
        return Ok(Decoded {
            path: None,
            first_odd: None,
        });
    }
    let mut out = String::with_capacity(raw.len());
    let mut first_odd = None;
    for (index, segment) in raw.strip_prefix('/').unwrap_or(raw).split('/').enumerate() {
        out.push('/');
        let bytes =
            percent_decode(segment, false).ok_or("a percent sign without two hex digits")?;
        match String::from_utf8(bytes) {
            Ok(text) => {
                if text.contains('/') {
                    first_odd.get_or_insert(index);
                }
                out.push_str(&text);
            }
            Err(error) => {
                first_odd.get_or_insert(index);
                out.push_str(&String::from_utf8_lossy(error.as_bytes()));
            }
        }
    }
    Ok(Decoded {
        path: Some(out.into_boxed_str()),
        first_odd,
    })
}

/// Resolves a decoded path that begins with a slash.
///
/// # Errors
/// Says why the path is refused.
pub(super) fn resolve(
    method: &Method,
    path: &str,
    decoded: &Decoded,
) -> Result<Parts, &'static str> {
    let mut found = [Span::default(); SEGMENTS_MAX];
    let mut count = 0;
    let mut at = 1;
    for segment in path.get(1..).unwrap_or_default().split('/') {
        let end = at + segment.len();
        // A slash at the end opens no segment.
        if !(segment.is_empty() && end == path.len()) {
            if let Some(slot) = found.get_mut(count) {
                *slot = Span::new(at, end).ok_or("longer than a URI may be")?;
            }
            count += 1;
        }
        at = end + 1;
    }
    let segments = found.get(..count.min(SEGMENTS_MAX)).unwrap_or_default();
    let parts = attributes(method, path, segments)?;
    check_segments(path, parts.proxied_from)?;
    match (decoded.first_odd, parts.proxied_from) {
        (None, _) => Ok(parts),
        (Some(odd), Some(from)) if odd >= from => Ok(parts),
        (Some(_), _) => Err("an encoded slash or a byte that is not UTF-8"),
    }
}

/// The path's attributes. Mirrors `NewRequestInfo` of kube-apiserver, special case by special case.
fn attributes(method: &Method, path: &str, segments: &[Span]) -> Result<Parts, &'static str> {
    let none = Span::default();
    let mut parts = Parts {
        verb: Verb::of_path(method),
        is_resource: false,
        verb_in_path: false,
        group: none,
        version: none,
        resource: none,
        subresource: none,
        namespace: none,
        name: none,
        proxied_from: None,
    };
    let text = |span: &Span| span.of(path);
    let mut rest = match segments {
        [prefix, rest @ ..] if text(prefix) == "api" && rest.len() >= 2 => rest,
        [prefix, group, rest @ ..] if text(prefix) == "apis" && rest.len() >= 2 => {
            parts.group = *group;
            rest
        }
        _ => return Ok(parts),
    };
    parts.is_resource = true;
    if let [version, after @ ..] = rest {
        parts.version = *version;
        rest = after;
    }
    parts.verb = Verb::of_resource(method);
    if let [word, after @ ..] = rest
        && let Some(verb) = verb_word(text(word))
    {
        if after.is_empty() {
            return Err("a verb in the path and no resource after it");
        }
        parts.verb = verb;
        parts.verb_in_path = true;
        rest = after;
    }
    if let [word, namespace, after @ ..] = rest
        && text(word) == "namespaces"
    {
        parts.namespace = *namespace;
        // Only these two are subresources of a Namespace; everything else lies within it.
        if let Some(next) = after.first()
            && !matches!(text(next), "status" | "finalize")
        {
            rest = after;
        }
    }
    parts.resource = rest.first().copied().unwrap_or_default();
    parts.name = rest.get(1).copied().unwrap_or_default();
    if parts.verb != Verb::Proxy
        && let Some(subresource) = rest.get(2)
    {
        parts.subresource = *subresource;
        if text(subresource) == "proxy" && !parts.verb_in_path {
            let before = segments.len() - rest.len();
            parts.proxied_from = Some(before + 3);
        }
    }
    Ok(parts)
}

fn verb_word(segment: &str) -> Option<Verb> {
    match segment {
        "watch" => Some(Verb::Watch),
        "proxy" => Some(Verb::Proxy),
        _ => None,
    }
}

/// Refuses what two readers could read in two ways.
fn check_segments(path: &str, proxied_from: Option<usize>) -> Result<(), &'static str> {
    let body = path.get(1..).unwrap_or_default();
    let last = body.bytes().filter(|byte| *byte == b'/').count();
    let own = proxied_from.unwrap_or(usize::MAX);
    let mut depth = 0_usize;
    for (index, segment) in body.split('/').enumerate() {
        // Some servers take what follows a semicolon for a parameter and drop it.
        let bare = segment.split(';').next().unwrap_or_default();
        if index >= own {
            match bare {
                ".." => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or("it climbs out of the proxied root")?
                }
                "" | "." => {}
                _ => depth += 1,
            }
            continue;
        }
        if segment.is_empty() {
            if index == last {
                continue;
            }
            return Err("an empty segment");
        }
        if matches!(bare, "." | "..") {
            return Err("a dot segment");
        }
        if let Some(odd) = segment
            .bytes()
            .find(|byte| byte.is_ascii_control() || matches!(byte, b'\\' | b'%'))
        {
            return Err(match odd {
                b'\\' => "a backslash",
                b'%' => "an escape within an escape",
                _ => "a control character",
            });
        }
    }
    Ok(())
}
