//! The documents an API describes itself by: version, discovery, OpenAPI.
//!
//! They are functions of the table of kinds and are built when first asked for after it changed;
//! each is kept as bytes with its hash, so that a client that has it already is told so (304). They
//! are as many as there are group versions.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Response, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha512};

use super::crd::Definitions;
use super::resource::{Registry, Table};
use super::{discovery, openapi, version};
use crate::body::Body;

/// One document as it is served.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) body: Bytes,
    /// Upper-case hexadecimal SHA-512 of the body, as kube-apiservers make it.
    pub(crate) hash: String,
}

impl Document {
    pub(crate) fn of(value: &Value) -> Document {
        let body = Bytes::from(value.to_string());
        let mut hash = String::with_capacity(128);
        for byte in Sha512::digest(&body) {
            // Writing into a String cannot fail.
            let _ok = write!(hash, "{byte:02X}");
        }
        Document { body, hash }
    }
}

/// Every document of one table of kinds, by path without a leading slash.
#[derive(Debug)]
struct Built {
    table: Arc<Table>,
    plain: HashMap<String, Document>,
    /// Aggregated discovery, of `api` and `apis`, by version of that API.
    aggregated: HashMap<(String, discovery::Version), Document>,
}

/// Serves the documents.
#[derive(Debug)]
pub struct Documents {
    registry: Arc<Registry>,
    definitions: Arc<Definitions>,
    built: ArcSwapOption<Built>,
}

impl Documents {
    /// Documents of the kinds in `registry`, with the schemas of `definitions`.
    #[must_use]
    pub fn new(registry: Arc<Registry>, definitions: Arc<Definitions>) -> Self {
        Documents {
            registry,
            definitions,
            built: ArcSwapOption::empty(),
        }
    }

    /// The answer to a GET of one of the documents; `None` for any other path.
    #[must_use]
    pub fn serve(&self, uri: &PathAndQuery, headers: &HeaderMap) -> Option<Response<Body>> {
        let path = uri.path().trim_matches('/');
        let built = self.built();
        if matches!(path, "api" | "apis")
            && let Some(version) = discovery::Version::asked(headers)
        {
            let document = built.aggregated.get(&(path.to_owned(), version))?;
            let mut response = answer(document, headers);
            let media = HeaderValue::from_static(version.media_type());
            response.headers_mut().insert(CONTENT_TYPE, media);
            return Some(response);
        }
        let document = built.plain.get(path)?;
        if path == "openapi/v2" && !accepts_json(headers) {
            return Some(not_acceptable());
        }
        if path.starts_with("openapi/v3/") {
            return Some(hashed(path, uri.query(), document, headers));
        }
        Some(answer(document, headers))
    }

    /// The documents of the table as it is now. Two requests may build them at once; both results
    /// are the same.
    fn built(&self) -> Arc<Built> {
        let table = self.registry.table();
        if let Some(built) = self.built.load_full()
            && Arc::ptr_eq(&built.table, &table)
        {
            return built;
        }
        let mut plain = discovery::legacy(&table);
        plain.insert("version".to_owned(), Document::of(&version::document()));
        openapi::build(&table, &self.definitions, &mut plain);
        let paths: Vec<String> = plain.keys().map(|path| format!("/{path}")).collect();
        plain.insert(String::new(), Document::of(&discovery::root(paths)));
        let built = Arc::new(Built {
            aggregated: discovery::aggregated(&table),
            plain,
            table,
        });
        self.built.store(Some(Arc::clone(&built)));
        built
    }
}

/// Whether the client takes JSON; the second version of OpenAPI is asked for in protobuf by some
/// that then fall back to the third.
fn accepts_json(headers: &HeaderMap) -> bool {
    let Some(accept) = headers
        .get(http::header::ACCEPT)
        .and_then(|v| v.to_str().ok())
    else {
        return true;
    };
    accept.split(',').any(|clause| {
        let media = clause.split(';').next().unwrap_or_default().trim();
        matches!(media, "application/json" | "application/*" | "*/*")
    })
}

fn not_acceptable() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
    response
}

fn answer(document: &Document, headers: &HeaderMap) -> Response<Body> {
    let etag = format!("\"{}\"", document.hash);
    let known = headers
        .get(IF_NONE_MATCH)
        .is_some_and(|v| v.as_bytes() == etag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Response::new(Body::from(document.body.clone()))
    };
    let into = response.headers_mut();
    into.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    into.insert(VARY, HeaderValue::from_static("Accept"));
    into.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        into.insert(ETAG, etag);
    }
    response
}

