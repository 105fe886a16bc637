//! The form in which objects leave: as they are, as a table, or as bare metadata.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::Call;
use crate::api::errors;
use crate::api::storage::Stored;
use crate::api::table::{self, Columns, Head, Include, MetaVersion, Output, Shape, Style};
use crate::api::view::View;
use crate::body::Body;
use crate::status::Refusal;

/// The types an answer can have.
const ACCEPTED: &str = "application/json";

/// How a client wants objects.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// Themselves.
    Plain,
    /// Rows for people.
    Table(Style),
    /// Metadata alone.
    Partial(MetaVersion),
}

impl Form {
    /// The form of an answer of this shape.
    pub(crate) fn of(call: &Call<'_>, shape: Shape) -> Result<Form, Refusal> {
        match table::negotiate(call.headers, shape) {
            Output::Json => Ok(Form::Plain),
            Output::PartialMetadata(version) => Ok(Form::Partial(version)),
            Output::NotAcceptable => Err(errors::not_acceptable(ACCEPTED)),
            Output::Table(version) => {
                let include: Include = table::include_object(&call.query("includeObject"))?;
                let own = call.kind.columns.clone();
                Ok(Form::Table(Style {
                    columns: own.unwrap_or_else(|| Columns::of(call.kind)),
                    version,
                    include,
                    now: (call.server.storage().sources().now)(),
                }))
            }
        }
    }

    /// One object in this form.
    pub(crate) fn object(&self, head: Head, raw: Bytes) -> Result<Bytes, Refusal> {
        let made = match self {
            Form::Plain => return Ok(raw),
            Form::Table(style) => table::render_watch_object(style, head, &raw),
            Form::Partial(version) => table::render_partial(*version, &raw),
        };
        made.map_err(|error| errors::internal(format!("object could not be rendered: {error}")))
    }
}

/// An object as an answer.
pub(crate) fn object(
    call: &Call<'_>,
    code: StatusCode,
    stored: &Stored,
) -> Result<Response<Body>, Refusal> {
    let form = Form::of(call, Shape::Object)?;
    let view: Arc<View> = call.server.views().of(call.kind);
    let raw = view.object(&stored.value, stored.revision);
    let raw = raw.ok_or_else(|| errors::internal("stored value is not an object of this API"))?;
    let mut bytes = form.object(Head::Named, raw)?;
    if matches!(form, Form::Plain) {
        bytes = ended(bytes);
    }
    Ok(json(code, Body::from(bytes)))
}

/// A JSON answer.
pub(crate) fn json(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Adds `Warning` headers, as kubectl prints them.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    const WARNING: HeaderName = HeaderName::from_static("warning");
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Objects end in a new line, as people who use curl expect.
fn ended(bytes: Bytes) -> Bytes {
    let mut out = Vec::with_capacity(bytes.len() + 1);
    out.extend_from_slice(&bytes);
    out.push(b'\n');
    Bytes::from(out)
}
