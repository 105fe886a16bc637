//! What a verified token claims, held against what its issuer may claim here.

use std::time::Duration;

use serde_json::{Map, Value};

/// The claims of a token whose signature has been verified.
pub(super) type Claims = Map<String, Value>;

/// Clocks differ: as much as a kube-apiserver forgives service-account tokens.
pub(super) const LEEWAY: Duration = Duration::from_secs(60);

/// Until when a token holds, `leeway` included.
///
/// # Errors
/// When it has run out, does not hold yet, or does not say: a token without an end is not judged
/// here.
pub(super) fn holds_until(
    claims: &Claims,
    wall: Duration,
    leeway: Duration,
) -> Result<Duration, &'static str> {
    let Some(end) = ends(claims) else {
        return Err("the bearer token does not say until when it holds");
    };
    let until = end.saturating_add(leeway);
    if until <= wall {
        return Err("the bearer token has expired");
    }
    match claims.get("nbf") {
        None | Some(Value::Null) => {}
        Some(begin) => match moment(begin) {
            Some(begin) if begin <= wall.saturating_add(LEEWAY) => {}
            _ => return Err("the bearer token does not hold yet"),
        },
    }
    Ok(until)
}

/// When the token ends by its own word.
pub(super) fn ends(claims: &Claims) -> Option<Duration> {
    claims.get("exp").and_then(moment)
}

/// Whether the token is meant for one of `audiences`.
pub(super) fn is_meant_for(claims: &Claims, audiences: &[String]) -> bool {
    let is_ours = |audience: &Value| {
        let text = audience.as_str();
        text.is_some_and(|text| audiences.iter().any(|ours| ours == text))
    };
    match claims.get("aud") {
        Some(Value::Array(several)) => several.iter().any(is_ours),
        Some(one) => is_ours(one),
        None => false,
    }
}

/// A claim that is text and not empty.
pub(super) fn text<'a>(claims: &'a Claims, name: &str) -> Option<&'a str> {
    claims
        .get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// Seconds since 1970, with a fraction or without.
fn moment(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?).ok()
}
