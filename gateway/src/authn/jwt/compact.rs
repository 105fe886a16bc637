//! A token's three parts, read and not yet believed.
//!
//! Only the compact form of a signature over JSON is a token here. Whatever is not one stands for
//! nobody local, so that another judge may know it; bounded by the length that `authn` lets in.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A token taken apart; nothing in it is verified.
pub(super) struct Compact<'a> {
    /// The signature algorithm's name.
    pub(super) algorithm: String,
    /// Which of the issuer's keys, if it says so.
    pub(super) key: Option<String>,
    /// What it claims.
    pub(super) claims: Map<String, Value>,
    /// What is signed.
    pub(super) signed: &'a [u8],
    /// The signature.
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a reader must know; none is known here.
    crit: Option<Value>,
}

impl<'a> Compact<'a> {
    /// Takes a token apart; `None` when it is not of this form.
    pub(super) fn read(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        Some(Compact {
            algorithm: header.alg,
            key: header.kid.filter(|kid| !kid.is_empty()),
            claims: serde_json::from_slice(&decode(payload)?).ok()?,
            signed: signed.as_bytes(),
            // What cannot be read signs nothing, and is no reason to ask others.
            signature: decode(signature).unwrap_or_default(),
        })
    }

    /// Who it says has signed it.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }
}
