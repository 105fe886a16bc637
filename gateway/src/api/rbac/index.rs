//! The compiled view: from each subject to the rules bound to it; immutable once built.
//!
//! A decision looks up the user's name and each of the groups, first among the cluster-wide
//! bindings, then among those of the request's namespace, and stops at the first rule that covers
//! the request. It touches no binding of anybody else.
//!
//! A binding to a role that does not exist grants nothing and hides nothing. Aggregated cluster
//! roles are expanded here, when the index is built: there is no controller that would write
//! the union into their `rules`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::objects::{Binding, Role, RoleRef, Subject};
use super::rule::Rule;
use super::{Attributes, Decision};
use crate::identity::UserInfo;

/// How deep aggregated roles are followed: an aggregated role may select aggregated ones, and a
/// circle of them must end somewhere. Kubernetes' own roles are two deep.
const AGGREGATION_DEPTH_MAX: usize = 4;

/// The objects an index is built from, by (namespace, name); the namespace is empty for those of
/// the whole cluster.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) roles: BTreeMap<(String, String), Role>,
    pub(crate) bindings: BTreeMap<(String, String), Binding>,
}

/// What one binding gives one subject, ready to be evaluated.
#[derive(Debug)]
struct Grant {
    /// The reason of a decision that rests on it, in a kube-apiserver's words.
    reason: String,
    rules: Arc<[Rule]>,
}

/// Grants by subject; service accounts appear under their user name.
#[derive(Debug, Default)]
struct Subjects {
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

impl Subjects {
    /// Notes that `subject` of a binding in `namespace` has `rules`; `origin` names the binding and
    /// its role. A subject of an unknown kind is nobody, and so is, in a cluster-wide binding, a
    /// service account without a namespace.
    fn add(&mut self, subject: &Subject, namespace: &str, origin: &str, rules: &Arc<[Rule]>) {
        let kind = subject.kind.as_str();
        let (map, key, shown) = match kind {
            "User" => (&mut self.users, subject.name.clone(), subject.name.clone()),
            "Group" => (&mut self.groups, subject.name.clone(), subject.name.clone()),
            "ServiceAccount" => {
                let home = if subject.namespace.is_empty() {
                    namespace
                } else {
                    &subject.namespace
                };
                if home.is_empty() {
                    return;
                }
                let user = format!("system:serviceaccount:{home}:{}", subject.name);
                (&mut self.users, user, format!("{}/{home}", subject.name))
            }
            _ => return,
        };
        map.entry(key).or_default().push(Grant {
            reason: format!("RBAC: allowed by {origin} to {kind} \"{shown}\""),
            rules: Arc::clone(rules),
        });
    }

    fn grants<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Grant> {
        let own = self.users.get(&user.name).into_iter().flatten();
        let of_groups = user
            .groups
            .iter()
            .filter_map(|group| self.groups.get(group))
            .flatten();
        own.chain(of_groups)
    }
}

/// Every binding, compiled.
#[derive(Debug, Default)]
pub(crate) struct Index {
    cluster: Subjects,
    namespaces: HashMap<String, Subjects>,
    roles: HashMap<(String, String), Arc<[Rule]>>,
}

impl Index {
    /// Compiles the objects.
    pub(crate) fn compile(objects: &Objects) -> Index {
        let mut index = Index::default();
        for (key, role) in &objects.roles {
            let mut rules = role.rules.clone();
            if key.0.is_empty() {
                aggregate(objects, &key.1, role, &mut rules, 0);
            }
            index.roles.insert(key.clone(), rules.into());
        }
        for ((namespace, name), binding) in &objects.bindings {
            let Some(rules) = index.rules_of(&binding.role_ref, namespace) else {
                continue;
            };
            let RoleRef { kind, name: role } = &binding.role_ref;
            let (subjects, origin) = if namespace.is_empty() {
                let origin = format!("ClusterRoleBinding \"{name}\" of {kind} \"{role}\"");
                (&mut index.cluster, origin)
            } else {
                let origin = format!("RoleBinding \"{name}/{namespace}\" of {kind} \"{role}\"");
                (
                    index.namespaces.entry(namespace.clone()).or_default(),
                    origin,
                )
            };
            for subject in &binding.subjects {
                subjects.add(subject, namespace, &origin, &rules);
            }
        }
        index
    }

    /// The rules a reference in a binding of `namespace` gives: of a `Role` those of that
    /// namespace, of a `ClusterRole` in a namespace only what it says of resources.
    pub(crate) fn rules_of(&self, reference: &RoleRef, namespace: &str) -> Option<Arc<[Rule]>> {
        let home = match reference.kind.as_str() {
            "ClusterRole" => "",
            "Role" if !namespace.is_empty() => namespace,
            _ => return None,
        };
        let rules = self.roles.get(&(home.to_owned(), reference.name.clone()))?;
        if namespace.is_empty() || rules.iter().all(Rule::is_for_resources) {
            return Some(Arc::clone(rules));
        }
        Some(
            rules
                .iter()
                .filter(|r| r.is_for_resources())
                .cloned()
                .collect(),
        )
    }

    /// Whether any rule of the user covers the request.
    pub(crate) fn decide(&self, user: &UserInfo, asked: &Attributes<'_>) -> Decision {
        let in_namespace = self
            .namespaces
            .get(asked.namespace)
            .filter(|_| asked.is_resource() && !asked.namespace.is_empty());
        let grants = self
            .cluster
            .grants(user)
            .chain(in_namespace.into_iter().flat_map(|s| s.grants(user)));
        for grant in grants {
            if grant.rules.iter().any(|rule| rule.covers(asked)) {
                return Decision {
                    allowed: true,
                    reason: grant.reason.clone(),
                };
            }
        }
        Decision::default()
    }

    /// Every rule the user has in a namespace (or, without one, in the whole cluster).
    pub(crate) fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        let in_namespace = self.namespaces.get(namespace);
        self.cluster
            .grants(user)
            .chain(in_namespace.into_iter().flat_map(|s| s.grants(user)))
            .flat_map(|grant| grant.rules.iter().cloned())
            .collect()
    }
}

/// Adds the rules of the cluster roles an aggregated one selects.
fn aggregate(objects: &Objects, name: &str, role: &Role, rules: &mut Vec<Rule>, depth: usize) {
    let Some(aggregation) = &role.aggregation_rule else {
        return;
    };
    if depth == AGGREGATION_DEPTH_MAX {
        return;
    }
    let cluster_roles = objects
        .roles
        .iter()
        .filter(|((namespace, _), _)| namespace.is_empty());
    for ((_, other_name), other) in cluster_roles {
        if other_name == name {
            continue;
        }
        let selected = aggregation
            .cluster_role_selectors
            .iter()
            .any(|selector| selector.matches(&other.metadata.labels));
        if selected {
            for rule in &other.rules {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
            aggregate(objects, other_name, other, rules, depth + 1);
        }
    }
}
