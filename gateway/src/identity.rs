//! Who a request is made by, as Kubernetes names people: a value, made by [`crate::authn`] alone.

use http::HeaderName;

/// A user as a kube-apiserver's authenticators would report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// Never empty for an authenticated user.
    pub name: String,
    /// Opaque; often empty.
    pub uid: String,
    /// In the order the source gave them; `system:authenticated` is among them for all but
    /// anonymous callers.
    pub groups: Vec<String>,
    /// Lower-case keys with their values.
    pub extra: Vec<(String, Vec<String>)>,
}

/// The name of a caller who showed nothing.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of callers who showed nothing.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of callers who showed something that held.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

impl UserInfo {
    /// The caller who showed nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        UserInfo {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..UserInfo::default()
        }
    }

    /// Whether the user is a member of `group`.
    #[must_use]
    pub fn is_member(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// The headers in which front proxies tell who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaders {
    /// The user's name; at least one. The first is said, all are heard.
    pub user: Vec<HeaderName>,
    /// The user's uid; likewise, or none.
    pub uid: Vec<HeaderName>,
    /// A group, one line each; at least one.
    pub group: Vec<HeaderName>,
    /// What names of extra headers begin with, lower-case; or none.
    pub extra_prefixes: Vec<String>,
    /// Those that do not begin as the usual ones do, and are looked for by themselves.
    unusual: Vec<Unusual>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Unusual {
    text: String,
    is_prefix: bool,
}

/// What the usual names begin with; a client's own never survive.
pub(crate) const REMOTE_PREFIX: &str = "x-remote-";

impl RequestHeaders {
    /// Headers of these names; the first of each is said.
    #[must_use]
    pub fn new(
        user: Vec<HeaderName>,
        uid: Vec<HeaderName>,
        group: Vec<HeaderName>,
        extra_prefixes: Vec<String>,
    ) -> Self {
        let names = user.iter().chain(&uid).chain(&group);
        let names = names.map(|name| (name.as_str(), false));
        let prefixes = extra_prefixes.iter().map(|prefix| (prefix.as_str(), true));
        let unusual = names
            .chain(prefixes)
            .filter(|(text, _)| !begins(text, REMOTE_PREFIX))
            .map(|(text, is_prefix)| Unusual {
                text: text.replace('_', "-"),
                is_prefix,
            })
            .collect();
        RequestHeaders {
            user,
            uid,
            group,
            extra_prefixes,
            unusual,
        }
    }

    /// Whether a header is one of these and not one of the usual names.
    #[must_use]
    pub fn is_unusual(&self, name: &HeaderName) -> bool {
        self.unusual.iter().any(|unusual| {
            let text = name.as_str();
            begins(text, &unusual.text) && (unusual.is_prefix || text.len() == unusual.text.len())
        })
    }
}

impl Default for RequestHeaders {
    fn default() -> Self {
        let one = |name| vec![HeaderName::from_static(name)];
        RequestHeaders::new(
            one("x-remote-user"),
            one("x-remote-uid"),
            one("x-remote-group"),
            vec!["x-remote-extra-".to_owned()],
        )
    }
}

/// Whether `text` begins with `prefix`, an underscore being as good as a dash: some receivers
/// fold them.
pub(crate) fn begins(text: &str, prefix: &str) -> bool {
    let mut pairs = text.bytes().zip(prefix.bytes());
    text.len() >= prefix.len() && pairs.all(|(t, p)| t == p || (t == b'_' && p == b'-'))
}
