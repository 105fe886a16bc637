//! Rules that no request reaches, since an earlier one takes all that they would match.
//!
//! Certain cases only: where it takes more than comparing entries to know, a rule is let be. Only a
//! rule that enforces hides others.
//!
//! Files may hold very many rules, one for each of as many users or namespaces. So a rule is compared
//! with those before it that can hide it by how their entries of one such list begin, and with those
//! that have no such list; of the latter there are few, as there are few resources and verbs.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::load::Sourced;
use crate::located::Located;
use crate::rate::{Match, Mode, RateRule, RateRules};
use crate::selector::{Covers, Glob, ResourceName, Terms};

use super::Report;

pub(super) fn check(all: &[Sourced<RateRules>], faults: &mut Vec<Diagnostic>) {
    let mut earlier = Earlier::default();
    for rates in all {
        for rule in rates.spec.rules.iter() {
            let hider = earlier.hiding(rates, rule);
            if let (Some((owner, hider)), true) = (hider, rule.mode != Mode::Off) {
                let message = format!(
                    "rule `{}` can never match: `{}` of `{}` takes all its requests",
                    *rule.name, *hider.name, *owner.metadata.name
                );
                let help = format!(
                    "put it before {}:{}, or make that one narrower",
                    owner.file().display(),
                    hider.name.at.line
                );
                Report::new(&rates.source, faults).fault(rule.name.at, message, &help);
            }
            if rule.mode == Mode::Enforce {
                earlier.add(rates, rule);
            }
        }
    }
}

type Owned<'a> = (&'a Sourced<RateRules>, &'a RateRule);

/// Lists by which rules are told apart in great number.
const INDEXED: usize = 5;

/// The rules so far that may hide others, found by what a rule hidden by them looks like.
#[derive(Default)]
struct Earlier<'a> {
    rules: Vec<Owned<'a>>,
    /// By a list of [`indexed`], and how one of its entries begins up to the first star.
    by_beginning: [HashMap<&'a str, Vec<usize>>; INDEXED],
    /// Those with none of these lists.
    others: Vec<usize>,
}

/// The lists. What a rule with an entry there hides has an entry that it covers.
fn indexed(matches: &Match) -> [&List<Glob>; INDEXED] {
    let Match {
        users,
        groups,
        verbs: _,
        resources: _,
        namespaces,
        names,
        user_agents,
        non_resource_paths: _,
    } = matches;
    [users, namespaces, names, groups, user_agents]
}

/// What a list includes.
fn included(list: &List<Glob>) -> impl Iterator<Item = &str> {
    let terms = list.iter().flat_map(|list| list.iter());
    terms
        .filter(|term| !term.excludes)
        .map(|term| term.pattern.as_str())
}

impl<'a> Earlier<'a> {
    fn add(&mut self, rates: &'a Sourced<RateRules>, rule: &'a RateRule) {
        let number = self.rules.len();
        self.rules.push((rates, rule));
        let lists = indexed(&rule.matches)
            .into_iter()
            .zip(&mut self.by_beginning);
        for (list, by_beginning) in lists {
            let mut is_there = false;
            for pattern in included(list) {
                let beginning = pattern.split('*').next().unwrap_or_default();
                by_beginning.entry(beginning).or_default().push(number);
                is_there = true;
            }
            if is_there {
                return;
            }
        }
        self.others.push(number);
    }

    /// The first rule that takes everything that `rule` would match.
    fn hiding(&self, rates: &Sourced<RateRules>, rule: &RateRule) -> Option<Owned<'a>> {
        let mut candidates = self.others.clone();
        let lists = indexed(&rule.matches).into_iter().zip(&self.by_beginning);
        for (list, by_beginning) in lists {
            // All that is included has to be covered, and so the first of it.
            let Some(pattern) = included(list).next() else {
                continue;
            };
            let ends = pattern.char_indices().map(|(at, _)| at);
            for end in ends.chain([pattern.len()]) {
                let beginning = pattern.get(..end).unwrap_or_default();
                candidates.extend(by_beginning.get(beginning).into_iter().flatten());
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        let mut candidates = candidates.into_iter().filter_map(|at| self.rules.get(at));
        let hider = candidates.find(|(owner, candidate)| {
            let cluster = owner.spec.cluster.as_str();
            (cluster == "*" || cluster == rates.spec.cluster.as_str())
                && covers(&candidate.matches, &rule.matches)
        });
        hider.copied()
    }
}

/// Whether everything that `narrow` matches is matched by `wide`.
pub(crate) fn covers(wide: &Match, narrow: &Match) -> bool {
    let Match {
        users,
        groups,
        verbs,
        resources,
        namespaces,
        names,
        user_agents,
        non_resource_paths,
    } = wide;
    list_covers(users, &narrow.users, Values::One)
        && list_covers(groups, &narrow.groups, Values::Many)
        && list_covers(verbs, &narrow.verbs, Values::One)
        && targets_cover((resources, non_resource_paths), narrow)
        && list_covers(namespaces, &narrow.namespaces, Values::One)
        && list_covers(names, &narrow.names, Values::One)
        && list_covers(user_agents, &narrow.user_agents, Values::One)
}

type List<T> = Option<Located<Terms<T>>>;

/// Resources and paths: with neither list a rule is about both kinds of requests, with one of them
/// about that kind only.
fn targets_cover((resources, paths): (&List<ResourceName>, &List<Glob>), narrow: &Match) -> bool {
    if resources.is_none() && paths.is_none() {
        return true;
    }
    let covers_resources = narrow.resources.is_none()
        || (resources.is_some() && list_covers(resources, &narrow.resources, Values::One));
    let covers_paths = narrow.non_resource_paths.is_none()
        || (paths.is_some() && list_covers(paths, &narrow.non_resource_paths, Values::One));
    let is_narrow = narrow.resources.is_some() || narrow.non_resource_paths.is_some();
    is_narrow && covers_resources && covers_paths
}

/// How many values of a field one request has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    One,
    Many,
}

