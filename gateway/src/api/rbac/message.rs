//! The refusal of a request that no rule allows, in a kube-apiserver's words: people, scripts and
//! suites read this text.

use http::StatusCode;

use super::Attributes;
use crate::identity::UserInfo;
use crate::status::{Refusal, Stage};

/// The 403 for a request that was not allowed.
#[must_use]
pub fn forbidden(user: &UserInfo, asked: &Attributes<'_>, reason: &str) -> Refusal {
    let mut message = if asked.is_resource() {
        resource_message(user, asked)
    } else {
        format!(
            "forbidden: User \"{}\" cannot {} path \"{}\"",
            user.name, asked.verb, asked.path
        )
    };
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    let mut refusal = Refusal::new(
        Stage::Authz,
        StatusCode::FORBIDDEN,
        "Forbidden",
        escape(&message),
    );
    let mut details = serde_json::Map::new();
    let facts = [
        ("name", asked.name),
        ("group", asked.group),
        ("kind", asked.resource),
    ];
    for (field, value) in facts {
        if !value.is_empty() {
            details.insert(field.to_owned(), value.into());
        }
    }
    refusal.details = Some(details.into());
    refusal
}

fn resource_message(user: &UserInfo, asked: &Attributes<'_>) -> String {
    let qualified = if asked.group.is_empty() {
        asked.resource.to_owned()
    } else {
        format!("{}.{}", asked.resource, asked.group)
    };
    let what = if asked.name.is_empty() {
        format!("{qualified} is forbidden")
    } else {
        format!("{qualified} \"{}\" is forbidden", asked.name)
    };
    let slash = if asked.subresource.is_empty() {
        ""
    } else {
        "/"
    };
    let place = if asked.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", asked.namespace)
    };
    format!(
        "{what}: User \"{}\" cannot {} resource \"{}{slash}{}\" in API group \"{}\" {place}",
        user.name, asked.verb, asked.resource, asked.subresource, asked.group
    )
}

/// Names come from the client and may end up in a browser.
fn escape(message: &str) -> String {
    message
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_apiservers() {
        let user = UserInfo {
            name: "al<i>ce".into(),
            ..UserInfo::default()
        };
        let scale = Attributes {
            verb: "patch",
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            namespace: "shop",
            name: "web",
            path: "",
        };
        assert_eq!(
            forbidden(&user, &scale, "").message,
            "deployments.apps \"web\" is forbidden: User \"al&lt;i&gt;ce\" cannot patch resource \
             \"deployments/scale\" in API group \"apps\" in the namespace \"shop\""
        );
        let nodes = Attributes {
            verb: "list",
            resource: "nodes",
            ..Attributes::default()
        };
        assert_eq!(
            forbidden(&user, &nodes, "why").message,
            "nodes is forbidden: User \"al&lt;i&gt;ce\" cannot list resource \"nodes\" in API group \
             \"\" at the cluster scope: why"
        );
        let path = Attributes {
            verb: "get",
            path: "/metrics",
            ..Attributes::default()
        };
        assert_eq!(
            forbidden(&user, &path, "").message,
            "forbidden: User \"al&lt;i&gt;ce\" cannot get path \"/metrics\""
        );
    }
}
