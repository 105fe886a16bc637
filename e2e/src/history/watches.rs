//! Each watch against the ledger.
//!
//! The order of the questions matters: an event that comes twice is also out of order, and one
//! below the start is also unknown; each is named for what it is first.

use std::collections::HashSet;

use super::compaction::Floors;
use super::guarantee::{Guarantee, Report};
use super::ledger::Ledger;
use super::record::{Event, History, WatchLog, WatchResponse};

pub(super) fn check(history: &History, ledger: &Ledger, report: &mut Report) {
    let floors = Floors::of(history);
    for log in &history.watches {
        // A watch that never began promised nothing.
        let Some(first) = log.first() else { continue };
        let mut judge = Judge {
            log,
            first,
            ledger,
            floors: &floors,
            report: &mut *report,
            last: 0,
            progress: 0,
            told: HashSet::new(),
            got: Vec::new(),
            open: None,
        };
        for response in &log.responses {
            judge.response(response);
        }
        judge.completeness();
    }
}

struct Judge<'a> {
    log: &'a WatchLog,
    /// The first revision it is owed.
    first: i64,
    ledger: &'a Ledger,
    floors: &'a Floors<'a>,
    report: &'a mut Report,
    /// Revision of the last event.
    last: i64,
    /// Of the last notice.
    progress: i64,
    told: HashSet<(i64, &'a str)>,
    /// Every event that may have come, once, as it came.
    got: Vec<&'a Event>,
    /// The revision that the last response ended in, when more of it may follow.
    open: Option<i64>,
}

impl<'a> Judge<'a> {
    fn add(&mut self, guarantee: Guarantee, what: &str) {
        self.report.add(guarantee, format!("{}: {what}", self.log));
    }

    fn response(&mut self, response: &'a WatchResponse) {
        let before = self.last;
        for event in &response.events {
            self.event(event, response, before);
        }
        self.open = response.fragment.then_some(self.last);
        if response.is_progress() {
            self.notice(response.revision);
        }
        let floor = response.compact_revision;
        if response.canceled && floor > 0 {
            let most = self.floors.perhaps(response.at);
            let next = self.first.max(self.last.max(self.progress) + 1);
            if floor > most || next >= floor {
                let what = format!(
                    "canceled for compaction to {floor} when it stood at {next} and no more than {most} can have been compacted"
                );
                self.add(Guarantee::CompactionFloor, &what);
            }
        }
    }

    fn notice(&mut self, revision: i64) {
        // One from now on begins at the newest revision, which it may be told.
        if revision < self.log.start {
            let what = format!("progress at {revision}, before it begins");
            self.add(Guarantee::WatchBookmarkable, &what);
        } else if revision < self.progress || revision < self.last {
            let what = format!(
                "progress at {revision} after {} and an event at {}",
                self.progress, self.last
            );
            self.add(Guarantee::WatchBookmarkable, &what);
        } else if revision > self.ledger.last() {
            let what = format!(
                "progress at {revision}, and the history ends at {}",
                self.ledger.last()
            );
            self.add(Guarantee::WatchBookmarkable, &what);
        }
        self.progress = self.progress.max(revision);
    }

    fn event(&mut self, event: &'a Event, response: &WatchResponse, before: i64) {
        let revision = event.kv.modified;
        if !self.log.wants(event) {
            self.add(
                Guarantee::WatchFilter,
                &format!("{event} was not asked for"),
            );
            return;
        }
        if revision < self.first {
            let what = format!("{event} lies before its start at {}", self.first);
            self.add(Guarantee::WatchResumable, &what);
            return;
        }
        if !self.told.insert((revision, event.kv.key.as_str())) {
            self.add(Guarantee::WatchUnique, &format!("{event} came twice"));
            return;
        }
        if revision < self.last {
            let what = format!("{event} came after one at {}", self.last);
            self.add(Guarantee::WatchOrdered, &what);
        }
        if revision <= self.progress {
            let what = format!("{event} came after progress at {}", self.progress);
            self.add(Guarantee::WatchBookmarkable, &what);
        }
        if revision == before && self.open != Some(revision) {
            let what = format!("{event} came in another response than the rest of its revision");
            self.add(Guarantee::WatchAtomic, &what);
        }
        self.last = self.last.max(revision);
        self.got.push(event);
        self.content(event, response);
    }

