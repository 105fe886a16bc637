//! The bearer token of a request: in `Authorization`, or as a WebSocket subprotocol.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};

/// A token longer than this is refused unread: service-account tokens are about a kilobyte, and
/// the whole header list may not pass 64 KiB.
pub(super) const TOKEN_BYTES_MAX: usize = 48 * 1024;

/// Marks a WebSocket subprotocol that carries a token.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// What is kept of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Digests a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
    }
}

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenDigest")
    }
}

/// The token a request shows: in `Authorization`, or as a WebSocket subprotocol.
///
/// # Errors
/// Why what is shown is no token, in which case the caller is nobody, and not anonymous.
pub(super) fn find(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = std::str::from_utf8(value.as_bytes());
        let text = text.map_err(|_| "the Authorization header is not text")?;
        let mut parts = text.trim().splitn(3, ' ');
        if let (Some(scheme), Some(token)) = (parts.next(), parts.next())
            && scheme.eq_ignore_ascii_case("bearer")
            && !token.is_empty()
        {
            return Ok(Some(token.to_owned()));
        }
    }
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) && asks_for_websocket(headers) {
        find_subprotocol(headers)
    } else {
        Ok(None)
    }
}

/// Only of such a request a kube-apiserver looks at the subprotocols.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).into_iter();
        let mut entries = values.flat_map(|value| value.as_bytes().split(|&b| b == b','));
        entries.any(|entry| entry.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

fn find_subprotocol(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut encoded = None;
    let mut others = 0;
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let text = value.to_str().map_err(|_| "a subprotocol is not text")?;
        for entry in text.split(',').map(str::trim) {
            match entry.strip_prefix(WEBSOCKET_PREFIX) {
                Some(_) if encoded.is_some() => return Err("several subprotocols are tokens"),
                Some(token) => encoded = Some(token),
                None => others += 1,
            }
        }
    }
    let Some(encoded) = encoded else {
        return Ok(None);
    };
    if others == 0 {
        return Err("a token alone is no subprotocol: name one that is spoken, too");
    }
    let bytes = URL_SAFE_NO_PAD.decode(encoded);
    let bytes = bytes.map_err(|_| "a subprotocol's token is not base64url without padding")?;
    match String::from_utf8(bytes) {
        Ok(token) if !token.is_empty() => Ok(Some(token)),
        _ => Err("a subprotocol's token is empty or no text"),
    }
}
