//! Rules that no request reaches, since an earlier one takes all that they would match.
//!
//! Certain cases only: where it takes more than comparing entries to know, a rule is let be. Only a
//! rule that enforces hides others.

use crate::diagnostic::Diagnostic;
use crate::load::Sourced;
use crate::located::Located;
use crate::rate::{Match, Mode, RateRule, RateRules};
use crate::selector::{Covers, Glob, ResourceName, Terms};

use super::Report;

pub(super) fn check(all: &[Sourced<RateRules>], faults: &mut Vec<Diagnostic>) {
    let mut earlier: Vec<(&Sourced<RateRules>, &RateRule)> = Vec::new();
    for rates in all {
        for rule in rates.spec.rules.iter() {
            let hider = earlier.iter().find(|(owner, candidate)| {
                let cluster = owner.spec.cluster.as_str();
                (cluster == "*" || cluster == rates.spec.cluster.as_str())
                    && covers(&candidate.matches, &rule.matches)
            });
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
                earlier.push((rates, rule));
            }
        }
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
