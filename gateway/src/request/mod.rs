//! What a request asks for, read as a kube-apiserver reads it.
//!
//! One parse feeds classification, authorization, audit and routing; the URI itself goes upstream
//! byte for byte. Where gateway and apiserver could read a URI differently, the request is refused
//! rather than guessed at. An ordinary request costs no allocation: attributes are places in the
//! URI, whose bytes are shared. Knows no resource kinds: `/api/v1/anything` is a resource request.

mod path;
mod query;
mod selector;
mod text;
mod verb;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::num::NonZeroU64;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};

use self::path::Parts;
use self::query::Query;
use crate::status::{Refusal, Stage};

pub use self::verb::Verb;

/// The attributes of one request. Texts are empty where an attribute is absent.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    uri: PathAndQuery,
    /// The path after percent-decoding, where that changes it; `parts` point into it then.
    decoded: Option<Box<str>>,
    parts: Parts,
    verb: Verb,
    /// The lower-cased method of a [`Verb::Other`].
    other_verb: Option<Box<str>>,
    query: Query,
    /// The name that a field selector requires, when the path has none.
    selected_name: Option<Box<str>>,
    is_upgrade: bool,
}

impl RequestInfo {
    /// Reads a request's head.
    ///
    /// # Errors
    /// 400 when host, length, path or query can be read in more than one way, or the path names a verb and
    /// no resource.
    pub fn parse(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Self, Refusal> {
        check_host(uri, headers).map_err(|fault| refuse("host", fault))?;
        if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
            return Err(refuse("content-length", "more than one is given"));
        }
        let uri = uri
            .path_and_query()
            .filter(|uri| uri.path().starts_with('/'))
            .cloned()
            .ok_or_else(|| refuse("path", "it does not begin with a slash"))?;
        let decoded = path::decode(uri.path()).map_err(|fault| refuse("path", fault))?;
        let text = decoded.path.as_deref().unwrap_or(uri.path());
        let parts = path::resolve(method, text, &decoded).map_err(|fault| refuse("path", fault))?;
        // The query of a proxied request belongs to the server behind, like the path's remainder.
        let query = match uri.query() {
            Some(raw) if parts.proxied_from.is_none() => {
                query::parse(raw).map_err(|fault| refuse("query", fault))?
            }
            _ => Query::default(),
        };
        let mut info = RequestInfo {
            decoded: decoded.path,
            verb: parts.verb,
            other_verb: (parts.verb == Verb::Other)
                .then(|| method.as_str().to_ascii_lowercase().into_boxed_str()),
            selected_name: None,
            is_upgrade: is_upgrade(method, headers),
            uri,
            parts,
            query,
        };
        if info.parts.is_resource && info.name().is_empty() {
            info.settle_collection();
        }
        Ok(info)
    }

    /// A request without a name asks for a collection.
    fn settle_collection(&mut self) {
        match self.verb {
            Verb::Get => {
                self.verb = if self.query.watch == Some(true) {
                    Verb::Watch
                } else {
                    Verb::List
                };
                // The server takes no name out of options that it could not decode.
                if self.query.fault.is_none() {
                    let selector = self.query.field_selector.of(self.raw_query());
                    self.selected_name =
                        selector::required_name(selector).map(String::into_boxed_str);
                }
            }
            Verb::Delete => self.verb = Verb::DeleteCollection,
            _ => {}
        }
    }

    /// What it does.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// The verb's exact word, that of an unusual method included.
    #[must_use]
    pub fn verb_name(&self) -> &str {
        self.other_verb
            .as_deref()
            .unwrap_or_else(|| self.verb.as_str())
    }

    /// The API group, empty for the core group and for what is no resource.
    #[must_use]
    pub fn group(&self) -> &str {
        self.parts.group.of(self.path())
    }

    /// The API version.
    #[must_use]
    pub fn version(&self) -> &str {
        self.parts.version.of(self.path())
    }

