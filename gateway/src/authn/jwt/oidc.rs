//! Tokens of an OpenID Connect issuer: from claims to a user, by the simple form of a
//! kube-apiserver's `AuthenticationConfiguration` (a claim and a prefix for name and groups).
//!
//! One rule more than there: names and groups of Kubernetes' own (`system:`) are not an outside
//! issuer's to give. Whoever fills a groups claim could make anybody `system:masters` otherwise.

use serde_json::Value;

use super::claims::{Claims, text};
use crate::identity::{AUTHENTICATED, UserInfo};

/// How claims become a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMapping {
    /// The claim that holds the name.
    pub username_claim: String,
    /// Put before the name.
    pub username_prefix: String,
    /// The claim that holds the groups, as text or as a list.
    pub groups_claim: Option<String>,
    /// Put before each group.
    pub groups_prefix: String,
    /// Claims that must be there, with their value.
    pub required: Vec<(String, String)>,
}

/// Kubernetes' own names begin so.
const RESERVED: &str = "system:";

pub(super) fn user(claims: &Claims, mapping: &ClaimMapping) -> Result<UserInfo, &'static str> {
    for (claim, value) in &mapping.required {
        if claims.get(claim).and_then(Value::as_str) != Some(value) {
            return Err("the bearer token lacks a claim that is required here");
        }
    }
    let name = text(claims, &mapping.username_claim)
        .ok_or("the bearer token lacks the claim that holds the user's name")?;
    // An address that nobody has shown to be theirs names nobody.
    if mapping.username_claim == "email"
        && let Some(verified) = claims.get("email_verified")
        && *verified != Value::Bool(true)
    {
        return Err("the bearer token's address is not verified");
    }
    let name = format!("{}{name}", mapping.username_prefix);
    if name.starts_with(RESERVED) {
        return Err("the bearer token claims a name that is Kubernetes' own");
    }
    let mut groups = groups(claims, mapping)?;
    groups.push(AUTHENTICATED.to_owned());
    let extra = text(claims, "jti").map(|id| {
        let key = "authentication.kubernetes.io/credential-id".to_owned();
        (key, vec![format!("JTI={id}")])
    });
    Ok(UserInfo {
        name,
        uid: String::new(),
        groups,
        extra: extra.into_iter().collect(),
    })
}

fn groups(claims: &Claims, mapping: &ClaimMapping) -> Result<Vec<String>, &'static str> {
    const UNREADABLE: &str = "the bearer token's groups are neither text nor a list of texts";
    let found = mapping.groups_claim.as_ref().and_then(|c| claims.get(c));
    let listed = match found {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(several)) => several.iter().collect(),
        Some(one) => vec![one],
    };
    let mut groups = Vec::with_capacity(listed.len() + 1);
    for group in listed {
        let group = group.as_str().ok_or(UNREADABLE)?;
        let group = format!("{}{group}", mapping.groups_prefix);
        if !group.is_empty() && !group.starts_with(RESERVED) {
            groups.push(group);
        }
    }
    Ok(groups)
}
