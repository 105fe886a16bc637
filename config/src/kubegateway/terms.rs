//! Its selector lists as ours.
//!
//! There a `*` anywhere takes all and inverted entries count only among themselves, joined by "or";
//! here whatever an inverted entry names is left out. Where that makes a difference it is told.

use super::Said;
use super::shape::Texts;
use crate::address::is_dns_name;
use crate::located::{Located, Position};
use crate::selector::{Glob, Part, ResourceName, Term, Terms, VerbName};

/// The most entries that groups times resources may make: a policy on every kind of a large
/// platform, a hundred times over.
const PRODUCT_MAX: usize = 4096;

pub(super) type Made<T> = Option<Located<Terms<T>>>;

/// The entries of a list, those that include and those that exclude.
#[derive(Debug, Default)]
struct Halves<'a> {
    included: Vec<(&'a str, Position)>,
    excluded: Vec<(&'a str, Position)>,
    at: Position,
}

impl<'a> Halves<'a> {
    fn of(list: &'a Located<Vec<Located<String>>>) -> Self {
        let mut halves = Halves {
            at: list.at,
            ..Halves::default()
        };
        for entry in list.iter() {
            match entry.strip_prefix('-') {
                Some(bare) => halves.excluded.push((bare, entry.at)),
                None => halves.included.push((entry.as_str(), entry.at)),
            }
        }
        halves
    }

    /// Whether an including entry takes all.
    fn takes_all(&self) -> bool {
        self.included.iter().any(|(text, _)| *text == "*")
    }

    /// Whether the list says nothing: all, and nothing left out.
    fn is_anything(&self) -> bool {
        self.excluded.is_empty() && (self.included.is_empty() || self.takes_all())
    }

    /// What inverted entries mean that they did not there.
    fn tell(&self, field: &str, said: &mut Said<'_>) {
        let Some((_, at)) = self.excluded.first() else {
            return;
        };
        let why = if !self.included.is_empty() {
            "there they are dropped beside entries that include"
        } else if self.excluded.len() > 1 {
            "there two of them match everything, since each lets the other's through"
        } else if field == "userGroups" {
            "there a user with any other group is matched all the same"
        } else if field == "nonResourceURLs" {
            "there they are not looked at"
        } else if self.excluded.iter().any(|(text, _)| text.contains('*')) {
            "there a star in one is a mere letter"
        } else {
            return;
        };
        let message = format!("inverted entries of {field} leave out what they name");
        said.differs(*at, message, why);
    }
}

/// Users, groups, names or paths. `None` for anything.
pub(super) fn globs(field: &str, list: &Texts, said: &mut Said<'_>) -> Made<Glob> {
    let list = list.as_ref().filter(|list| !list.is_empty())?;
    let halves = Halves::of(list);
    halves.tell(field, said);
    let has_stars = matches!(field, "users" | "nonResourceURLs");
    for (text, at) in halves.included.iter().chain(&halves.excluded) {
        if text.is_empty() && field != "resourceNames" {
            let message = format!("an empty entry of {field} matches nothing");
            said.fault(*at, message, "remove it");
        } else if text.starts_with('!') {
            let message = format!("`{text}` of {field} begins with a mark that excludes here");
            said.fault(*at, message, "no name of Kubernetes does; remove it");
        }
        let stars = text.trim_end_matches(if has_stars { '*' } else { '\0' });
        if *text != "*" && stars.contains('*') {
            let message = format!("the star in `{text}` of {field} stands for any text");
            said.differs(*at, message, "there for itself");
        }
    }
    if halves.is_anything() && field != "nonResourceURLs" {
        return None;
    }
    let mut terms = Vec::new();
    let drops_star = halves.takes_all() && !halves.excluded.is_empty();
    for (excludes, half) in [(false, &halves.included), (true, &halves.excluded)] {
        for (text, at) in half {
            if excludes || !drops_star {
                terms.extend(term(excludes, text, *at, said));
            }
        }
    }
    Some(located(terms, halves.at))
}

fn term<T: std::str::FromStr<Err = String>>(
    excludes: bool,
    text: &str,
    at: Position,
    said: &mut Said<'_>,
) -> Option<Located<Term<T>>> {
    match text.parse() {
        Ok(pattern) => Some(Located {
            value: Term { excludes, pattern },
            at,
        }),
        Err(why) => {
            let (message, help) = why.split_once("; ").unwrap_or((&why, ""));
            said.fault(at, message, help);
            None
        }
    }
}

fn located<T>(value: Vec<T>, at: Position) -> Located<Vec<T>> {
    Located { value, at }
}

/// What verbs a rule has on one kind of request.
#[derive(Debug)]
pub(super) enum Verbs {
    /// Any.
    Any,
    /// None that exists there.
    None,
    /// These.
    Some(Located<Terms<VerbName>>),
}

/// All verbs of a rule, for what is a resource and what is not.
pub(super) fn verbs(list: &Texts, rule: Position, said: &mut Said<'_>) -> [Verbs; 2] {
    let Some(list) = list.as_ref().filter(|list| !list.is_empty()) else {
        let help = "list verbs, or \"*\" for all";
        said.fault(rule, "a rule without verbs matches nothing", help);
        return [Verbs::None, Verbs::None];
    };
    let halves = Halves::of(list);
    halves.tell("verbs", said);
    if halves.is_anything() {
        return [Verbs::Any, Verbs::Any];
    }
    let drops_star = halves.takes_all();
    let mut terms: Terms<VerbName> = Vec::new();
    for (excludes, half) in [(false, &halves.included), (true, &halves.excluded)] {
        for (text, at) in half {
            if excludes || !drops_star {
                terms.extend(term(excludes, text, *at, said));
            }
        }
    }
    [VerbName::is_for_resources, VerbName::is_for_paths].map(|is_for| {
        let fit = terms.iter().filter(|term| is_for(&term.pattern)).cloned();
        let fit: Terms<VerbName> = fit.collect();
        let has_included = terms.iter().any(|term| !term.excludes);
        let includes = fit.iter().any(|term| !term.excludes);
        match (has_included && !includes, fit.is_empty()) {
            (true, _) => Verbs::None,
            (false, true) => Verbs::Any,
            (false, false) => Verbs::Some(located(fit, halves.at)),
        }
    })
}

/// Groups times resources. `None` when the rule is faulty.
pub(super) fn resources(
    groups: &Texts,
    resources: &Texts,
    rule: Position,
    said: &mut Said<'_>,
) -> Made<ResourceName> {
    let mut halves = Vec::new();
    for (field, list) in [("apiGroups", groups), ("resources", resources)] {
        let Some(list) = list.as_ref().filter(|list| !list.is_empty()) else {
            let message = format!("a rule on resources without {field} matches nothing");
            said.fault(rule, message, &format!("list {field}, or \"*\" for all"));
            continue;
        };
        let half = Halves::of(list);
        half.tell(field, said);
        halves.push(half);
    }
    let [groups, resources] = <[Halves<'_>; 2]>::try_from(halves).ok()?;
    let product = groups
        .included
        .len()
        .saturating_mul(resources.included.len());
    if product > PRODUCT_MAX {
        let message = format!("apiGroups times resources are more than {PRODUCT_MAX}");
        said.fault(resources.at, message, "make several rules of it");
        return None;
    }
    let mut terms = included(&groups, &resources, said);
    for (text, at) in &resources.excluded {
        terms.extend(resource(true, text, &Part::Any, *at, said));
    }
    for (text, at) in &groups.excluded {
        let excluded = group(text, *at, said);
        terms.extend(excluded.and_then(|it| resource(true, "*", &it, *at, said)));
    }
    Some(located(terms, resources.at))
}

/// Each group with each resource.
fn included(
    groups: &Halves<'_>,
    resources: &Halves<'_>,
    said: &mut Said<'_>,
) -> Terms<ResourceName> {
    let wanted: Vec<Part> = if groups.included.is_empty() || groups.takes_all() {
        vec![Part::Any]
    } else {
        let groups = groups.included.iter();
        groups
            .filter_map(|(text, at)| group(text, *at, said))
            .collect()
    };
    let takes_all = resources.takes_all() || resources.included.is_empty();
    let has_excluded = !(groups.excluded.is_empty() && resources.excluded.is_empty());
    let every = [("*", resources.at)];
    let texts: &[(&str, Position)] = if takes_all {
        &every
    } else {
        &resources.included
    };
    let mut terms = Vec::new();
    for group in &wanted {
        // Beside what is excluded, "all" need not be said.
        if *group == Part::Any && takes_all && has_excluded {
            continue;
        }
        for (text, at) in texts {
            terms.extend(resource(false, text, group, *at, said));
        }
    }
    terms
}

fn group(text: &str, at: Position, said: &mut Said<'_>) -> Option<Part> {
    if text.is_empty() || is_dns_name(text) {
        return Some(Part::Is(text.to_owned()));
    }
    let message = format!("`{text}` of apiGroups is no group");
    let help = "write a group's name, \"\" for the core group or \"*\"";
    said.fault(at, message, help);
    None
}

fn resource(
    excludes: bool,
    text: &str,
    group: &Part,
    at: Position,
    said: &mut Said<'_>,
) -> Option<Located<Term<ResourceName>>> {
    if text.contains('.') {
        let message = format!("`{text}` of resources has a dot");
        said.fault(at, message, "a group belongs in apiGroups");
        return None;
    }
    let mut made: Located<Term<ResourceName>> = term(excludes, text, at, said)?;
    made.value.pattern.group = group.clone();
    Some(made)
}
