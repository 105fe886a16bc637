//! `--as`: whom a request asks to be made as, and whether the caller may.
//!
//! Each header is authorised by itself, with the verb `impersonate`, as a kube-apiserver does
//! (kubernetes-semantics 2.7). The verdicts of one caller and target are kept for a few seconds.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use moka::future::Cache;
use serde_json::{Value, json};

use super::front_proxy::unescape;
use super::review::{self, Reviewer, ReviewerOutage};
use crate::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};
use crate::status::{Refusal, Stage};

/// As long as kube-apiserver keeps its own verdicts on impersonation.
const VERDICT_LIFETIME: Duration = Duration::from_secs(10);
/// Verdicts kept: one a caller and target, some hundred bytes each.
const VERDICTS_MAX: u64 = 10_000;
/// Questions a request may raise, one a header line: more is not a person's doing.
const QUESTIONS_MAX: usize = 64;
/// Of these, open at once: a slow authorizer makes eight rounds of it.
const QUESTIONS_AT_ONCE: usize = 8;

const REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Whom a request asks to be made as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
}

/// One question to the authorizer: may the caller impersonate this?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    group: &'static str,
    resource: &'static str,
    subresource: String,
    namespace: String,
    name: String,
}

/// All of the caller: an authorizer may go by the UID and by what the token was narrowed to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    caller: Arc<UserInfo>,
    question: Question,
}

/// Judges impersonation by asking a cluster's own authorizer.
pub struct Impersonation {
    reviewer: Arc<dyn Reviewer>,
    verdicts: Cache<Asked, bool>,
}

impl Impersonation {
    /// Judges by asking `reviewer`.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>) -> Self {
        let verdicts = Cache::builder()
            .max_capacity(VERDICTS_MAX)
            .time_to_live(VERDICT_LIFETIME)
            .build();
        Impersonation { reviewer, verdicts }
    }

    /// Lets `caller` be `target`, or says why not.
    pub(super) async fn authorize(
        &self,
        caller: &Arc<UserInfo>,
        target: &Target,
    ) -> Result<(), Refusal> {
        let questions = target.questions();
        if questions.len() > QUESTIONS_MAX {
            return Err(Refusal::new(
                Stage::Authn,
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "RequestHeaderFieldsTooLarge",
                format!("more than {QUESTIONS_MAX} impersonation headers"),
            ));
        }
        let judged = questions
            .into_iter()
            .map(|question| self.judge(caller, question));
        // In order, so that the same header is told to be at fault each time.
        let mut judged = stream::iter(judged).buffered(QUESTIONS_AT_ONCE);
        while let Some(judged) = judged.next().await {
            judged?;
        }
        Ok(())
    }

    async fn judge(&self, caller: &Arc<UserInfo>, question: Question) -> Result<(), Refusal> {
        let asked = Asked {
            caller: Arc::clone(caller),
            question,
        };
        let asking = self.ask(caller, &asked.question);
        let allowed = self.verdicts.try_get_with_by_ref(&asked, asking).await;
        let allowed = allowed.map_err(|outage| {
            let text = format!("impersonation could not be authorised: {outage}");
            Refusal::unavailable(Stage::Authn, text)
        })?;
        if allowed {
            Ok(())
        } else {
            Err(asked.question.forbidden(&caller.name))
        }
    }

    async fn ask(&self, caller: &UserInfo, question: &Question) -> Result<bool, ReviewerOutage> {
        let extra: serde_json::Map<String, Value> = caller
            .extra
            .iter()
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": caller.name,
                "uid": caller.uid,
                "groups": caller.groups,
                "extra": extra,
                "resourceAttributes": {
                    "verb": "impersonate",
                    "group": question.group,
                    "resource": question.resource,
                    "subresource": question.subresource,
                    "namespace": question.namespace,
                    "name": question.name,
                },
            },
        });
        let status = review::ask(self.reviewer.as_ref(), REVIEW_PATH, &review).await?;
        Ok(status.get("allowed") == Some(&Value::Bool(true)))
    }
}

impl Question {
    fn of(group: &'static str, resource: &'static str, name: &str) -> Self {
        Question {
            group,
            resource,
            subresource: String::new(),
            namespace: String::new(),
            name: name.to_owned(),
        }
    }

