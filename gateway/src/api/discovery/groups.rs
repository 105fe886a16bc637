//! The table of kinds as discovery shows it: groups, their versions best first, and beside the
//! stored kinds those that are only asked (reviews).

use std::cmp::Ordering;

use crate::api::resource::{ResourceKind, Scope, Table, VERBS};

/// A group with its versions, the preferred one first.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) versions: Vec<GroupVersion>,
}

/// One version of a group.
#[derive(Debug)]
pub(super) struct GroupVersion {
    pub(super) version: String,
    pub(super) resources: Vec<Resource>,
}

/// A kind as discovery names it.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) plural: String,
    pub(super) singular: String,
    pub(super) kind: String,
    pub(super) is_namespaced: bool,
    pub(super) verbs: Vec<&'static str>,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) subresources: Vec<Subresource>,
}

/// A part of a kind that is served by itself.
#[derive(Debug)]
pub(super) struct Subresource {
    pub(super) name: &'static str,
    /// Group, version and kind of what is read and written there; `None` for the kind itself.
    pub(super) answers: Option<(&'static str, &'static str, &'static str)>,
    pub(super) verbs: &'static [&'static str],
}

/// Kinds that are created and answered, never stored: group, plural, kind, namespaced.
const REVIEWS: [(&str, &str, &str, bool); 6] = [
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
    ),
    (
        "authentication.k8s.io",
        "tokenreviews",
        "TokenReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
];

const READ_WRITE: &[&str] = &["get", "patch", "update"];

/// All groups: the core group first, built-in ones before custom ones, else by name.
pub(super) fn groups(table: &Table) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for kind in table.kinds() {
        push(&mut groups, &kind.group, &kind.version, resource(kind));
    }
    for (group, plural, kind, is_namespaced) in REVIEWS {
        push(
            &mut groups,
            group,
            "v1",
            Resource {
                plural: plural.to_owned(),
                singular: kind.to_ascii_lowercase(),
                kind: kind.to_owned(),
                is_namespaced,
                verbs: vec!["create"],
                short_names: Vec::new(),
                categories: Vec::new(),
                subresources: Vec::new(),
            },
        );
    }
    for group in &mut groups {
        group
            .versions
            .sort_by(|a, b| by_priority(&a.version, &b.version));
        for version in &mut group.versions {
            version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
        }
    }
    let is_custom = |name: &str| {
        let mut of_group = table.kinds().iter().filter(|kind| kind.group == name);
        of_group.any(|kind| kind.is_custom)
    };
    groups.sort_by_cached_key(|group| (is_custom(&group.name), group.name.clone()));
    groups
}

fn push(groups: &mut Vec<Group>, group: &str, version: &str, resource: Resource) {
    let at = groups
        .iter()
        .position(|g| g.name == group)
        .unwrap_or_else(|| {
            groups.push(Group {
                name: group.to_owned(),
                versions: Vec::new(),
            });
            groups.len() - 1
        });
    let Some(group) = groups.get_mut(at) else {
        return;
    };
    match group.versions.iter_mut().find(|v| v.version == version) {
        Some(known) => known.resources.push(resource),
        None => group.versions.push(GroupVersion {
            version: version.to_owned(),
            resources: vec![resource],
        }),
    }
}

fn resource(kind: &ResourceKind) -> Resource {
    let mut subresources = Vec::new();
    if kind.group.is_empty() && kind.plural == "namespaces" {
        subresources.push(Subresource {
            name: "finalize",
            answers: None,
            verbs: &["update"],
        });
    }
    if kind.scale.is_some() {
        subresources.push(Subresource {
            name: "scale",
            answers: Some(("autoscaling", "v1", "Scale")),
            verbs: READ_WRITE,
        });
    }
    if kind.has_status {
        subresources.push(Subresource {
            name: "status",
            answers: None,
            verbs: READ_WRITE,
        });
    }
    Resource {
        plural: kind.plural.clone(),
        singular: kind.singular.clone(),
        kind: kind.kind.clone(),
        is_namespaced: kind.scope == Scope::Namespaced,
        verbs: VERBS.to_vec(),
        short_names: kind.short_names.clone(),
        categories: kind.categories.clone(),
        subresources,
    }
}

/// Kubernetes' order of versions: released before beta before alpha, higher numbers first, and
/// whatever is no such name last, by name.
pub(super) fn by_priority(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability (2 released, 1 beta, 0 alpha), major, minor.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    if let Some((major, minor)) = rest.split_once("beta") {
        Some((1, major.parse().ok()?, minor.parse().ok()?))
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        Some((0, major.parse().ok()?, minor.parse().ok()?))
    } else {
        Some((2, rest.parse().ok()?, 0))
    }
}
