//! Questions about who one is and who may do what, asked by creating an object that is answered and
//! not stored.
//!
//! Access reviews are answered by the same evaluator that guards every request. Selectors in them
//! are not looked at: RBAC knows none. A token review is answered "not authenticated": tokens are
//! not issued here, and what another party's authenticator knows is not asked.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::errors::{self, Cause};
use super::protobuf::TypeMeta;
use super::rbac::{Attributes, Authorizer, Decision};
use crate::identity::{MASTERS, UserInfo};
use crate::request::RequestInfo;
use crate::status::Refusal;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Which question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// Who am I?
    SelfSubject,
    /// May I?
    SelfAccess,
    /// May they?
    Access,
    /// May they, in this namespace?
    LocalAccess,
    /// What may I do in a namespace?
    SelfRules,
    /// Whose token is this?
    Token,
}

impl Review {
    /// The question a path asks, if it asks one.
    #[must_use]
    pub fn of(group: &str, version: &str, plural: &str) -> Option<Review> {
        if version != "v1" {
            return None;
        }
        match (group, plural) {
            (AUTHENTICATION, "selfsubjectreviews") => Some(Review::SelfSubject),
            (AUTHENTICATION, "tokenreviews") => Some(Review::Token),
            (AUTHORIZATION, "selfsubjectaccessreviews") => Some(Review::SelfAccess),
            (AUTHORIZATION, "subjectaccessreviews") => Some(Review::Access),
            (AUTHORIZATION, "localsubjectaccessreviews") => Some(Review::LocalAccess),
            (AUTHORIZATION, "selfsubjectrulesreviews") => Some(Review::SelfRules),
            _ => None,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Review::SelfSubject => "SelfSubjectReview",
            Review::SelfAccess => "SelfSubjectAccessReview",
            Review::Access => "SubjectAccessReview",
            Review::LocalAccess => "LocalSubjectAccessReview",
            Review::SelfRules => "SelfSubjectRulesReview",
            Review::Token => "TokenReview",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Review::SelfSubject | Review::Token => AUTHENTICATION,
            _ => AUTHORIZATION,
        }
    }

