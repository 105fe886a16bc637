//! Front proxies before the gateway: whoever holds a certificate of their authority, under a name
//! that is allowed, says in headers who calls.
//!
//! As in kube-apiserver (kubernetes-semantics 2.6): tried before all else; without a user's name
//! in the headers it has no opinion; groups are one a line and not cut at commas. The headers of
//! anybody else are not read at all, and no client's survive the forwarder.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::x509::ClientAuthority;
use crate::context::Connection;
use crate::identity::{ANONYMOUS, AUTHENTICATED, RequestHeaders, UNAUTHENTICATED, UserInfo};

/// Who may speak for others, and how.
#[derive(Debug)]
pub struct FrontProxies {
    /// Whose certificates count.
    pub authority: ClientAuthority,
    /// Common names that may; empty: all.
    pub allowed_names: Vec<String>,
    /// In which headers.
    pub headers: Arc<RequestHeaders>,
}

impl FrontProxies {
    /// Whom a front proxy names; `None` when the caller is none, or names nobody.
    ///
    /// # Errors
    /// Why what a front proxy says cannot be taken.
    pub(super) fn user(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        wall: Duration,
    ) -> Result<Option<UserInfo>, &'static str> {
        let names = self.headers.user.iter();
        let mut said = names.filter_map(|name| headers.get(name));
        let Some(name) = said.find(|value| !value.is_empty()) else {
            return Ok(None);
        };
        if connection.client_chain.is_empty() {
            return Ok(None);
        }
        let (slot, chain) = (&connection.known_proxy, &connection.client_chain);
        // Of another authority it is a client's, whose headers mean nothing.
        let Ok(proxy) = self.authority.judge_once(slot, chain, wall) else {
            return Ok(None);
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy.name) {
            return Ok(None);
        }
        Ok(Some(self.read(text(name)?, headers)?))
    }

    fn read(&self, name: String, headers: &HeaderMap) -> Result<UserInfo, &'static str> {
        let mut groups = Vec::new();
        for value in all(&self.headers.group, headers).filter(|value| !value.is_empty()) {
            groups.push(text(value)?);
        }
        let is_told = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if name != ANONYMOUS && !groups.iter().any(is_told) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let mut uids = all(&self.headers.uid, headers).filter(|value| !value.is_empty());
        Ok(UserInfo {
            name,
            uid: uids.next().map(text).transpose()?.unwrap_or_default(),
            groups,
            extra: self.extra(headers)?,
        })
    }

    fn extra(&self, headers: &HeaderMap) -> Result<Vec<(String, Vec<String>)>, &'static str> {
        let mut extra: Vec<(String, Vec<String>)> = Vec::new();
        for (name, value) in headers {
            let prefixes = &self.headers.extra_prefixes;
            let key = prefixes
                .iter()
                .find_map(|p| name.as_str().strip_prefix(p.as_str()));
            let Some(key) = key.filter(|key| !key.is_empty()) else {
                continue;
            };
            let key = unescape(key);
            let value = text(value)?;
            match extra.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => extra.push((key, vec![value])),
            }
        }
        Ok(extra)
    }
}

/// The key of an extra as it was before it became a header's name; a bad escape keeps the text, as
/// in Go.
pub(super) fn unescape(key: &str) -> String {
    percent_decode_str(key)
        .decode_utf8()
        .map_or_else(|_| key.to_owned(), Into::into)
}

fn all<'a>(
    names: &'a [HeaderName],
    headers: &'a HeaderMap,
) -> impl Iterator<Item = &'a HeaderValue> {
    names.iter().flat_map(|name| headers.get_all(name))
}

/// Another reader might understand other bytes differently.
fn text(value: &HeaderValue) -> Result<String, &'static str> {
    std::str::from_utf8(value.as_bytes())
        .map(str::to_owned)
        .map_err(|_| "what the front proxy says is not text")
}
