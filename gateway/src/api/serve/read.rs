//! Get and list.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use serde_json::json;
use sluice_metastore::Record;

use super::form::{self, Form};
use super::{Call, options};
use crate::api::errors;
use crate::api::object::{self, Opening};
use crate::api::storage::Listed;
use crate::api::table::{self, Shape};
use crate::body::{Body, BodyError};
use crate::status::Refusal;

/// Bytes made at a time while a list goes out: large enough to keep a connection busy, small
/// enough that many lists at once cost little. A shorter list is one piece with its length known.
const PIECE_BYTES: usize = 64 << 10;

/// One object.
pub(crate) async fn get(call: Call<'_>) -> Result<Response<Body>, Refusal> {
    if let Some(version) = options::get_version(call.info)? {
        call.server.storage().reach(version).await?;
    }
    let stored = call.server.storage().get(call.target())?;
    form::object(&call, StatusCode::OK, &stored)
}

/// A collection.
pub(crate) async fn list(call: Call<'_>) -> Result<Response<Body>, Refusal> {
    let form = Form::of(&call, Shape::List)?;
    let selectors = options::selectors(&call)?;
    let options = options::list(call.info)?;
    let storage = call.server.storage();
    let listed = storage
        .list(call.kind, call.namespace(), &selectors, &options)
        .await?;
    let body = body(&call, &form, listed)?;
    Ok(form::json(StatusCode::OK, body))
}

/// A list in the form asked for.
pub(super) fn body(call: &Call<'_>, form: &Form, listed: Listed) -> Result<Body, Refusal> {
    // Nothing may go wrong once the answer has begun.
    for record in &listed.records {
        if object::metadata_at(record.value()).is_none() {
            let key = String::from_utf8_lossy(record.key());
            let message = format!("stored value is not an object of this API: key={key}");
            return Err(errors::internal(message));
        }
    }
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    if let Some(map) = metadata.as_object_mut() {
        if !listed.token.is_empty() {
            map.insert("continue".into(), listed.token.into());
        }
        if let Some(remaining) = listed.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
    }
    let metadata = metadata.to_string();
    if let Form::Plain = form {
        return Ok(plain(call, &metadata, listed.records));
    }
    let view = call.server.views().of(call.kind);
    let objects: Vec<Bytes> = listed
        .records
        .iter()
        .filter_map(|r| view.object(r.value(), r.mod_revision()))
        .collect();
    let items = objects.iter().map(AsRef::as_ref);
    let made = match form {
        Form::Table(style) => table::render_list(style, &metadata, items),
        Form::Partial(version) => table::render_partial_list(*version, &metadata, items),
        Form::Plain => return Err(errors::internal("plain lists are not rendered")),
    };
    made.map(Body::from)
        .map_err(|error| errors::internal(format!("list could not be rendered: {error}")))
}

fn plain(call: &Call<'_>, metadata: &str, records: Vec<Record>) -> Body {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        call.kind.list_kind,
        call.kind.api_version()
    );
    let mut list = Pieces {
        opening: Opening::item(call.kind),
        head: Some(head),
        records: records.into(),
    };
    let first = list.piece().unwrap_or_default();
    if list.records.is_empty() && list.head.is_none() && first.ends_with(b"\n") {
        return Body::from(first);
    }
    Body::boxed(Streamed {
        first: Some(first),
        list,
    })
}

/// A list on its way out: the stored values themselves, spliced a piece at a time.
struct Pieces {
    opening: Opening,
    head: Option<String>,
    records: VecDeque<Record>,
}

impl Pieces {
    /// The next piece; the last one ends in a new line.
    fn piece(&mut self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(PIECE_BYTES / 4);
        let mut is_first = false;
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
            is_first = true;
        } else if self.records.is_empty() {
            return None;
        }
        while let Some(record) = self.records.pop_front() {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            self.opening
                .splice(&mut out, record.value(), record.mod_revision());
            if out.len() >= PIECE_BYTES && !self.records.is_empty() {
                return Some(Bytes::from(out));
            }
        }
        out.extend_from_slice(b"]}\n");
        Some(Bytes::from(out))
    }
}

struct Streamed {
    first: Option<Bytes>,
    list: Pieces,
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        let this = self.get_mut();
        let piece = this.first.take().or_else(|| this.list.piece());
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The error of a body that has none.
#[derive(Debug)]
pub(super) struct Never(Infallible);

impl From<Never> for BodyError {
    fn from(never: Never) -> Self {
        match never.0 {}
    }
}
