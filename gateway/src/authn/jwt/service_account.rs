//! Service-account tokens: from claims to the user that a kube-apiserver makes of them.
//!
//! What is not known here is whether the account, pod, secret or node that a token is bound to
//! still exists: see `authn::jwt` for how that is bounded.

use serde_json::Value;

use super::claims::{Claims, text};
use crate::identity::{AUTHENTICATED, UserInfo};

/// The claim that holds the objects a token is bound to.
const PRIVATE: &str = "kubernetes.io";

pub(super) fn user(claims: &Claims) -> Result<UserInfo, &'static str> {
    const INCOMPLETE: &str = "the bearer token does not name a service account";
    let private = claims.get(PRIVATE).and_then(Value::as_object);
    let private = private.ok_or(INCOMPLETE)?;
    let of = |object: &str, field: &str| {
        let object = private.get(object).and_then(Value::as_object);
        object.and_then(|object| text(object, field))
    };
    let namespace = text(private, "namespace").ok_or(INCOMPLETE)?;
    let name = of("serviceaccount", "name").ok_or(INCOMPLETE)?;
    let mut extra = Vec::new();
    let mut add = |key: &str, value: String| {
        extra.push((format!("authentication.kubernetes.io/{key}"), vec![value]));
    };
    if let Some(id) = text(claims, "jti") {
        add("credential-id", format!("JTI={id}"));
    }
    if let Some(node) = of("node", "name") {
        add("node-name", node.to_owned());
        if let Some(uid) = of("node", "uid") {
            add("node-uid", uid.to_owned());
        }
    }
    if let (Some(pod), Some(uid)) = (of("pod", "name"), of("pod", "uid")) {
        add("pod-name", pod.to_owned());
        add("pod-uid", uid.to_owned());
    }
    Ok(UserInfo {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: of("serviceaccount", "uid").unwrap_or_default().to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            AUTHENTICATED.to_owned(),
        ],
        extra,
    })
}
