//! Whether a rule is about a request: predicates in the order of their cost, the first that fails
//! ends it. A rule has only the predicates that it asks for; a cost is a count of comparisons.

use super::spec::{MatchSpec, RuleSpec, SpecFault};
use super::terms::{Terms, excluding};
use crate::identity::UserInfo;
use crate::request::{RequestInfo, Verb};

/// The verbs that have a bit of their own in a [`VerbSet`].
const VERBS: [Verb; 14] = [
    Verb::Get,
    Verb::List,
    Verb::Watch,
    Verb::Create,
    Verb::Update,
    Verb::Patch,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Proxy,
    Verb::Empty,
    Verb::Head,
    Verb::Options,
    Verb::Post,
    Verb::Put,
];

/// A set of verbs as bits, with the terms for methods that have none.
#[derive(Debug)]
struct VerbSet {
    bits: u16,
    terms: Terms,
}

impl VerbSet {
    fn compile(terms: Terms) -> Self {
        let admitted = VERBS.into_iter().filter(|verb| terms.admits(verb.as_str()));
        VerbSet {
            bits: admitted.fold(0, |bits, verb| bits | bit(verb)),
            terms,
        }
    }

    fn admits(&self, subject: &Subject<'_>) -> bool {
        match subject.verb_bit {
            0 => self.terms.admits(subject.info.verb_name()),
            bit => self.bits & bit != 0,
        }
    }
}

/// The verb's place in a [`VerbSet`]; zero for one without.
fn bit(verb: Verb) -> u16 {
    VERBS
        .iter()
        .position(|known| *known == verb)
        .map_or(0, |place| 1 << place)
}

/// What is judged: a request and who makes it. Attributes are places in a URI, so each is looked
/// up once here and not once a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) info: &'a RequestInfo,
    pub(super) user: &'a UserInfo,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    name: &'a str,
    user_agent: &'a str,
    is_resource: bool,
    verb_bit: u16,
}

impl<'a> Subject<'a> {
    pub(super) fn new(
        info: &'a RequestInfo,
        user: &'a UserInfo,
        user_agent: Option<&'a str>,
    ) -> Self {
        Subject {
            info,
            user,
            group: info.group(),
            resource: info.resource(),
            subresource: info.subresource(),
            namespace: info.namespace(),
            name: info.name(),
            user_agent: user_agent.unwrap_or_default(),
            is_resource: info.is_resource(),
            verb_bit: bit(info.verb()),
        }
    }
}

/// One entry of `resources`.
#[derive(Debug)]
struct ResourceTerm {
    /// `None` for all.
    resource: Option<Box<str>>,
    /// `None` for all.
    group: Option<Box<str>>,
    sub: SubTerm,
}

#[derive(Debug)]
enum SubTerm {
    /// With and without subresource.
    All,
    /// That subresource, or with `""` none.
    Just(Box<str>),
}

impl ResourceTerm {
    fn parse(entry: &str) -> Result<Self, &'static str> {
        let (main, sub) = match entry.split_once('/') {
            Some((_, "")) => return Err("ends with a slash: name a subresource"),
            Some((_, sub)) if sub.contains(['*', '/']) => {
                return Err("is no one subresource: list each, or use \"*\" for everything");
            }
            Some((main, sub)) => (main, Some(sub)),
            None => (entry, None),
        };
        let (resource, group) = match main.split_once('.') {
            Some((resource, group)) => (resource, Some(group)),
            None => (main, None),
        };
        if resource.is_empty() {
            return Err("names no resource: write <resource>, <resource>.<group> or \"*\"");
        }
        let is_part_glob = resource.contains('*') && resource != "*";
        if is_part_glob || group.is_some_and(|group| group.contains('*')) {
            return Err("has a \"*\" beside other text: list each resource");
        }
        let resource = (resource != "*").then(|| resource.into());
        Ok(ResourceTerm {
            sub: match sub {
                Some(sub) => SubTerm::Just(sub.into()),
                None if resource.is_none() => SubTerm::All,
                None => SubTerm::Just("".into()),
            },
            resource,
            group: group.map(Box::from),
        })
    }

    fn admits(&self, subject: &Subject<'_>) -> bool {
        let is_sub = match &self.sub {
            SubTerm::All => true,
            SubTerm::Just(sub) => **sub == *subject.subresource,
        };
        is_sub
            && self
                .resource
                .as_deref()
                .is_none_or(|it| it == subject.resource)
            && self.group.as_deref().is_none_or(|it| it == subject.group)
    }
}

/// The entries of `resources`.
#[derive(Debug, Default)]
struct ResourceTerms {
    wanted: Vec<ResourceTerm>,
    excluded: Vec<ResourceTerm>,
}

