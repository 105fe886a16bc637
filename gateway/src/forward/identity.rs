//! Spells a user out as header lines, in the way the upstream is told identities.
//!
//! One line for the name, one for each group, one for each extra value; nothing is joined by
//! commas, which are legal in group names. Keys of extras are percent-escaped byte by byte where
//! they are not lower-case token characters, since receivers lower-case header names.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::header::VIA;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::context::HeaderLines;
use crate::identity::{RequestHeaders, UserInfo};
use crate::status::{Refusal, Stage};
use crate::upstream::IdentityMode;

/// The header families of one way of telling; what has no name is not told.
struct Names<'a> {
    user: &'a HeaderName,
    uid: Option<&'a HeaderName>,
    group: &'a HeaderName,
    extra_prefix: Option<&'a str>,
}

static IMPERSONATE: [HeaderName; 3] = [
    HeaderName::from_static("impersonate-user"),
    HeaderName::from_static("impersonate-uid"),
    HeaderName::from_static("impersonate-group"),
];

impl Names<'_> {
    fn impersonate() -> Self {
        let [user, uid, group] = &IMPERSONATE;
        Names {
            user,
            uid: Some(uid),
            group,
            extra_prefix: Some("impersonate-extra-"),
        }
    }

    /// `None` when the headers cannot name a user, which would be the gateway itself.
    fn remote(headers: &RequestHeaders) -> Option<Names<'_>> {
        Some(Names {
            user: headers.user.first()?,
            uid: headers.uid.first(),
            group: headers.group.first()?,
            extra_prefix: headers.extra_prefixes.first().map(String::as_str),
        })
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// This process in `Via`; a request that shows it has been here before.
pub(super) fn via() -> &'static HeaderValue {
    static VALUE: OnceLock<HeaderValue> = OnceLock::new();
    VALUE.get_or_init(|| {
        let id = uuid::Uuid::new_v4().simple().to_string();
        HeaderValue::from_str(&format!("2.0 sluice-{id}"))
            .unwrap_or(HeaderValue::from_static("2.0 sluice"))
    })
}

/// All lines that are the same for every request of a user on a connection.
pub(super) fn lines(
    user: &Arc<UserInfo>,
    mode: IdentityMode,
    names: &Arc<RequestHeaders>,
    client: SocketAddr,
) -> Result<HeaderLines, Refusal> {
    let mut lines = match mode {
        IdentityMode::Impersonate => spell(user, &Names::impersonate())?,
        IdentityMode::FrontProxy => {
            let names = Names::remote(names).ok_or_else(|| unspeakable("name"))?;
            spell(user, &names)?
        }
        IdentityMode::PassThrough => Vec::new(),
    };
    let address = HeaderValue::from_str(&client.ip().to_canonical().to_string());
    let address = address.map_err(|_| unspeakable("address"))?;
    lines.push((X_FORWARDED_FOR, address));
    lines.push((VIA, via().clone()));
    Ok(HeaderLines {
        user: Arc::clone(user),
        client,
        style: style(mode),
        names: Arc::clone(names),
        lines,
    })
}

/// The number by which cached lines know their mode.
pub(super) fn style(mode: IdentityMode) -> u8 {
    match mode {
        IdentityMode::Impersonate => 0,
        IdentityMode::FrontProxy => 1,
        IdentityMode::PassThrough => 2,
    }
}

fn spell(user: &UserInfo, names: &Names<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, Refusal> {
    // An empty name counts as absent upstream: the request would run as the gateway itself.
    if user.name.is_empty() {
        return Err(unspeakable("name"));
    }
    let mut lines = vec![(names.user.clone(), value(&user.name, "name")?)];
    if let Some(uid) = names.uid
        && !user.uid.is_empty()
    {
        lines.push((uid.clone(), value(&user.uid, "uid")?));
    }
    for group in user.groups.iter().filter(|group| !group.is_empty()) {
        lines.push((names.group.clone(), value(group, "groups")?));
    }
    let Some(prefix) = names.extra_prefix else {
        return Ok(lines);
    };
    for (key, values) in &user.extra {
        let name = format!("{prefix}{}", escape(key));
        let name = HeaderName::try_from(name).map_err(|_| unspeakable("extra"))?;
        for extra in values {
            lines.push((name.clone(), value(extra, "extra")?));
        }
    }
    Ok(lines)
}

fn value(text: &str, what: &'static str) -> Result<HeaderValue, Refusal> {
    // A receiver trims white space at the ends, and would see another name.
    if text.trim_matches([' ', '\t']).len() != text.len() {
        return Err(unspeakable(what));
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unspeakable(what))
}

fn escape(key: &str) -> String {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let hex = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or('0');
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        let is_plain =
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$&'*+-.^_`|~".contains(&byte);
        if is_plain {
            escaped.push(char::from(byte));
        } else {
            escaped.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    escaped
}

fn unspeakable(what: &'static str) -> Refusal {
    Refusal::new(
        Stage::Forward,
        StatusCode::FORBIDDEN,
        "Forbidden",
        format!("the caller's {what} cannot be told to the upstream in a header"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(user: UserInfo, mode: IdentityMode) -> Result<Vec<String>, Refusal> {
        let peer = "[::ffff:192.0.2.7]:1234".parse().unwrap();
        let lines = lines(&Arc::new(user), mode, &Arc::default(), peer)?.lines;
        let text = |(n, v): &(HeaderName, HeaderValue)| {
            format!("{n}: {}", String::from_utf8_lossy(v.as_bytes()))
        };
        Ok(lines
            .iter()
            .map(text)
            .filter(|l| !l.starts_with("via"))
            .collect())
    }

    #[test]
    fn every_part_of_a_user_is_told_on_its_own_line() {
        let user = UserInfo {
            name: "alice".into(),
            uid: "7".into(),
            groups: vec!["a,b".into(), "system:authenticated".into()],
            extra: vec![(
                "authentication.kubernetes.io/Pod%".into(),
                vec!["x".into(), "y".into()],
            )],
        };
        assert_eq!(
            told(user.clone(), IdentityMode::Impersonate).unwrap(),
            [
                "impersonate-user: alice",
                "impersonate-uid: 7",
                "impersonate-group: a,b",
                "impersonate-group: system:authenticated",
                "impersonate-extra-authentication.kubernetes.io%2f%50od%25: x",
                "impersonate-extra-authentication.kubernetes.io%2f%50od%25: y",
                "x-forwarded-for: 192.0.2.7",
            ]
        );
        let remote = told(user.clone(), IdentityMode::FrontProxy).unwrap();
        assert_eq!(remote[0], "x-remote-user: alice");
        assert_eq!(remote.len(), 7);
        let nothing = told(user, IdentityMode::PassThrough).unwrap();
        assert_eq!(nothing, ["x-forwarded-for: 192.0.2.7"]);
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        for name in ["", "a\nb", " alice", "alice\t"] {
            let user = UserInfo {
                name: name.into(),
                ..UserInfo::default()
            };
            assert!(told(user, IdentityMode::Impersonate).is_err(), "{name:?}");
        }
    }
}
