//! The tables of HPACK: what everybody knows (RFC 7541, appendix A) and what a peer had remembered.
//!
//! Entries are kept as they are used: names and values are judged when they come and cloned for
//! nothing when they are named again.

use std::collections::VecDeque;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};

/// Each entry costs as much beside its text.
const ENTRY_BYTES: usize = 32;

pub(crate) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

static STATIC_FIELDS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let entries = STATIC.iter();
    let entry = |&(name, value): &(&'static str, &'static str)| {
        Entry::new(name.as_bytes(), Bytes::from_static(value.as_bytes()))
    };
    entries.map(entry).collect()
});

/// One line of a header block, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Method(Method),
    Scheme(Bytes),
    Authority(Bytes),
    Path(Bytes),
    Status(StatusCode),
    Plain(HeaderName, HeaderValue),
    /// Nothing that a head may have; its name may be named again.
    Bad(Bytes),
}

impl Field {
    fn of(name: &[u8], value: Bytes) -> Self {
        let known = match name {
            b":method" => Method::from_bytes(&value).ok().map(Field::Method),
            b":status" => StatusCode::from_bytes(&value).ok().map(Field::Status),
            b":scheme" => Some(Field::Scheme(value)),
            b":authority" => Some(Field::Authority(value)),
            b":path" => Some(Field::Path(value)),
            // From lower case alone: capitals are malformed here.
            _ => HeaderName::from_lowercase(name)
                .ok()
                .and_then(|name| Field::plain(name, value)),
        };
        known.unwrap_or_else(|| Field::Bad(Bytes::copy_from_slice(name)))
    }

    fn plain(name: HeaderName, value: Bytes) -> Option<Self> {
        let value = HeaderValue::from_maybe_shared(value).ok()?;
        Some(Field::Plain(name, value))
    }

    fn name(&self) -> &[u8] {
        match self {
            Field::Method(_) => b":method",
            Field::Scheme(_) => b":scheme",
            Field::Authority(_) => b":authority",
            Field::Path(_) => b":path",
            Field::Status(_) => b":status",
            Field::Plain(name, _) => name.as_str().as_bytes(),
            Field::Bad(name) => name,
        }
    }
}

/// A field and its size as HPACK counts it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) field: Field,
    pub(crate) size: usize,
}

impl Entry {
    pub(crate) fn new(name: &[u8], value: Bytes) -> Self {
        let size = name.len() + value.len() + ENTRY_BYTES;
        let field = Field::of(name, value);
        Entry { field, size }
    }

    /// The same name with another value.
    pub(crate) fn with(&self, value: Bytes) -> Self {
        let name = self.field.name();
        let size = name.len() + value.len() + ENTRY_BYTES;
        let field = match &self.field {
            Field::Plain(known, _) => Field::plain(known.clone(), value)
                .unwrap_or_else(|| Field::Bad(Bytes::copy_from_slice(name))),
            _ => Field::of(name, value),
        };
        Entry { field, size }
    }

    /// Nobody on its way is to remember it (RFC 7541, section 6.2.3).
    pub(crate) fn keep_secret(&mut self) {
        if let Field::Plain(_, value) = &mut self.field {
            value.set_sensitive(true);
        }
    }
}

/// What a peer had remembered, youngest first.
#[derive(Debug)]
pub(crate) struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
}

impl Table {
    pub(crate) fn new(size_max: usize) -> Self {
        Table {
            entries: VecDeque::new(),
            size: 0,
            size_max,
        }
    }

    /// By the number that both tables share.
    pub(crate) fn get(&self, index: usize) -> Option<&Entry> {
        let index = index.checked_sub(1)?;
        match index.checked_sub(STATIC.len()) {
            None => STATIC_FIELDS.get(index),
            Some(index) => self.entries.get(index),
        }
    }

    /// One that is larger than the whole table empties it.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.evict(self.size_max.saturating_sub(entry.size));
        if entry.size <= self.size_max {
            self.size += entry.size;
            self.entries.push_front(entry);
        }
    }

    pub(crate) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(size_max);
    }

    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size;
        }
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}