fn list_covers<T: Covers>(wide: &List<T>, narrow: &List<T>, values: Values) -> bool {
    let Some(wide) = wide else { return true };
    let Some(narrow) = narrow else { return false };
    let (wide_out, wide_in): (Vec<_>, Vec<_>) = wide.iter().partition(|term| term.excludes);
    let (narrow_out, narrow_in): (Vec<_>, Vec<_>) = narrow.iter().partition(|term| term.excludes);
    let all_in = wide_in.is_empty()
        || (!narrow_in.is_empty()
            && narrow_in.iter().all(|term| {
                wide_in
                    .iter()
                    .any(|wide| wide.pattern.covers(&term.pattern))
            }));
    // What the wide list leaves out must be left out by the narrow one too, or not be in it at all.
    let none_out = wide_out.iter().all(|out| {
        let is_left_out = narrow_out
            .iter()
            .any(|term| term.pattern.covers(&out.pattern));
        let is_elsewhere = values == Values::One
            && !narrow_in.is_empty()
            && narrow_in
                .iter()
                .all(|term| term.pattern.is_exact() && !out.pattern.covers(&term.pattern));
        is_left_out || is_elsewhere
    });
    all_in && none_out
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::decode::{Object, Place, Source, objects};

    /// Rules out of few words, so that many hide others.
    fn rules(count: usize, seed: u64) -> Sourced<RateRules> {
        const LISTS: [(&str, &[&str]); 6] = [
            ("users", &["a", "ab", "a*", "*b", "-a", "-*b", "*"]),
            ("groups", &["g", "g*", "-g", "h"]),
            ("verbs", &["get", "list", "-get"]),
            ("resources", &["pods", "*", "-pods", "nodes"]),
            ("namespaces", &["n", "n*", "-n", "m", "\"\""]),
            ("names", &["x", "x*", "*x*", "-x"]),
        ];
        let mut state = seed;
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        let mut text = "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: { name: r }\n\
                        spec:\n  cluster: \"*\"\n  rules:\n"
            .to_owned();
        for number in 0..count {
            let mut lists = Vec::new();
            for (name, words) in LISTS {
                let picked: Vec<&str> = (0..draw(3)).map(|_| words[draw(words.len())]).collect();
                if !picked.is_empty() && draw(2) == 0 {
                    let picked: Vec<String> = picked
                        .into_iter()
                        .map(|word| format!("'{}'", word.trim_matches('"')))
                        .collect();
                    lists.push(format!("{name}: [{}]", picked.join(", ")));
                }
            }
            let lists = lists.join(", ");
            text += &format!("  - {{ name: r{number}, match: {{ {lists} }}, exempt: true }}\n");
        }
        let file = Path::new("r.yaml").to_owned();
        let source = Arc::new(Source { file, text });
        let mut faults = Vec::new();
        let mut found = objects(&source, Place::Rules, &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        let Some(Object::Rates(value)) = found.pop() else {
            panic!("no rules");
        };
        Sourced {
            value: *value,
            source,
        }
    }

    #[test]
    fn who_hides_whom_is_what_comparing_all_says() {
        let mut hidden = 0;
        for seed in 0..20 {
            let rates = rules(100, seed);
            let mut earlier = Earlier::default();
            for (number, rule) in rates.spec.rules.iter().enumerate() {
                let naive = rates.spec.rules[..number]
                    .iter()
                    .find(|candidate| covers(&candidate.matches, &rule.matches));
                let found = earlier.hiding(&rates, rule).map(|(_, hider)| &hider.name);
                assert_eq!(found, naive.map(|hider| &hider.name), "{:?}", rule.matches);
                hidden += usize::from(found.is_some());
                earlier.add(&rates, rule);
            }
        }
        assert!(hidden > 100 && hidden < 1_990, "{hidden}");
    }
}
