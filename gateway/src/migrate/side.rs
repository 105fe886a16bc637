//! What is read: a live etcd over the wire, or a data directory through a store.

use bytes::Bytes;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::KeyValue;
use sluice_metastore::read::{At, Projection, Range};
use sluice_metastore::{KeyRange, LeaseId, Record, Revision, Store};

use super::MigrateError;
use super::remote::Remote;

/// One key at one revision, as the wire has it.
pub(super) type Item = KeyValue;

/// What lies between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first key; empty for the first of all.
    pub(super) start: Bytes,
    /// The first key past it; `None` when it has no end.
    pub(super) end: Option<Bytes>,
}

impl Span {
    /// All keys.
    pub(super) fn all() -> Span {
        Span {
            start: Bytes::new(),
            end: None,
        }
    }

    /// All keys that begin like this.
    pub(super) fn prefix(prefix: &[u8]) -> Span {
        let range = KeyRange::prefix(prefix);
        Span {
            start: Bytes::copy_from_slice(range.start()),
            end: range.end().map(Bytes::copy_from_slice),
        }
    }

    /// What of it comes after a key.
    pub(super) fn after(&self, key: &[u8]) -> Span {
        let next = Bytes::from([key, b"\0"].concat());
        Span {
            start: next.max(self.start.clone()),
            end: self.end.clone(),
        }
    }

    fn wire(&self) -> (Bytes, Bytes) {
        // To the wire, a zero byte is the first key there can be, and as an end it is none.
        let zero = Bytes::from_static(b"\0");
        let start = Some(self.start.clone()).filter(|start| !start.is_empty());
        let end = self.end.clone();
        (start.unwrap_or_else(|| zero.clone()), end.unwrap_or(zero))
    }

    fn range(&self) -> KeyRange {
        match &self.end {
            Some(end) => KeyRange::Between(self.start.clone(), end.clone()),
            None if self.start.is_empty() => KeyRange::All,
            None => KeyRange::From(self.start.clone()),
        }
    }
}

/// Sorts spans and joins those that overlap, so that every key is read once and in order.
pub(super) fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|one, two| one.start.cmp(&two.start));
    let mut out: Vec<Span> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= span.start) => {
                last.end = match (last.end.take(), span.end) {
                    (Some(one), Some(two)) => Some(one.max(two)),
                    _ => None,
                };
            }
            _ => out.push(span),
        }
    }
    out
}

/// Keys of a span, no more than were asked for.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) items: Vec<Item>,
    pub(super) more: bool,
    /// How many keys the span holds.
    pub(super) count: u64,
}

/// Something that can be read.
#[derive(Clone)]
pub(super) enum Side {
    /// Over the wire.
    Live(Remote),
    /// In this process; its clock stands still, so that no lease ends while it is read.
    Dir(Store),
}

impl Side {
    /// Reads a page; `at` is a revision, or none for the newest.
    pub(super) async fn page(
        &self,
        span: &Span,
        at: Option<i64>,
        limit: usize,
    ) -> Result<Page, MigrateError> {
        match self {
            Side::Live(remote) => live_page(remote, span, at, limit, false).await,
            Side::Dir(store) => dir_page(store, span, at, limit),
        }
    }

    /// How many keys there are.
    pub(super) async fn count(&self, spans: &[Span], at: Option<i64>) -> Result<u64, MigrateError> {
        let mut count = 0;
        for span in spans {
            count += match self {
                Side::Live(remote) => live_page(remote, span, at, 0, true).await?.count,
                Side::Dir(store) => {
                    let mut query = query(span, at);
                    query.projection = Projection::CountOnly;
                    store.range(&query)?.count
                }
            };
        }
        Ok(count)
    }

    /// What is left of a lease, in seconds; `None` when it has ended.
    pub(super) async fn lease_left(&self, id: i64) -> Result<Option<i64>, MigrateError> {
        match self {
            Side::Live(remote) => remote.lease_left(id).await,
            Side::Dir(store) => {
                let view = store.lease_remaining(LeaseId(id)).ok();
                Ok(view.map(|view| i64::try_from(view.remaining.as_secs()).unwrap_or(i64::MAX)))
            }
        }
    }
}

async fn live_page(
    remote: &Remote,
    span: &Span,
    at: Option<i64>,
    limit: usize,
    count_only: bool,
) -> Result<Page, MigrateError> {
    let (key, range_end) = span.wire();
    let request = pb::RangeRequest {
        key,
        range_end,
        revision: at.unwrap_or(0),
        limit: i64::try_from(limit).unwrap_or(i64::MAX),
        count_only,
        ..Default::default()
    };
    let answer = match remote.range("read", request).await {
        Ok(answer) => answer,
        Err(MigrateError::Refused { reason, .. }) if reason.contains("has been compacted") => {
            return Err(MigrateError::Compacted {
                role: remote.role(),
                revision: at.unwrap_or(0),
            });
        }
        Err(error) => return Err(error),
    };
    Ok(Page {
        items: answer.kvs,
        more: answer.more,
        count: u64::try_from(answer.count).unwrap_or(0),
    })
}

fn query(span: &Span, at: Option<i64>) -> Range {
    let mut query = Range::of(span.range());
    query.at = at
        .and_then(Revision::from_wire)
        .map_or(At::Latest, At::Exactly);
    query
}

fn dir_page(
    store: &Store,
    span: &Span,
    at: Option<i64>,
    limit: usize,
) -> Result<Page, MigrateError> {
    let mut query = query(span, at);
    query.limit = Some(limit);
    let answer = store.range(&query)?;
    Ok(Page {
        items: answer.records.iter().map(item).collect(),
        more: answer.more,
        count: answer.count,
    })
}

fn item(record: &Record) -> Item {
    Item {
        key: record.key_bytes(),
        value: record.value_bytes(),
        create_revision: record.create_revision().to_wire(),
        mod_revision: record.mod_revision().to_wire(),
        version: i64::try_from(record.version()).unwrap_or(i64::MAX),
        lease: record.lease().0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: &'static str, end: &'static str) -> Span {
        Span {
            start: Bytes::from(start),
            end: Some(end).filter(|end| !end.is_empty()).map(Bytes::from),
        }
    }

    #[test]
    fn spans_that_overlap_are_read_once() {
        let given = vec![
            span("m", "n"),
            span("a", "c"),
            span("b", "d"),
            span("d", "e"),
        ];
        assert_eq!(merged(given), [span("a", "e"), span("m", "n")]);
        assert_eq!(merged(vec![span("b", ""), span("a", "c")]), [span("a", "")]);
        assert_eq!(Span::prefix(b""), Span::all());
        assert_eq!(Span::prefix(b"/a").end, Some(Bytes::from("/b")));
        assert_eq!(Span::prefix(b"\xff").end, None);
        assert_eq!(span("a", "c").after(b"b").start, "b\0");
        assert_eq!(span("m", "n").after(b"b").start, "m");
    }
}
