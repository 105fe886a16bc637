//! Roles and bindings as they lie in the store, read only as far as decisions need them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rule::Rule;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What of an object's metadata counts here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// A `Role` or a `ClusterRole`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Role {
    pub(crate) metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) rules: Vec<Rule>,
    /// Only on a `ClusterRole`: its rules are those of the cluster roles it selects.
    pub(crate) aggregation_rule: Option<Aggregation>,
}

/// Which cluster roles an aggregated one takes its rules from: any of the selectors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Aggregation {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) cluster_role_selectors: Vec<Selector>,
}

/// A label selector; an empty one selects everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Selector {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) match_expressions: Vec<Requirement>,
}

/// One condition on a label.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Requirement {
    key: String,
    operator: String,
    #[serde(deserialize_with = "null_is_empty")]
    values: Vec<String>,
}

impl Selector {
    /// Whether the labels satisfy every condition; an unknown operator satisfies nothing.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = self
            .match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value));
        equal
            && self.match_expressions.iter().all(|wanted| {
                let value = labels.get(&wanted.key);
                let listed = value.is_some_and(|v| wanted.values.contains(v));
                match wanted.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// A `RoleBinding` or a `ClusterRoleBinding`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Binding {
    pub(crate) metadata: Meta,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) subjects: Vec<Subject>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) role_ref: RoleRef,
}

/// Whom a binding names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) namespace: String,
}

/// The role a binding gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// A null is an absent field: Go writes them at times, and so do manifests with nothing behind a
/// key.
pub(super) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
