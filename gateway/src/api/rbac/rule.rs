//! One clause of a role, and whether it covers a request; pure.
//!
//! The matching is a kube-apiserver's, to the letter: `pods` does not cover `pods/log`, `pods/*` is
//! no pattern at all, `*/scale` is one, a rule with resource names never covers a request without a
//! name, and a path pattern has its one `*` at the end.

use serde::Deserialize;

use super::Attributes;
use super::objects::null_is_empty;

/// A role's clause as it is written (`rbac.authorization.k8s.io/v1` `PolicyRule`).
///
/// Every list is an "any of". `*` stands for everything in `verbs`, `api_groups` and `resources`;
/// an empty list matches nothing, except `resource_names`, where empty means any name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// What may be done.
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
    /// The API groups; the core group is the empty string.
    #[serde(deserialize_with = "null_is_empty")]
    pub api_groups: Vec<String>,
    /// `resource`, `resource/subresource`, `*/subresource` or `*`.
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: Vec<String>,
    /// Exact names; never a pattern.
    #[serde(deserialize_with = "null_is_empty")]
    pub resource_names: Vec<String>,
    /// Exact paths, `*`, or a prefix with a trailing `*`; only for requests that are for no resource.
    #[serde(rename = "nonResourceURLs", deserialize_with = "null_is_empty")]
    pub non_resource_urls: Vec<String>,
}

const ANY: &str = "*";

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == ANY || entry == wanted)
}

impl Rule {
    /// Whether the clause covers the request.
    #[must_use]
    pub fn covers(&self, asked: &Attributes<'_>) -> bool {
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        if asked.is_resource() {
            has(&self.api_groups, asked.group)
                && self.covers_resource(asked.resource, asked.subresource)
                && self.covers_name(asked.name)
        } else {
            self.non_resource_urls
                .iter()
                .any(|pattern| path_matches(pattern, asked.path))
        }
    }

    fn covers_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|entry| {
            if entry == ANY {
                return true;
            }
            match entry.split_once('/') {
                None => subresource.is_empty() && entry == resource,
                Some((ANY, sub)) => !subresource.is_empty() && sub == subresource,
                Some((res, sub)) => res == resource && sub == subresource && !sub.is_empty(),
            }
        })
    }

    fn covers_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|entry| entry == name)
    }

    /// Whether the clause speaks of resources, and so counts in a `RoleBinding`.
    #[must_use]
    pub fn is_for_resources(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether everything the clause `other` grants is granted by this one alone; used to judge who
    /// may write a role (`super::escalation`). `other` must be a clause of one verb and one target,
    /// as [`Rule::broken_down`] makes them.
    #[must_use]
    pub fn grants_all_of(&self, other: &Rule) -> bool {
        let verbs = other.verbs.iter().all(|verb| has(&self.verbs, verb));
        if !other.non_resource_urls.is_empty() {
            return verbs
                && other.non_resource_urls.iter().all(|path| {
                    self.non_resource_urls
                        .iter()
                        .any(|own| path_matches(own, path))
                });
        }
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty()
                && other
                    .resource_names
                    .iter()
                    .all(|name| self.covers_name(name)));
        verbs
            && names
            && other
                .api_groups
                .iter()
                .all(|group| has(&self.api_groups, group))
            && other.resources.iter().all(|resource| {
                let (res, sub) = resource.split_once('/').unwrap_or((resource, ""));
                self.resources.iter().any(|own| own == resource) || self.covers_resource(res, sub)
            })
    }

    /// The clause as clauses of one verb and one target each; their union grants the same.
    #[must_use]
    pub fn broken_down(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        let names: Vec<Vec<String>> = if self.resource_names.is_empty() {
            vec![Vec::new()]
        } else {
            self.resource_names
                .iter()
                .map(|name| vec![name.clone()])
                .collect()
        };
        for verb in &self.verbs {
            for group in &self.api_groups {
                for resource in &self.resources {
                    parts.extend(names.iter().map(|names| Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        resource_names: names.clone(),
                        non_resource_urls: Vec::new(),
                    }));
                }
            }
            parts.extend(self.non_resource_urls.iter().map(|path| Rule {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![path.clone()],
                ..Rule::default()
            }));
        }
        parts
    }
}