    /// What an object that asks says it is.
    pub(crate) fn type_meta(self) -> TypeMeta<'static> {
        let api_version = match self.group() {
            AUTHENTICATION => "authentication.k8s.io/v1",
            _ => "authorization.k8s.io/v1",
        };
        let kind = self.kind();
        TypeMeta { api_version, kind }
    }

    fn refuse(self, cause: Cause) -> Refusal {
        errors::invalid_as(self.group(), self.kind(), "", &[cause])
    }

    /// Answers the question `object`, asked by `user`; the caller has authorised its creation and
    /// answers 201 with what comes back.
    ///
    /// # Errors
    /// 400 for an object of another kind or one that cannot be read, 422 for a question that asks
    /// nothing, 405 for anything but a creation.
    pub fn answer(
        self,
        rbac: &Authorizer,
        user: &UserInfo,
        info: &RequestInfo,
        mut object: Map<String, Value>,
    ) -> Result<Value, Refusal> {
        let kind = object
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !matches!(kind, "" | "Status") && kind != self.kind() {
            let wanted = self.kind();
            return Err(errors::bad_request(format!(
                "the object is of kind \"{kind}\", not \"{wanted}\""
            )));
        }
        let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
        let status = match self {
            Review::SelfSubject => json!({"userInfo": described(user)}),
            Review::SelfAccess => self.access(rbac, user, &read(&spec)?)?,
            Review::Access | Review::LocalAccess => {
                let asked: AccessSpec = read(&spec)?;
                self.check_subject(&asked, info)?;
                let subject = asked.subject();
                self.access(rbac, &subject, &asked)?
            }
            Review::SelfRules => self.rules(rbac, user, &spec)?,
            Review::Token => json!({
                "authenticated": false,
                "user": {},
                "error": "tokens are not known to this server",
            }),
        };
        let TypeMeta { api_version, kind } = self.type_meta();
        object.insert("kind".to_owned(), json!(kind));
        object.insert("apiVersion".to_owned(), json!(api_version));
        object.entry("metadata").or_insert_with(|| json!({}));
        object.insert("status".to_owned(), status);
        if self == Review::Token
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            // A secret has no business in an answer.
            spec.remove("token");
        }
        Ok(Value::Object(object))
    }

    fn check_subject(self, asked: &AccessSpec, info: &RequestInfo) -> Result<(), Refusal> {
        if asked.user.is_empty() && asked.groups.is_empty() {
            let cause = Cause::invalid(
                "spec.user",
                "",
                "at least one of user or group must be specified",
            );
            return Err(self.refuse(cause));
        }
        if self == Review::LocalAccess {
            let namespace = asked
                .resource_attributes
                .as_ref()
                .map(|a| a.namespace.as_str());
            if namespace != Some(info.namespace()) {
                let field = "spec.resourceAttributes.namespace";
                let why = "must match metadata.namespace";
                let cause = Cause::invalid(field, namespace.unwrap_or_default(), why);
                return Err(self.refuse(cause));
            }
        }
        Ok(())
    }

    fn access(
        self,
        rbac: &Authorizer,
        user: &UserInfo,
        asked: &AccessSpec,
    ) -> Result<Value, Refusal> {
        let attributes = match (&asked.resource_attributes, &asked.non_resource_attributes) {
            (Some(resource), None) => resource.attributes(),
            (None, Some(path)) => Attributes {
                verb: &path.verb,
                path: &path.path,
                ..Attributes::default()
            },
            _ => {
                let why =
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                return Err(self.refuse(Cause::invalid("spec.resourceAttributes", "", why)));
            }
        };
        let Decision { allowed, reason } = rbac.authorize(user, &attributes);
        let mut status = json!({"allowed": allowed});
        if let (false, Some(status)) = (reason.is_empty(), status.as_object_mut()) {
            status.insert("reason".to_owned(), json!(reason));
        }
        Ok(status)
    }

    fn rules(self, rbac: &Authorizer, user: &UserInfo, spec: &Value) -> Result<Value, Refusal> {
        let namespace = spec
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if namespace.is_empty() {
            return Err(errors::bad_request("no namespace on request"));
        }
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        if user.is_member(MASTERS) {
            resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
            paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        }
        for rule in rbac.rules_for(user, namespace) {
            if rule.is_for_resources() {
                let mut shown = json!({
                    "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
                });
                if let (false, Some(shown)) =
                    (rule.resource_names.is_empty(), shown.as_object_mut())
                {
                    shown.insert("resourceNames".to_owned(), json!(rule.resource_names));
                }
                resources.push(shown);
            } else {
                paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
            }
        }
        Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccessSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<PathAttributes>,
    user: String,
    uid: String,
    groups: Vec<String>,
}

impl AccessSpec {
    fn subject(&self) -> UserInfo {
        UserInfo {
            name: self.user.clone(),
            uid: self.uid.clone(),
            groups: self.groups.clone(),
            extra: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

impl ResourceAttributes {
    fn attributes(&self) -> Attributes<'_> {
        Attributes {
            verb: &self.verb,
            group: &self.group,
            // An empty resource would be taken for a path; nothing but "*" covers it either way.
            resource: if self.resource.is_empty() {
                "\0"
            } else {
                &self.resource
            },
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            path: "",
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathAttributes {
    path: String,
    verb: String,
}

fn read<T: serde::de::DeserializeOwned>(spec: &Value) -> Result<T, Refusal> {
    T::deserialize(spec)
        .map_err(|error| errors::bad_request(format!("spec cannot be read: {error}")))
}

fn described(user: &UserInfo) -> Value {
    let mut shown = Map::new();
    shown.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        shown.insert("uid".to_owned(), json!(user.uid));
    }
    shown.insert("groups".to_owned(), json!(user.groups));
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), json!(values)))
            .collect();
        shown.insert("extra".to_owned(), Value::Object(extra));
    }
    Value::Object(shown)
}

/// The code of an answered question.
pub const ANSWERED: StatusCode = StatusCode::CREATED;
