//! Nobody gives away what they do not have: the check on writing roles and bindings.
//!
//! A role may be written by who holds every permission in it, or the verb `escalate` on it; a
//! binding by who holds every permission of its role, or the verb `bind` on that role. Without this,
//! the right to write roles would be the right to everything.

use http::StatusCode;
use serde_json::Value;

use super::index::Index;
use super::objects::{Binding, GROUP, Role, RoleRef};
use super::rule::Rule;
use super::{Attributes, Authorizer};
use crate::identity::{MASTERS, UserInfo};
use crate::status::{Refusal, Stage};

/// Missing permissions named in a refusal; a role of thousands would make a message nobody reads.
const NAMED_MAX: usize = 16;

impl Authorizer {
    /// Whether `user` may write this role or binding, as far as giving permissions away goes; any
    /// object of another resource is let through. `object` is what would be stored.
    ///
    /// # Errors
    /// 403 that names what the user does not hold; 404 for a binding to a role that does not exist,
    /// unless the user may `bind` it anyway; 422 for an object that cannot be read.
    pub fn check_escalation(
        &self,
        user: &UserInfo,
        resource: &str,
        object: &Value,
    ) -> Result<(), Refusal> {
        if user.is_member(MASTERS) {
            return Ok(());
        }
        match resource {
            "roles" | "clusterroles" => {
                let role: Role = read(object)?;
                let meta = &role.metadata;
                let asked = on_role("escalate", resource, &meta.namespace, &meta.name);
                // An aggregated role gives whatever its selectors will ever find.
                let everything = role.aggregation_rule.as_ref().map(|_| all_rules());
                let wanted = everything.as_ref().unwrap_or(&role.rules);
                self.holds_or_may(user, &asked, &meta.namespace, wanted)
            }
            "rolebindings" | "clusterrolebindings" => {
                let binding: Binding = read(object)?;
                self.check_binding(user, &binding)
            }
            _ => Ok(()),
        }
    }

    fn check_binding(&self, user: &UserInfo, binding: &Binding) -> Result<(), Refusal> {
        let RoleRef { kind, name } = &binding.role_ref;
        let namespace = &binding.metadata.namespace;
        let (resource, home) = match kind.as_str() {
            "Role" => ("roles", namespace.as_str()),
            _ => ("clusterroles", ""),
        };
        // `bind` on a cluster role may be held in the binding's namespace alone.
        let asked = on_role("bind", resource, namespace, name);
        if self.authorize(user, &asked).allowed {
            return Ok(());
        }
        let index = self.index();
        let Some(rules) = index.rules_of(&binding.role_ref, namespace) else {
            let message = format!("{resource}.{GROUP} \"{name}\" not found");
            let (stage, code) = (Stage::Authz, StatusCode::NOT_FOUND);
            return Err(Refusal::new(stage, code, "NotFound", message));
        };
        let on = on_role("bind", resource, home, name);
        refuse_missing(user, &on, &missing(&index, user, namespace, &rules))
    }

    fn holds_or_may(
        &self,
        user: &UserInfo,
        asked: &Attributes<'_>,
        namespace: &str,
        wanted: &[Rule],
    ) -> Result<(), Refusal> {
        let index = self.index();
        let lacking = missing(&index, user, namespace, wanted);
        if lacking.is_empty() || self.authorize(user, asked).allowed {
            return Ok(());
        }
        refuse_missing(user, asked, &lacking)
    }
}

fn on_role<'a>(
    verb: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    Attributes {
        verb,
        group: GROUP,
        resource,
        namespace,
        name,
        ..Attributes::default()
    }
}

fn all_rules() -> Vec<Rule> {
    let any = || vec!["*".to_owned()];
    let resources = Rule {
        verbs: any(),
        api_groups: any(),
        resources: any(),
        ..Rule::default()
    };
    let paths = Rule {
        verbs: any(),
        non_resource_urls: any(),
        ..Rule::default()
    };
    vec![resources, paths]
}

/// The single permissions among `wanted` that none of the user's rules gives.
fn missing(index: &Index, user: &UserInfo, namespace: &str, wanted: &[Rule]) -> Vec<Rule> {
    let held = index.rules_for(user, namespace);
    let parts = wanted.iter().flat_map(Rule::broken_down);
    parts
        .filter(|part| !held.iter().any(|own| own.grants_all_of(part)))
        .collect()
}

fn refuse_missing(
    user: &UserInfo,
    asked: &Attributes<'_>,
    lacking: &[Rule],
) -> Result<(), Refusal> {
    if lacking.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = lacking.iter().take(NAMED_MAX).map(show).collect();
    let message = format!(
        "{}.{GROUP} \"{}\" is forbidden: user \"{}\" (groups={:?}) is attempting to grant RBAC \
         permissions not currently held:\n{}",
        asked.resource,
        asked.name,
        user.name,
        user.groups,
        shown.join("\n")
    );
    let mut refusal = Refusal::new(Stage::Authz, StatusCode::FORBIDDEN, "Forbidden", message);
    refusal.details = Some(serde_json::json!({
        "name": asked.name, "group": GROUP, "kind": asked.resource,
    }));
    Err(refusal)
}

fn show(rule: &Rule) -> String {
    if rule.non_resource_urls.is_empty() {
        let names = if rule.resource_names.is_empty() {
            String::new()
        } else {
            format!(", ResourceNames:{:?}", rule.resource_names)
        };
        format!(
            "{{APIGroups:{:?}, Resources:{:?}{names}, Verbs:{:?}}}",
            rule.api_groups, rule.resources, rule.verbs
        )
    } else {
        let (paths, verbs) = (&rule.non_resource_urls, &rule.verbs);
        format!("{{NonResourceURLs:{paths:?}, Verbs:{verbs:?}}}")
    }
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, Refusal> {
    T::deserialize(object).map_err(|error| {
        let code = StatusCode::UNPROCESSABLE_ENTITY;
        Refusal::new(
            Stage::Api,
            code,
            "Invalid",
            format!("cannot be read: {error}"),
        )
    })
}