/// `*`, an exact path, or a prefix that ends in `*`.
fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix(ANY) {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Rule {
            verbs: own(verbs),
            api_groups: own(groups),
            resources: own(resources),
            resource_names: own(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn asks<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            verb,
            group,
            resource,
            subresource,
            name,
            ..Attributes::default()
        }
    }

    #[test]
    fn resource_patterns_are_the_apiservers() {
        let cases = [
            (
                rule(&["get"], &[""], &["pods"], &[]),
                asks("get", "", "pods", "a"),
                true,
            ),
            (
                rule(&["get"], &[""], &["pods"], &[]),
                asks("get", "", "pods/log", "a"),
                false,
            ),
            (
                rule(&["get"], &[""], &["pods/*"], &[]),
                asks("get", "", "pods/log", "a"),
                false,
            ),
            (
                rule(&["get"], &[""], &["pods/*"], &[]),
                asks("get", "", "pods", "a"),
                false,
            ),
            (
                rule(&["get"], &[""], &["pods/log"], &[]),
                asks("get", "", "pods/log", "a"),
                true,
            ),
            (
                rule(&["get"], &["*"], &["*/scale"], &[]),
                asks("get", "apps", "deployments/scale", "a"),
                true,
            ),
            (
                rule(&["get"], &["*"], &["*/scale"], &[]),
                asks("get", "apps", "deployments", "a"),
                false,
            ),
            (
                rule(&["get"], &["*"], &["*"], &[]),
                asks("get", "apps", "deployments/scale", "a"),
                true,
            ),
            (
                rule(&["get"], &["apps"], &["*"], &[]),
                asks("get", "", "pods", "a"),
                false,
            ),
            (
                rule(&["*"], &["*"], &["*"], &[]),
                asks("impersonate", "", "users", "a"),
                true,
            ),
            (
                rule(&["get"], &[""], &["secrets"], &["a"]),
                asks("get", "", "secrets", "a"),
                true,
            ),
            (
                rule(&["get"], &[""], &["secrets"], &["a"]),
                asks("get", "", "secrets", "b"),
                false,
            ),
            (
                rule(&["list"], &[""], &["secrets"], &["a"]),
                asks("list", "", "secrets", ""),
                false,
            ),
            (
                rule(&["create"], &[""], &["secrets"], &["*"]),
                asks("create", "", "secrets", "x"),
                false,
            ),
            (
                rule(&[], &["*"], &["*"], &[]),
                asks("get", "", "pods", "a"),
                false,
            ),
        ];
        for (rule, asked, wanted) in cases {
            assert_eq!(rule.covers(&asked), wanted, "{rule:?} {asked:?}");
        }
    }

    #[test]
    fn path_patterns_end_in_their_star() {
        let at = |path| Attributes {
            verb: "get",
            path,
            ..Attributes::default()
        };
        let paths = |list: &[&str]| Rule {
            verbs: vec!["get".into()],
            non_resource_urls: list.iter().map(|s| (*s).to_owned()).collect(),
            ..Rule::default()
        };
        assert!(paths(&["/healthz*"]).covers(&at("/healthz/etcd")));
        assert!(paths(&["*"]).covers(&at("/metrics")));
        assert!(!paths(&["/*/x"]).covers(&at("/a/x")));
        assert!(!paths(&["/healthz"]).covers(&at("/healthz/")));
        // A rule for every resource says nothing of paths.
        assert!(!rule(&["*"], &["*"], &["*"], &[]).covers(&at("/metrics")));
    }

    #[test]
    fn a_broken_down_rule_is_granted_by_its_whole() {
        let whole = rule(
            &["get", "list"],
            &["", "apps"],
            &["pods", "*/scale"],
            &["a", "b"],
        );
        let parts = whole.broken_down();
        assert_eq!(parts.len(), 16);
        assert!(parts.iter().all(|part| whole.grants_all_of(part)));
        let unnamed = rule(&["get"], &[""], &["pods"], &[]);
        assert!(!whole.grants_all_of(&unnamed));
        assert!(!rule(&["get"], &[""], &["pods"], &[]).grants_all_of(&rule(
            &["*"],
            &[""],
            &["pods"],
            &[]
        )));
    }
}