    /// The resource in plural, as in the path.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.parts.resource.of(self.path())
    }

    /// The subresource.
    #[must_use]
    pub fn subresource(&self) -> &str {
        self.parts.subresource.of(self.path())
    }

    /// The namespace; of a Namespace object, its own name.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.parts.namespace.of(self.path())
    }

    /// The object's name: from the path, or for list and watch the one that the field selector
    /// requires.
    #[must_use]
    pub fn name(&self) -> &str {
        self.selected_name
            .as_deref()
            .unwrap_or_else(|| self.parts.name.of(self.path()))
    }

    /// The percent-decoded path, without query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.decoded.as_deref().unwrap_or_else(|| self.uri.path())
    }

    /// Path and query as they came.
    #[must_use]
    pub fn uri(&self) -> &PathAndQuery {
        &self.uri
    }

    /// Whether it is about an API resource, and not about another path.
    #[must_use]
    pub fn is_resource(&self) -> bool {
        self.parts.is_resource
    }

    /// Whether it follows a collection.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.verb == Verb::Watch
    }

    /// Whether it reads a collection.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.verb == Verb::List
    }

    /// Whether it asks to leave HTTP: `Connection: upgrade` with an `Upgrade` header, or CONNECT.
    #[must_use]
    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// Whether the apiserver exempts it from its request timeout: watches, logs, tunnels, profiles.
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        if !self.parts.is_resource {
            return self.path().starts_with("/debug/pprof/");
        }
        matches!(self.verb, Verb::Watch | Verb::Proxy)
            || matches!(
                self.subresource(),
                "attach" | "exec" | "proxy" | "log" | "portforward"
            )
    }

    /// Whether a server behind an apiserver answers (subresource `proxy`); the rest of the path and
    /// the query are then that server's own and were not looked at.
    #[must_use]
    pub fn is_proxied(&self) -> bool {
        self.parts.proxied_from.is_some()
    }

    /// The raw label selector, where it is a request attribute: list, watch and deletecollection
    /// whose verb is not a word of the path.
    #[must_use]
    pub fn label_selector(&self) -> &str {
        self.selector(&self.query.label_selector)
    }

    /// The raw field selector, with the same bounds as [`Self::label_selector`].
    #[must_use]
    pub fn field_selector(&self) -> &str {
        self.selector(&self.query.field_selector)
    }

    /// The most objects a list may answer; `None` without a limit, or with zero or less.
    #[must_use]
    pub fn limit(&self) -> Option<NonZeroU64> {
        self.query.limit
    }

    /// The token of a list's next page.
    #[must_use]
    pub fn continue_token(&self) -> &str {
        self.query.continue_token.of(self.raw_query())
    }

    /// The resource version asked for.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.query.resource_version.of(self.raw_query())
    }

    /// How the resource version is meant: `Exact`, `NotOlderThan` or not said.
    #[must_use]
    pub fn resource_version_match(&self) -> &str {
        self.query.resource_version_match.of(self.raw_query())
    }

    /// How long a watch may last.
    #[must_use]
    pub fn timeout_seconds(&self) -> Option<u64> {
        self.query.timeout_seconds
    }

    /// Whether a watch wants bookmarks.
    #[must_use]
    pub fn allow_watch_bookmarks(&self) -> bool {
        self.query.allow_watch_bookmarks == Some(true)
    }

    /// Whether a watch wants the present objects first; `None` when not said.
    #[must_use]
    pub fn send_initial_events(&self) -> Option<bool> {
        self.query.send_initial_events
    }

    /// What the server's decoder of list options will refuse, if anything. The request is still
    /// forwarded: the answer is the upstream's.
    #[must_use]
    pub fn query_fault(&self) -> Option<&'static str> {
        self.query.fault
    }

    /// The first value of any query parameter, decoded; looked up anew at each call.
    #[must_use]
    pub fn query_value(&self, key: &str) -> Option<Cow<'_, str>> {
        query::value(self.raw_query(), key)
    }

    fn selector<'a>(&'a self, text: &'a text::Text) -> &'a str {
        let is_collection = matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        if is_collection && !self.parts.verb_in_path {
            text.of(self.raw_query())
        } else {
            ""
        }
    }

    fn raw_query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }
}

fn refuse(part: &str, fault: &str) -> Refusal {
    Refusal::bad_request(Stage::Request, format!("ambiguous {part}: {fault}"))
}

/// Whether the request names one host, in its first line, in its header, or the same in both.
fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    let (host, authority) = (hosts.next(), uri.authority());
    if hosts.next().is_some() {
        return Err("more than one is given");
    }
    if let Some(authority) = authority {
        if authority.as_str().contains('@') {
            return Err("a user is named before it");
        }
        let is_same = |host: &http::HeaderValue| {
            host.as_bytes()
                .eq_ignore_ascii_case(authority.as_str().as_bytes())
        };
        if !host.is_none_or(is_same) {
            return Err("the header names another than the first line or `:authority`");
        }
    }
    Ok(())
}

fn is_upgrade(method: &Method, headers: &HeaderMap) -> bool {
    if method == Method::CONNECT {
        return true;
    }
    headers.contains_key(UPGRADE)
        && headers.get_all(CONNECTION).iter().any(|value| {
            value
                .as_bytes()
                .split(|byte| *byte == b',')
                .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        })
}
