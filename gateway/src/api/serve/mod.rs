//! Requests for objects, and the answers to them: what lies between HTTP and [`super::storage`].

mod body;
mod form;
mod options;
mod patch;
mod read;
mod scale;
mod strategic;
mod watch;
mod write;

pub(crate) use form::json;
pub(crate) use read::{get, list};
pub(crate) use scale::serve as scale;
pub(crate) use watch::serve as watch;
pub(crate) use write::{create, delete, delete_collection, patch, update};

use std::sync::Arc;

use http::HeaderMap;

use super::rbac::Attributes;
use super::resource::ResourceKind;
use super::reviews::Review;
use super::server::ApiServer;
use super::storage::{Object, Part, Target};
use crate::body::Body;
use crate::context::RequestContext;
use crate::request::RequestInfo;
use crate::status::Refusal;

/// One request for objects of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) ctx: &'a RequestContext,
    pub(crate) info: &'a RequestInfo,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) kind: &'a Arc<ResourceKind>,
    pub(crate) part: Part,
}

impl<'a> Call<'a> {
    /// The path's namespace; empty for cluster-wide kinds, whatever the attribute says.
    fn namespace(&self) -> &'a str {
        if self.kind.is_namespaced() {
            self.info.namespace()
        } else {
            ""
        }
    }

    fn target(&self) -> Target<'a> {
        Target {
            kind: self.kind,
            namespace: self.namespace(),
            name: self.info.name(),
        }
    }

    fn query(&self, key: &str) -> String {
        self.info.query_value(key).unwrap_or_default().into_owned()
    }
}

/// Reads a question of a body; it is answered and not stored.
pub(crate) async fn read_question(
    review: Review,
    headers: &HeaderMap,
    body: Body,
) -> Result<Object, Refusal> {
    let bytes = body::collect(body).await?;
    let expected = body::Expected::Other(review.type_meta());
    let decoded = body::decode(headers, &bytes, body::FieldValidation::Ignore, expected)?;
    Ok(decoded.object)
}

/// A request's attributes in the words rules are written in.
pub(crate) fn attributes(info: &RequestInfo) -> Attributes<'_> {
    Attributes {
        verb: info.verb_name(),
        group: info.group(),
        resource: info.resource(),
        subresource: info.subresource(),
        namespace: info.namespace(),
        name: info.name(),
        path: info.path(),
    }
}
