//! The verbs of Kubernetes' authorization attributes. They are not HTTP methods: a GET of a
//! collection is a `list` or a `watch`, a DELETE of one a `deletecollection`.

use http::Method;

/// What a request does, in the words that RBAC and audit use.
///
/// The first group belongs to resources, the second (lower-cased methods) to all other paths;
/// `get`, `patch` and `delete` occur in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object, or a path that is no resource.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// Make an object, or POST to a subresource.
    Create,
    /// Replace an object.
    Update,
    /// Change an object in part.
    Patch,
    /// Remove one object.
    Delete,
    /// Remove a collection.
    DeleteCollection,
    /// The path form `/api/v1/proxy/...`, long gone from the server but still parsed.
    Proxy,
    /// A resource with a method that has no verb; only `*` authorises it.
    Empty,
    /// HEAD of a path that is no resource.
    Head,
    /// OPTIONS of a path that is no resource.
    Options,
    /// POST to a path that is no resource.
    Post,
    /// PUT to a path that is no resource.
    Put,
    /// Another method on a path that is no resource; the request keeps its name.
    Other,
}

impl Verb {
    /// The verb's word; `other` for [`Verb::Other`], whose own word only the request knows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Proxy => "proxy",
            Verb::Empty => "",
            Verb::Head => "head",
            Verb::Options => "options",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Other => "other",
        }
    }

    /// Whether Kubernetes' own in-flight limits count it as reading: get, list and watch do,
    /// everything else mutates. Says nothing on whether a retry is safe; the method does.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }

    /// The verb of a resource request, before the absence of a name turns it into another.
    pub(super) fn of_resource(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ => Verb::Empty,
        }
    }

    /// The verb of any other request: the method in lower case.
    pub(super) fn of_path(method: &Method) -> Self {
        match *method {
            Method::GET => Verb::Get,
            Method::HEAD => Verb::Head,
            Method::POST => Verb::Post,
            Method::PUT => Verb::Put,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            Method::OPTIONS => Verb::Options,
            _ => Verb::Other,
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
