//! What each revision did and whose work it was: acknowledgements and the recorder's events, made
//! into one sequence.
//!
//! ```text
//! acknowledged, seen       they must be the same change
//! acknowledged, not seen   the watches' fault if the recorder passed it, else it is lost
//! not acknowledged, seen   the work of a request whose outcome is unknown, or a lease's end
//! neither                  a revision that nothing took
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::guarantee::{Guarantee, Report};
use super::model::Model;
use super::record::{Answer, Call, Event, History, Op, Request, Txn};

/// Whose work a revision is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Of the call at this place.
    Call(usize),
    /// The end of a lease, by its time or by a revocation nobody heard of.
    LeaseEnd(i64),
    /// Said as a violation already.
    Nobody,
}

/// One revision.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) revision: i64,
    /// As they must be, with previous values.
    pub(super) events: Vec<Event>,
    pub(super) work: Work,
    /// When the first watch was told of it.
    pub(super) seen_at: Option<u64>,
}

/// Every revision from the second on.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: Vec<Entry>,
    /// The revision of each acknowledged write that is accounted for.
    pub(super) homes: HashMap<usize, i64>,
}

impl Ledger {
    /// The newest revision.
    pub(super) fn last(&self) -> i64 {
        self.entries.last().map_or(1, |entry| entry.revision)
    }

    /// One revision.
    pub(super) fn at(&self, revision: i64) -> Option<&Entry> {
        let place = usize::try_from(revision.checked_sub(2)?).ok()?;
        self.entries.get(place)
    }

    pub(super) fn build(history: &History, report: &mut Report) -> Ledger {
        let mut builder = Builder::new(history, report);
        builder.find_homes();
        for revision in 2..=builder.last() {
            builder.settle(revision);
        }
        builder.ledger
    }
}

/// What the recorder was told of one revision.
struct Seen {
    events: Vec<Event>,
}

struct Builder<'a> {
    history: &'a History,
    report: &'a mut Report,
    seen: BTreeMap<i64, Seen>,
    /// When any watch first told of a revision.
    seen_at: HashMap<i64, u64>,
    /// Revisions at which a value was seen to be put.
    values: HashMap<&'a str, Vec<i64>>,
    /// How far the recorder got.
    reach: i64,
    acks: BTreeMap<i64, Vec<usize>>,
    /// Acknowledged revocations by revision; whether they changed anything, the model tells.
    revokes: HashMap<i64, Vec<usize>>,
    /// Calls with unknown outcome that no revision is the work of yet.
    unknown: Vec<usize>,
    model: Model,
    /// Leases that a key hung on before.
    former: HashMap<String, BTreeSet<i64>>,
    ledger: Ledger,
}

impl<'a> Builder<'a> {
    fn new(history: &'a History, report: &'a mut Report) -> Self {
        let mut builder = Builder {
            history,
            report,
            seen: BTreeMap::new(),
            seen_at: HashMap::new(),
            values: HashMap::new(),
            reach: 1,
            acks: BTreeMap::new(),
            revokes: HashMap::new(),
            unknown: Vec::new(),
            model: Model::default(),
            former: HashMap::new(),
            ledger: Ledger::default(),
        };
        builder.gather();
        builder
    }

