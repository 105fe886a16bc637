//! What operators write about limits, as plain values that no file format shows through.

use std::num::NonZeroU32;
use std::time::Duration;

use sluice_ratelimit::Quota;

/// All rules, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct FlowSpec {
    /// The first enforced rule that matches decides; without any, a request is not limited.
    pub rules: Vec<RuleSpec>,
}

/// One rule: whom it is about, and how much they may do.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// Stable over reloads, unique, and what people call it: `<rules object>/<rule>`. Live state
    /// is found by it, so a renamed rule starts anew.
    pub id: String,
    /// The upstream cluster it is for; `None` for each, with separate buckets.
    pub cluster: Option<String>,
    /// Which requests it is about.
    pub matches: MatchSpec,
    /// Whether it refuses.
    pub mode: Mode,
    /// Refuses whatever it matches, as this; it then has no limit.
    pub refuse: Option<Refuse>,
    /// The id under which its limits are counted, where several rules count together; they have
    /// equal limits. `None` for its own.
    pub share: Option<String>,
    /// How often; `None` without limit.
    pub rate: Option<RateSpec>,
    /// How many at once, of requests that are not long-running; `None` without limit.
    pub in_flight: Option<InFlightSpec>,
    /// How many at once, of watches, logs and tunnels; `None` without limit.
    pub long_running: Option<InFlightSpec>,
    /// To which subsets of the cluster's endpoints its requests go, by weight; empty for any
    /// endpoint.
    pub send_to: Vec<SendSpec>,
}

/// A share of a rule's requests, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendSpec {
    /// The subset's name.
    pub subset: String,
    /// Its share relative to the others'.
    pub weight: NonZeroU32,
}

impl RuleSpec {
    /// A rule of that id about everything, that limits nothing.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        RuleSpec {
            id: id.into(),
            cluster: None,
            matches: MatchSpec::default(),
            mode: Mode::Enforce,
            refuse: None,
            share: None,
            rate: None,
            in_flight: None,
            long_running: None,
            send_to: Vec::new(),
        }
    }
}

/// As what a rule refuses everything it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuse {
    /// 429 with a wait: not now.
    Busy,
    /// 403: never.
    Forbidden,
}

impl Refuse {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Refuse::Busy => "busy",
            Refuse::Forbidden => "forbidden",
        }
    }
}

/// Which requests a rule is about: those that every list admits.
///
/// In each list an empty one admits everything; an entry that begins with `-` or `!` excludes; and
/// a value is admitted when some entry names it (or all entries exclude) and no entry excludes
/// it, in whatever order they stand. `*` in an entry stands for any text, also for none.
/// Of a user's groups one must be named, and none may be excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchSpec {
    /// User names, as the authenticator reports them.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
    /// `get`, `list`, `watch`, `create`, ...; of other paths, methods in lower case.
    pub verbs: Vec<String>,
    /// `pods` in any API group, `deployments.apps` in that group, `pods.` in the core group,
    /// `pods/log` a subresource, `*/scale` that of all resources, `*` all, subresources included.
    /// A resource without a slash is not its subresources.
    pub resources: Vec<String>,
    /// Namespaces; `""` is that of requests that name none.
    pub namespaces: Vec<String>,
    /// Names of objects; `""` is that of requests that name none.
    pub names: Vec<String>,
    /// The User-Agent header; absent, it is `""`.
    pub user_agents: Vec<String>,
    /// Paths of requests for no resource. With `resources` and this both empty a rule is about
    /// all requests; with one of them empty, about the other kind only.
    pub non_resource_paths: Vec<String>,
}

/// Whether a rule acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It refuses.
    #[default]
    Enforce,
    /// It counts what it would have refused and is otherwise as if it were not there: rules
    /// after it are tried too.
    Observe,
    /// It is as if it were not there.
    Off,
}

impl Mode {
    /// The mode's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
            Mode::Off => "off",
        }
    }
}

/// A rate, and by what it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSpec {
    /// How often.
    pub quota: Quota,
    /// One bucket for each combination of these; empty for one bucket.
    pub key: Vec<KeyField>,
}

/// A number at once, and by what it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightSpec {
    /// How many; zero refuses all.
    pub max: u32,
    /// One count for each combination of these; empty for one count.
    pub key: Vec<KeyField>,
    /// Those who may wait for their turn; `None` refuses at once.
    pub queue: Option<QueueSpec>,
}

/// A line before a limit; one for each count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// How many may wait.
    pub max: u32,
    /// For how long.
    pub wait: Duration,
}

/// By what a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyField {
    /// The user's name.
    User,
    /// The verb.
    Verb,
    /// Group, resource and subresource; all paths that are no resource count as one.
    Resource,
    /// The namespace; requests that name none count as one.
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

/// What is wrong with a rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule}: {field}: {fault}")]
pub struct SpecFault {
    /// The rule's id.
    pub rule: String,
    /// The field, as operators write it.
    pub field: String,
    /// What is wrong, and what to do.
    pub fault: String,
}
