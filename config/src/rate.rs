//! `kind: RateRules`: limits on who may ask for what how often, and how much of it at once.
//!
//! Rules are tried in order (files by name, then as written) and the first that matches a request
//! decides about it. What every list of [`Match`] means is said in the module of selectors.

use serde::Deserialize;

use crate::cluster::{Metadata, default_weight};
use crate::located::Located;
use crate::selector::{Glob, ResourceName, Terms, VerbName};
use crate::units::{Count, TimeSpan};

/// Rules for one cluster or for all.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RateRules {
    /// Always `sluice.io/v1alpha1`.
    pub api_version: String,
    /// Always `RateRules`.
    pub kind: String,
    /// Their name; with a rule's name it is the limit's id, under which its state survives reloads.
    pub metadata: Metadata,
    /// The rules.
    pub spec: RateRulesSpec,
}

/// Rules and where they hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RateRulesSpec {
    /// A cluster's name, `local` for the API of the metastore, or `*` for all of them.
    pub cluster: Located<String>,
    /// In the order in which they are tried; at least one.
    pub rules: Located<Vec<RateRule>>,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RateRule {
    /// Unique within its object.
    pub name: Located<String>,
    /// Which requests it is about; all of them without it.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// Whether it refuses.
    #[serde(default)]
    pub mode: Mode,
    /// Matching requests pass with no limit at all, and no later rule looks at them.
    #[serde(default)]
    pub exempt: Located<bool>,
    /// Matching requests are refused, whatever else runs.
    pub refuse: Option<Located<Refuse>>,
    /// Rules of one object that bear the same name here count together; their limits are equal.
    pub share: Option<Located<String>>,
    /// How often.
    pub rate: Option<Rate>,
    /// How many short requests at once.
    pub in_flight: Option<InFlight>,
    /// How many watches, logs and tunnels at once.
    pub long_running: Option<LongRunning>,
    /// To which of the cluster's subsets its requests go; to all endpoints without it. Several
    /// share them by weight.
    #[serde(default)]
    pub send_to: Located<Vec<SendTo>>,
}

/// A share of a rule's requests, and where it goes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SendTo {
    /// A subset's name.
    pub subset: Located<String>,
    /// Its share relative to the others'.
    #[serde(default = "default_weight")]
    pub weight: Count,
}

/// Which requests a rule is about: those that every given field selects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Match {
    /// User names. `*` stands for any run of characters; absent: any user; `-x` excludes.
    pub users: Option<Located<Terms<Glob>>>,
    /// Groups. `*` stands for any run of characters; absent: any; `-x` excludes every member of x,
    /// whatever other groups they have.
    pub groups: Option<Located<Terms<Glob>>>,
    /// Verbs. `*` is every verb; absent: any; `-x` excludes.
    pub verbs: Option<Located<Terms<VerbName>>>,
    /// Resources as `resource[.group][/subresource]`. `*` is every resource and subresource; absent:
    /// any, unless there are `nonResourcePaths`, then none; `-x` excludes.
    pub resources: Option<Located<Terms<ResourceName>>>,
    /// Namespaces. `*` stands for any run of characters; `""` is that of requests across or without
    /// namespaces; absent: any; `-x` excludes.
    pub namespaces: Option<Located<Terms<Glob>>>,
    /// Object names. `*` stands for any run of characters; `""` is that of requests without a name;
    /// absent: any; `-x` excludes.
    pub names: Option<Located<Terms<Glob>>>,
    /// User agents. `*` stands for any run of characters; `""` is none; absent: any; `-x` excludes.
    pub user_agents: Option<Located<Terms<Glob>>>,
    /// Paths that are no resource. `*` stands for any run of characters, slashes included; absent:
    /// any, unless there are `resources`, then none; `-x` excludes.
    pub non_resource_paths: Option<Located<Terms<Glob>>>,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts what it would have refused; requests go on to the next rule.
    Observe,
    /// It does nothing; requests go on to the next rule.
    Off,
}

/// As what a request is refused that may not be made at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refuse {
    /// As one for later: 429 with a wait, as an open breaker refuses.
    Busy,
    /// As one that nobody may make: 403.
    Forbidden,
}

/// A token bucket a key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rate {
    /// Requests a second in the long run.
    pub per_second: Count,
    /// Requests at once after a pause; as many as `perSecond` without it.
    pub burst: Option<Count>,
    /// What has a bucket of its own: each user without it, all requests together when empty.
    #[serde(default = "default_key")]
    pub key: Located<Vec<KeyField>>,
}

/// A bound on short requests at once, a key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct InFlight {
    /// Requests at once.
    pub max: Count,
    /// What has a bound of its own: each user without it, all requests together when empty.
    #[serde(default = "default_key")]
    pub key: Located<Vec<KeyField>>,
    /// Requests beyond it that wait for their turn; refused at once without it.
    pub queue: Option<Located<Queue>>,
}

/// A bound on long-running requests at once, a key. Nobody waits for it: its turns come after hours.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LongRunning {
    /// Requests at once.
    pub max: Count,
    /// What has a bound of its own: each user without it, all requests together when empty.
    #[serde(default = "default_key")]
    pub key: Located<Vec<KeyField>>,
}

/// A line before a limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Queue {
    /// Requests that may wait at once, a key.
    pub max: Located<Count>,
    /// How long one waits before it is refused.
    pub wait: Located<TimeSpan>,
}

/// What a limit is kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyField {
    /// The user's name.
    User,
    /// The verb.
    Verb,
    /// Group, resource and subresource.
    Resource,
    /// The namespace.
    Namespace,
}

impl KeyField {
    /// The field's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            KeyField::User => "user",
            KeyField::Verb => "verb",
            KeyField::Resource => "resource",
            KeyField::Namespace => "namespace",
        }
    }
}

fn default_key() -> Located<Vec<KeyField>> {
    Located::unwritten(vec![KeyField::User])
}