impl ResourceTerms {
    fn compile(entries: &[String]) -> Result<Self, (usize, String)> {
        let mut terms = ResourceTerms::default();
        for (place, entry) in entries.iter().enumerate() {
            let fault = |fault: &str| (place, format!("\"{entry}\" {fault}"));
            match excluding(entry) {
                Some("*") => return Err(fault("excludes everything: remove it")),
                Some(excluded) => {
                    terms
                        .excluded
                        .push(ResourceTerm::parse(excluded).map_err(fault)?);
                }
                None => terms
                    .wanted
                    .push(ResourceTerm::parse(entry).map_err(fault)?),
            }
        }
        Ok(terms)
    }

    /// A resource, and its subresource or group.
    fn cost(&self) -> usize {
        2 * (self.wanted.len() + self.excluded.len())
    }

    fn admits(&self, subject: &Subject<'_>) -> bool {
        let is_wanted = self.wanted.is_empty() || self.wanted.iter().any(|it| it.admits(subject));
        is_wanted && !self.excluded.iter().any(|it| it.admits(subject))
    }
}

/// One thing to look at.
#[derive(Debug)]
enum Predicate {
    Verb(VerbSet),
    /// Resources, paths, or both; `None` for none of that kind.
    Target {
        resources: Option<ResourceTerms>,
        paths: Option<Terms>,
    },
    Namespace(Terms),
    Name(Terms),
    User(Terms),
    Groups(Terms),
    UserAgent(Terms),
}

impl Predicate {
    /// About how many comparisons of texts it takes to say no.
    fn cost(&self) -> usize {
        match self {
            Predicate::Verb(_) => 0,
            Predicate::Target { resources, paths } => {
                let resources = resources.as_ref().map_or(0, ResourceTerms::cost);
                resources + paths.as_ref().map_or(0, Terms::cost)
            }
            Predicate::Namespace(terms)
            | Predicate::Name(terms)
            | Predicate::User(terms)
            | Predicate::UserAgent(terms) => terms.cost(),
            // Users are in a handful of groups.
            Predicate::Groups(terms) => 4 * terms.cost(),
        }
    }
}

/// A rule's predicates, cheapest first.
#[derive(Debug)]
pub(super) struct Matcher(Box<[Predicate]>);

impl Matcher {
    /// # Errors
    /// The entry that admits nothing or cannot be read, with its place.
    pub(super) fn compile(rule: &RuleSpec) -> Result<Self, SpecFault> {
        let MatchSpec {
            users,
            groups,
            verbs,
            resources,
            namespaces,
            names,
            user_agents,
            non_resource_paths,
        } = &rule.matches;
        let fault = |field: &'static str| {
            move |(place, fault): (usize, String)| SpecFault {
                rule: rule.id.clone(),
                field: format!("match.{field}[{place}]"),
                fault,
            }
        };
        let terms =
            |field: &'static str, entries: &[String]| Terms::compile(entries).map_err(fault(field));
        let mut predicates = Vec::new();
        if let Some(terms) = terms("verbs", verbs)? {
            predicates.push(Predicate::Verb(VerbSet::compile(terms)));
        }
        let paths = terms("nonResourcePaths", non_resource_paths)?;
        if paths.is_some() || !resources.is_empty() {
            let compiled = ResourceTerms::compile(resources).map_err(fault("resources"))?;
            predicates.push(Predicate::Target {
                resources: (!resources.is_empty()).then_some(compiled),
                paths,
            });
        }
        predicates.extend(terms("namespaces", namespaces)?.map(Predicate::Namespace));
        predicates.extend(terms("names", names)?.map(Predicate::Name));
        predicates.extend(terms("users", users)?.map(Predicate::User));
        predicates.extend(terms("groups", groups)?.map(Predicate::Groups));
        predicates.extend(terms("userAgents", user_agents)?.map(Predicate::UserAgent));
        predicates.sort_by_key(Predicate::cost);
        Ok(Matcher(predicates.into()))
    }

    pub(super) fn admits(&self, subject: &Subject<'_>) -> bool {
        self.0.iter().all(|predicate| match predicate {
            Predicate::Verb(verbs) => verbs.admits(subject),
            Predicate::Target { resources, paths } if subject.is_resource => match resources {
                Some(resources) => resources.admits(subject),
                None => paths.is_none(),
            },
            Predicate::Target { paths, .. } => {
                let path = subject.info.path();
                paths.as_ref().is_some_and(|paths| paths.admits(path))
            }
            Predicate::Namespace(terms) => terms.admits(subject.namespace),
            Predicate::Name(terms) => terms.admits(subject.name),
            Predicate::User(terms) => terms.admits(&subject.user.name),
            Predicate::Groups(terms) => terms.admits_all(&subject.user.groups),
            Predicate::UserAgent(terms) => terms.admits(subject.user_agent),
        })
    }
}