/// A document that may be asked for by its hash: then it never changes.
fn hashed(
    path: &str,
    query: Option<&str>,
    document: &Document,
    headers: &HeaderMap,
) -> Response<Body> {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let asked = pairs
        .into_iter()
        .find_map(|pair| pair.strip_prefix("hash="));
    let mut response = match asked {
        Some(hash) if hash != document.hash => {
            let mut moved = Response::new(Body::Empty);
            *moved.status_mut() = StatusCode::MOVED_PERMANENTLY;
            let right = format!("/{path}?hash={}", document.hash);
            if let Ok(right) = HeaderValue::from_str(&right) {
                moved.headers_mut().insert(LOCATION, right);
            }
            return moved;
        }
        _ => answer(document, headers),
    };
    if asked.is_some() {
        let into = response.headers_mut();
        let forever = HeaderValue::from_static("public, immutable");
        into.insert(CACHE_CONTROL, forever);
        let year = jiff::SignedDuration::from_hours(365 * 24);
        let expires = i64::try_from(crate::clock::wall().as_secs())
            .ok()
            .and_then(|now| jiff::Timestamp::from_second(now).ok())
            .and_then(|now| now.checked_add(year).ok())
            .map(|then| then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        if let Some(expires) = expires.and_then(|text| HeaderValue::from_str(&text).ok()) {
            into.insert(EXPIRES, expires);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::ACCEPT;

    fn get(
        documents: &Documents,
        uri: &str,
        headers: &[(http::HeaderName, &str)],
    ) -> Response<Body> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let uri = uri.parse().expect("a uri");
        documents.serve(&uri, &map).expect("a document")
    }

    fn header(response: &Response<Body>, name: http::HeaderName) -> String {
        let value = response.headers().get(name).expect("the header");
        value.to_str().expect("text").to_owned()
    }

    fn sample() -> (Arc<Registry>, Documents) {
        let registry = Arc::new(Registry::new());
        let documents = Documents::new(Arc::clone(&registry), Arc::new(Definitions::none()));
        (registry, documents)
    }

    #[test]
    fn who_has_a_document_is_told_so_until_it_changes() {
        let (registry, documents) = sample();
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let first = get(&documents, "/apis", &[(ACCEPT, accept)]);
        assert_eq!(header(&first, CONTENT_TYPE), accept);
        let etag = header(&first, ETAG);
        let again = || {
            get(
                &documents,
                "/apis",
                &[(ACCEPT, accept), (IF_NONE_MATCH, &etag)],
            )
        };
        assert_eq!(again().status(), StatusCode::NOT_MODIFIED);
        assert_eq!(header(&again(), VARY), "Accept");
        let mut kind = super::super::resource::ResourceKind::clone(
            &registry.resolve("", "v1", "pods").expect("built in"),
        );
        kind.group = "example.com".into();
        kind.is_custom = true;
        registry.set_custom(vec![Arc::new(kind)]);
        assert_eq!(again().status(), StatusCode::OK);
    }

    #[test]
    fn schemas_are_found_by_their_hash() {
        let (_registry, documents) = sample();
        let path = "/openapi/v3/apis/apps/v1";
        let moved = get(&documents, &format!("{path}?hash=OLD"), &[]);
        assert_eq!(moved.status(), StatusCode::MOVED_PERMANENTLY);
        let right = header(&moved, LOCATION);
        let found = get(&documents, &right, &[]);
        assert_eq!(found.status(), StatusCode::OK);
        assert_eq!(header(&found, CACHE_CONTROL), "public, immutable");
        assert!(right.ends_with(header(&found, ETAG).trim_matches('"')));
        assert!(found.headers().contains_key(EXPIRES));
        assert_eq!(get(&documents, path, &[]).status(), StatusCode::OK);
    }

    #[test]
    fn second_openapi_is_json_or_nothing() {
        let (_registry, documents) = sample();
        let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let refused = get(&documents, "/openapi/v2", &[(ACCEPT, protobuf)]);
        assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
        assert_eq!(get(&documents, "/openapi/v2", &[]).status(), StatusCode::OK);
    }
}
