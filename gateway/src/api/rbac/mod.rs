//! Who may do what in the Kubernetes API served from the metastore: RBAC, evaluated in process.
//!
//! Roles and bindings are objects like any other and lie in the store. [`view`] follows them in
//! revision order and publishes a compiled `index`; a decision reads that index and nothing
//! else, so it takes no lock and never waits. Everything is refused that no rule allows; members of
//! `system:masters` may do everything, whatever the rules say.
//!
//! It does not know the Node authorizer, webhooks, or any attribute of a user but name and groups.
//! Its size is that of the stored roles and bindings.

pub mod escalation;
pub mod impersonate;
mod index;
pub mod message;
mod objects;
pub mod rule;
pub mod view;

#[cfg(test)]
mod tests;

pub use objects::GROUP;
pub use view::Authorizer;

use crate::identity::{MASTERS, UserInfo};

/// What is asked for, in the words rules are written in. Absent parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or any
    /// other word; for a path the HTTP method in lower case.
    pub verb: &'a str,
    /// The API group; the core group is empty.
    pub group: &'a str,
    /// The plural resource; empty when the request is for a path.
    pub resource: &'a str,
    /// The part of the resource, as `status` or `log`.
    pub subresource: &'a str,
    /// Empty for cluster-wide requests.
    pub namespace: &'a str,
    /// The object's name; empty for create, list, watch and collections.
    pub name: &'a str,
    /// The URL path; looked at only when `resource` is empty.
    pub path: &'a str,
}

impl Attributes<'_> {
    /// Whether it is for a resource, and not for a bare path.
    #[must_use]
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }
}

/// What the evaluator answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether some rule allows it.
    pub allowed: bool,
    /// Which binding allowed it, in a kube-apiserver's words; empty when nothing did.
    pub reason: String,
}

impl Decision {
    /// The short cut of the privileged group.
    fn of_masters(user: &UserInfo) -> Option<Decision> {
        user.is_member(MASTERS).then(|| Decision {
            allowed: true,
            reason: String::new(),
        })
    }
}