    /// 403 in kube-apiserver's words.
    fn forbidden(&self, caller: &str) -> Refusal {
        let mut resource = self.resource.to_owned();
        if !self.group.is_empty() {
            resource = format!("{resource}.{}", self.group);
        }
        let scope = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", self.namespace)
        };
        let message = format!(
            "{resource} \"{}\" is forbidden: User \"{caller}\" cannot impersonate resource \"{}\" in API group \"{}\" {scope}",
            self.name, self.resource, self.group
        );
        let mut refusal = Refusal::new(Stage::Authn, StatusCode::FORBIDDEN, "Forbidden", message);
        refusal.details = Some(json!({
            "name": self.name, "group": self.group, "kind": self.resource,
        }));
        refusal
    }
}

impl Target {
    fn questions(&self) -> Vec<Question> {
        let mut questions = vec![match service_account(&self.name) {
            Some((namespace, name)) => Question {
                namespace: namespace.to_owned(),
                ..Question::of("", "serviceaccounts", name)
            },
            None => Question::of("", "users", &self.name),
        }];
        questions.extend(
            self.groups
                .iter()
                .map(|group| Question::of("", "groups", group)),
        );
        for (key, values) in &self.extra {
            questions.extend(values.iter().map(|value| Question {
                subresource: key.clone(),
                ..Question::of(AUTHENTICATION_GROUP, "userextras", value)
            }));
        }
        if !self.uid.is_empty() {
            questions.push(Question::of(AUTHENTICATION_GROUP, "uids", &self.uid));
        }
        questions
    }

    /// The user the request is then made as.
    pub(super) fn into_user(self) -> UserInfo {
        let Target {
            name,
            uid,
            mut groups,
            extra,
        } = self;
        if groups.is_empty()
            && let Some((namespace, _)) = service_account(&name)
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        if !groups
            .iter()
            .any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED)
        {
            let group = if name == ANONYMOUS {
                UNAUTHENTICATED
            } else {
                AUTHENTICATED
            };
            groups.push(group.to_owned());
        }
        UserInfo {
            name,
            uid,
            groups,
            extra,
        }
    }
}

/// Namespace and name of a service account's user name.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let well_formed = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    well_formed.then_some((namespace, name))
}

/// Reads the impersonation headers; an empty user name counts as absent.
///
/// # Errors
/// 400 when a header is not text, is not known or can be read in two ways, or there is a group, UID
/// or extra without a user.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Target>, Refusal> {
    let mut target = Target {
        name: String::new(),
        uid: String::new(),
        groups: Vec::new(),
        extra: Vec::new(),
    };
    let mut any = false;
    for header in headers.keys() {
        let Some(field) = header.as_str().strip_prefix("impersonate-") else {
            continue;
        };
        let bad = |what: &str| {
            let text = format!("header {header} {what}");
            Refusal::bad_request(Stage::Authn, text)
        };
        let mut values = Vec::new();
        for value in headers.get_all(header) {
            let text = std::str::from_utf8(value.as_bytes());
            values.push(text.map_err(|_| bad("is not text"))?.to_owned());
        }
        any |= field != "user" && values.iter().any(|value| !value.is_empty());
        match field {
            "user" | "uid" => {
                // Another reader might take another one.
                let Ok([value]) = <[String; 1]>::try_from(values) else {
                    return Err(bad("is given more than once"));
                };
                if field == "user" {
                    target.name = value;
                } else {
                    target.uid = value;
                }
            }
            "group" => {
                if values.iter().any(String::is_empty) {
                    return Err(bad("names no group"));
                }
                target.groups = values;
            }
            _ => {
                let key = field.strip_prefix("extra-").filter(|key| !key.is_empty());
                let key = key.ok_or_else(|| bad("is not one by which to impersonate"))?;
                add_extra(&mut target.extra, unescape(key), values);
            }
        }
    }
    if !target.name.is_empty() {
        return Ok(Some(target));
    }
    if any {
        let text =
            "requested impersonation without impersonating a user: Impersonate-User is missing";
        return Err(Refusal::bad_request(Stage::Authn, text));
    }
    Ok(None)
}

/// One key may be escaped in several ways.
fn add_extra(extra: &mut Vec<(String, Vec<String>)>, key: String, mut values: Vec<String>) {
    match extra.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => known.append(&mut values),
        None => extra.push((key, values)),
    }
}