    /// Sorts what the watches were told by revision.
    fn gather(&mut self) {
        for log in &self.history.watches {
            for response in &log.responses {
                if log.is_recorder && (response.is_progress() || !response.events.is_empty()) {
                    let last = response.events.iter().map(|event| event.kv.modified).max();
                    self.reach = self.reach.max(last.unwrap_or(response.revision));
                }
                for event in &response.events {
                    let revision = event.kv.modified;
                    let at = self.seen_at.entry(revision).or_insert(response.at);
                    *at = response.at.min(*at);
                    if log.is_recorder {
                        let events = Vec::new();
                        let seen = self.seen.entry(revision).or_insert(Seen { events });
                        // Told twice, it is the watch's fault and not the history's.
                        if !seen.events.iter().any(|known| known.kv.key == event.kv.key) {
                            seen.events.push(event.clone());
                            if !event.is_delete {
                                let places = self.values.entry(&event.kv.value).or_default();
                                places.push(revision);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Sorts acknowledged writes by the revision that they took, which had better be the one that
    /// they were answered.
    fn find_homes(&mut self) {
        for (place, call) in self.history.calls.iter().enumerate() {
            if call.is_unknown() {
                self.unknown.push(place);
            }
            let Some(reply) = call.reply() else { continue };
            if matches!(call.request, Request::Revoke { .. }) {
                self.revokes.entry(reply.revision).or_default().push(place);
            }
            if !reply.answer.is_effective() {
                continue;
            }
            let seen = put_value(&call.request, &reply.answer)
                .and_then(|value| self.values.get(value))
                .filter(|seen| !seen.contains(&reply.revision));
            let home = match seen.and_then(|seen| seen.first()) {
                Some(home) => {
                    let what = format!("{call}: the history has this write at {home}");
                    self.report.add(Guarantee::OwnRevision, what);
                    *home
                }
                None => reply.revision,
            };
            self.acks.entry(home).or_default().push(place);
        }
    }

    fn last(&self) -> i64 {
        let acknowledged = self.acks.keys().next_back().copied().unwrap_or(1);
        let seen = self.seen.keys().next_back().copied().unwrap_or(1);
        acknowledged.max(seen)
    }

    fn call(&self, place: usize) -> Option<&'a Call> {
        self.history.calls.get(place)
    }

    /// What a call would change now.
    fn changes(&self, place: usize) -> Option<Vec<Event>> {
        let (events, _) = self.model.run(&self.call(place)?.request)?;
        Some(events)
    }

    fn settle(&mut self, revision: i64) {
        let mut acks = self.acks.remove(&revision).unwrap_or_default();
        if acks.is_empty() {
            let revokes = self.revokes.get(&revision).into_iter().flatten();
            let did = |place: &usize| self.changes(*place).is_some_and(|all| !all.is_empty());
            acks.extend(revokes.copied().find(did));
        }
        let seen = self.seen.remove(&revision).map(|seen| seen.events);
        let (events, work) = match (acks.as_slice(), seen) {
            ([], None) => {
                let what = format!(
                    "revision {revision} is nobody's: no write was acknowledged at it and no event came"
                );
                self.report.add(Guarantee::Dense, what);
                (Vec::new(), Work::Nobody)
            }
            ([], Some(seen)) => self.unasked(revision, seen),
            ([one], seen) => self.acknowledged(revision, *one, seen),
            (many, seen) => self.contested(revision, many, seen),
        };
        let events: Vec<Event> = events
            .iter()
            .map(|event| self.model.complete(event, revision))
            .collect();
        for prev in events.iter().filter_map(|event| event.prev.as_ref()) {
            let former = self.former.entry(prev.key.clone()).or_default();
            former.insert(prev.lease);
        }
        self.model.apply(revision, &events);
        if let Work::Call(place) = work {
            self.ledger.homes.insert(place, revision);
        }
        self.ledger.entries.push(Entry {
            revision,
            events,
            work,
            seen_at: self.seen_at.get(&revision).copied(),
        });
    }

    /// A revision that one write was acknowledged at.
    fn acknowledged(
        &mut self,
        revision: i64,
        place: usize,
        seen: Option<Vec<Event>>,
    ) -> (Vec<Event>, Work) {
        let Some(call) = self.call(place) else {
            return (seen.unwrap_or_default(), Work::Nobody);
        };
        let made = self.changes(place).filter(|events| !events.is_empty());
        let Some(made) = made else {
            let what = format!(
                "{call}: on the state at {} it changes nothing",
                revision - 1
            );
            self.report.add(Guarantee::Responses, what);
            return (seen.unwrap_or_default(), Work::Nobody);
        };
        let Some(seen) = seen else {
            if revision > self.reach {
                let reach = self.reach;
                let what = format!("{call}: the store's history ends at {reach}");
                self.report.add(Guarantee::AcknowledgedWrites, what);
            }
            // If the recorder went past it, that is found when its watch is judged.
            return (made, Work::Call(place));
        };
        if same(&made, &seen) {
            return (made, Work::Call(place));
        }
        if let Request::Revoke { id } = call.request {
            return self.odd_end(revision, Some(id), seen);
        }
        let what = format!("{call}: the history has {}", list(&seen));
        self.report.add(Guarantee::AcknowledgedWrites, what);
        if let Some(other) = self.asked(revision, &seen) {
            let other = self.call(other).map(Call::to_string).unwrap_or_default();
            let what = format!("revision {revision} was given to {call} and to {other}");
            self.report.add(Guarantee::RevisionUnique, what);
        }
        // What lacks something is the worse witness.
        let is_part = seen
            .iter()
            .all(|one| made.iter().any(|all| alike(one, all)));
        if is_part {
            (made, Work::Call(place))
        } else {
            (seen, Work::Nobody)
        }
    }

    /// A revision that several writes were acknowledged at.
    fn contested(
        &mut self,
        revision: i64,
        acks: &[usize],
        seen: Option<Vec<Event>>,
    ) -> (Vec<Event>, Work) {
        let calls: Vec<String> = acks
            .iter()
            .filter_map(|place| self.call(*place))
            .map(Call::to_string)
            .collect();
        let what = format!(
            "revision {revision} was given to {}",
            calls.join(" and to ")
        );
        self.report.add(Guarantee::RevisionUnique, what);
        let is_it = |place: &&usize| match (&seen, self.changes(**place)) {
            (Some(seen), Some(made)) => same(&made, seen),
            _ => false,
        };
        let winner = acks.iter().find(is_it).or(acks.first()).copied();
        for place in acks.iter().filter(|place| Some(**place) != winner) {
            let Some(call) = self.call(*place) else {
                continue;
            };
            let value = call
                .reply()
                .and_then(|r| put_value(&call.request, &r.answer));
            if value.is_some_and(|value| !self.values.contains_key(value)) {
                let what = format!("{call}: it is nowhere in the history");
                self.report.add(Guarantee::AcknowledgedWrites, what);
            }
        }
        match winner {
            Some(winner) => self.acknowledged(revision, winner, seen),
            None => (seen.unwrap_or_default(), Work::Nobody),
        }
    }

    /// A revision that nobody was told is theirs.
    fn unasked(&mut self, revision: i64, seen: Vec<Event>) -> (Vec<Event>, Work) {
        if let Some(found) = self.asked(revision, &seen) {
            self.unknown.retain(|place| *place != found);
            return (seen, Work::Call(found));
        }
        if seen.iter().all(|event| event.is_delete) {
            let lease = |event: &Event| self.model.get(&event.kv.key).map(|kv| kv.lease);
            let leases: BTreeSet<i64> = seen.iter().filter_map(lease).filter(|l| *l != 0).collect();
            for lease in leases {
                if self.is_end_of(lease, &seen) {
                    return (seen, Work::LeaseEnd(lease));
                }
            }
            return self.odd_end(revision, None, seen);
        }
        let what = format!("revision {revision}, {}, is no request's work", list(&seen));
        self.report.add(Guarantee::WriteOrigin, what);
        (seen, Work::Nobody)
    }

    /// A request without an answer whose work these events can be.
    fn asked(&self, revision: i64, seen: &[Event]) -> Option<usize> {
        let at = self.seen_at.get(&revision).copied().unwrap_or(u64::MAX);
        let is_it = |place: &usize| {
            let asked = self.call(*place).is_some_and(|call| call.began < at);
            asked && self.changes(*place).is_some_and(|made| same(&made, seen))
        };
        self.unknown.iter().copied().find(is_it)
    }

    fn is_end_of(&self, lease: i64, seen: &[Event]) -> bool {
        let keys = self.model.on_lease(lease);
        let keys = keys.iter().map(|kv| kv.key.as_str());
        keys.eq(seen.iter().map(|event| event.kv.key.as_str()))
    }

    /// Deletes that are not quite the end of a lease: says what is wrong with them.
    fn odd_end(
        &mut self,
        revision: i64,
        lease: Option<i64>,
        seen: Vec<Event>,
    ) -> (Vec<Event>, Work) {
        let hangs_on = |event: &Event| self.model.get(&event.kv.key).map_or(0, |kv| kv.lease);
        let hung_on = |event: &Event, lease: i64| {
            let former = self.former.get(&event.kv.key);
            hangs_on(event) != lease && former.is_some_and(|former| former.contains(&lease))
        };
        let former = seen
            .iter()
            .filter_map(|event| self.former.get(&event.kv.key));
        let candidates: BTreeSet<i64> = seen
            .iter()
            .map(hangs_on)
            .chain(former.flatten().copied())
            .chain(lease)
            .filter(|lease| *lease != 0)
            .collect();
        for lease in candidates {
            let strays: Vec<&Event> = seen.iter().filter(|e| hangs_on(e) != lease).collect();
            if !strays.is_empty() && strays.iter().all(|event| hung_on(event, lease)) {
                let stray = strays.first().map_or("", |event| event.kv.key.as_str());
                let what = format!(
                    "revision {revision} ends lease {lease} with {stray}, which hung on it no more"
                );
                self.report.add(Guarantee::LeaseDetach, what);
                return (seen, Work::LeaseEnd(lease));
            }
            if strays.is_empty() {
                let keys = self.model.on_lease(lease).len();
                let what = format!(
                    "revision {revision} ends lease {lease}, which has {keys} keys, with {}",
                    list(&seen)
                );
                self.report.add(Guarantee::LeaseAtomic, what);
                return (seen, Work::Nobody);
            }
        }
        let what = format!("revision {revision}, {}, is no request's work", list(&seen));
        self.report.add(Guarantee::WriteOrigin, what);
        (seen, Work::Nobody)
    }
}

/// Whether two events are the same change, whatever they say of the key's life.
fn alike(one: &Event, two: &Event) -> bool {
    one.is_delete == two.is_delete
        && one.kv.key == two.kv.key
        && (one.is_delete || (one.kv.value == two.kv.value && one.kv.lease == two.kv.lease))
}

fn same(one: &[Event], two: &[Event]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| alike(one, two))
}

fn list(events: &[Event]) -> String {
    let events: Vec<String> = events.iter().map(Event::to_string).collect();
    format!("[{}]", events.join(", "))
}

/// The first value that a write put, given which branch it took; values are never used twice.
fn put_value<'r>(request: &'r Request, answer: &Answer) -> Option<&'r str> {
    match request {
        Request::Put(put) if !put.ignore_value => Some(&put.value),
        Request::Txn(txn) => txn_value(txn, answer),
        _ => None,
    }
}

fn txn_value<'r>(txn: &'r Txn, answer: &Answer) -> Option<&'r str> {
    let Answer::Txn { succeeded, answers } = answer else {
        return None;
    };
    let ops = if *succeeded {
        &txn.then
    } else {
        &txn.otherwise
    };
    ops.iter().zip(answers).find_map(|(op, answer)| match op {
        Op::Put(put) if !put.ignore_value => Some(put.value.as_str()),
        Op::Txn(inner) => txn_value(inner, answer),
        _ => None,
    })
}