    fn content(&mut self, event: &Event, response: &WatchResponse) {
        let entry = self.ledger.at(event.kv.modified);
        let truth =
            entry.and_then(|entry| entry.events.iter().find(|one| one.kv.key == event.kv.key));
        let Some(truth) = truth else {
            self.add(Guarantee::WatchReliable, &format!("{event} never happened"));
            return;
        };
        let (kv, own) = (&event.kv, &truth.kv);
        let is_same =
            event.is_delete == truth.is_delete && kv.value == own.value && kv.lease == own.lease;
        if !is_same {
            self.add(Guarantee::WatchReliable, &format!("{event} was {truth}"));
        } else if (kv.create, kv.version) != (own.create, own.version) {
            self.add(Guarantee::WatchCreate, &format!("{event} was {truth}"));
        }
        self.previous(event, truth, response);
    }

    fn previous(&mut self, event: &Event, truth: &Event, response: &WatchResponse) {
        let revision = event.kv.modified;
        let what = |why: &str| {
            let shown = event.prev.as_ref().map(ToString::to_string);
            let known = truth.prev.as_ref().map(ToString::to_string);
            format!("{event} came with the previous value {shown:?}, {why} {known:?}")
        };
        match (&event.prev, &truth.prev) {
            (Some(_), _) if !self.log.prev_kv => {
                self.add(Guarantee::WatchPrevKv, &what("not asked for; it is"));
            }
            // At or below the floor that it began at, etcd has none to show.
            (Some(_), _) if revision <= self.floors.surely(self.log.opened) => {
                self.add(Guarantee::WatchPrevKv, &what("compacted before it began;"));
            }
            (Some(shown), Some(known)) if shown == known => {}
            (Some(_), _) => self.add(Guarantee::WatchPrevKv, &what("and it was")),
            (None, Some(_)) if self.log.prev_kv && revision > self.floors.perhaps(response.at) => {
                self.add(Guarantee::WatchPrevKv, &what("and it was"));
            }
            (None, _) => {}
        }
    }

    /// Whether everything that it is owed came, up to where it certainly was.
    fn completeness(&mut self) {
        let reach = self.last.max(self.progress);
        let end = reach.max(self.log.owed_until);
        let mut got = self.got.iter().peekable();
        let entries = self.ledger.entries.iter();
        let owed = entries.filter(|entry| (self.first..=end).contains(&entry.revision));
        let owed = owed
            .flat_map(|entry| &entry.events)
            .filter(|event| self.log.wants(event));
        let (mut missing, mut swapped) = (Vec::new(), None);
        for event in owed {
            let is_it =
                |one: &&&Event| one.kv.modified == event.kv.modified && one.kv.key == event.kv.key;
            if got.next_if(|one| is_it(one)).is_some() {
                continue;
            }
            if self
                .told
                .contains(&(event.kv.modified, event.kv.key.as_str()))
            {
                // It came, and not in its place.
                swapped.get_or_insert(event);
                while got
                    .next_if(|one| one.kv.modified <= event.kv.modified)
                    .is_some()
                {}
            } else {
                missing.push(event);
            }
        }
        let first_got = self.got.first().map_or(i64::MAX, |event| event.kv.modified);
        if let Some(event) = swapped {
            self.add(
                Guarantee::WatchOrdered,
                &format!("{event} came out of its place"),
            );
        }
        for event in missing {
            let (guarantee, what) = if event.kv.modified > reach {
                (Guarantee::WatchReliable, "is still missing at the end")
            } else if event.kv.modified < first_got {
                (Guarantee::WatchResumable, "is missing at its beginning")
            } else {
                (Guarantee::WatchReliable, "is missing")
            };
            self.add(guarantee, &format!("{event} {what}, it got to {reach}"));
        }
    }
}
