//! Who a request is made by, as Kubernetes names people: a value, made by [`crate::authn`] alone.

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
