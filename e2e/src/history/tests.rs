//! A good history, and for each guarantee one that differs in what breaks it.

use super::compaction::LEASE_NOT_FOUND;
use super::*;

const SECOND: u64 = 1_000_000_000;
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Makes histories: each call takes a millisecond and begins after the one before.
#[derive(Default)]
struct Maker {
    history: History,
    model: Model,
    /// As it stood at each revision from the first on.
    past: Vec<Model>,
    now: u64,
    events: Vec<Event>,
}

impl Maker {
    fn tick(&mut self) -> u64 {
        self.now += 1_000_000;
        self.now
    }

    fn push(&mut self, request: Request, outcome: Outcome) -> usize {
        let (began, ended) = (self.tick(), self.tick());
        self.history.calls.push(Call {
            client: 1,
            began,
            ended,
            request,
            outcome,
        });
        self.history.calls.len() - 1
    }

    /// What the store does right: answers by the model, and goes on when something changed.
    fn ask(&mut self, request: Request) -> usize {
        let model = match &request {
            Request::Range(range) if range.revision > 0 => {
                &self.past[usize::try_from(range.revision - 1).unwrap()]
            }
            _ => &self.model,
        };
        let (events, answer) = model.run(&request).unwrap();
        let revision = self.advance(&events);
        self.push(request, Outcome::Answered(Reply { revision, answer }))
    }

    fn advance(&mut self, events: &[Event]) -> i64 {
        let revision = self.model.revision() + i64::from(!events.is_empty());
        if !events.is_empty() {
            self.past.push(self.model.clone());
        }
        self.model.apply(revision, events);
        self.events.extend_from_slice(events);
        revision
    }

    fn put(&mut self, key: &str, value: &str) -> usize {
        self.put_on(key, value, 0)
    }

    fn put_on(&mut self, key: &str, value: &str, lease: i64) -> usize {
        self.ask(Request::Put(Put {
            key: key.into(),
            value: value.into(),
            lease,
            ..Put::default()
        }))
    }

    fn get(&mut self, key: &str) -> usize {
        self.ask(read(key, "", 0, 0))
    }

    fn grant(&mut self, id: i64, ttl: i64) {
        let revision = self.model.revision();
        let answer = Answer::Granted { id, ttl };
        self.push(
            Request::Grant { id, ttl },
            Outcome::Answered(Reply { revision, answer }),
        );
    }

    /// Ends a lease, later.
    fn expire(&mut self, id: i64, after: u64) {
        self.now += after;
        let (events, _) = self.model.run(&Request::Revoke { id }).unwrap();
        self.advance(&events);
        self.watch_rest();
    }

    fn compact(&mut self, at: i64) {
        let revision = self.model.revision();
        let answer = Answer::Done;
        self.push(
            Request::Compact(at),
            Outcome::Answered(Reply { revision, answer }),
        );
    }

    fn refused(&mut self, request: Request, code: i32, text: &str) {
        let text = text.to_owned();
        self.push(request, Outcome::Refused(Refusal { code, text }));
    }

    /// The recorder hears of what it does not know yet.
    fn watch_rest(&mut self) {
        let at = self.tick();
        let revision = self.model.revision();
        if self.history.watches.is_empty() {
            let mut log = watch("", "\0", 2);
            log.is_recorder = true;
            log.responses = vec![created(1)];
            self.history.watches.push(log);
        }
        let events: Vec<Event> = self.events.drain(..).collect();
        let log = self.history.watches.first_mut().unwrap();
        for same in events.chunk_by(|one, two| one.kv.modified == two.kv.modified) {
            log.responses.push(WatchResponse {
                at,
                revision,
                events: same.to_vec(),
                ..WatchResponse::default()
            });
        }
    }

    fn done(mut self) -> History {
        self.watch_rest();
        self.history.ended = self.tick();
        self.history.watches[0].owed_until = self.model.revision();
        self.history
    }
}

fn read(key: &str, end: &str, revision: i64, limit: i64) -> Request {
    Request::Range(Range {
        key: key.into(),
        end: end.into(),
        revision,
        limit,
        ..Range::default()
    })
}

fn watch(key: &str, end: &str, start: i64) -> WatchLog {
    WatchLog {
        client: 9,
        key: key.into(),
        end: end.into(),
        start,
        prev_kv: true,
        ..WatchLog::default()
    }
}

fn created(revision: i64) -> WatchResponse {
    WatchResponse {
        revision,
        created: true,
        ..WatchResponse::default()
    }
}

fn progress(revision: i64) -> WatchResponse {
    WatchResponse {
        at: u64::MAX,
        revision,
        ..WatchResponse::default()
    }
}

/// Three keys, updates, a transaction of two puts (revision 6), a delete (7), a page, a lost compare.
fn good() -> Maker {
    let mut maker = Maker::default();
    maker.put("a", "1");
    maker.put("b", "2");
    maker.put("c", "3");
    maker.put("a", "4");
    let put = |key: &str, value: &str| {
        Op::Put(Put {
            key: key.into(),
            value: value.into(),
            ..Put::default()
        })
    };
    maker.ask(Request::Txn(Txn {
        compares: vec![],
        then: vec![put("b", "5"), put("a", "6")],
        otherwise: vec![],
    }));
    maker.ask(Request::Delete(Delete {
        key: "c".into(),
        ..Delete::default()
    }));
    maker.ask(read("a", "z", 0, 1));
    maker.ask(Request::Txn(Txn {
        compares: vec![Compare {
            key: "a".into(),
            target: Target::Mod(2),
            relation: Relation::Equal,
        }],
        then: vec![put("a", "7")],
        otherwise: vec![Op::Range(Range {
            key: "a".into(),
            ..Range::default()
        })],
    }));
    maker
}

fn reply(history: &mut History, place: usize) -> &mut Reply {
    match &mut history.calls[place].outcome {
        Outcome::Answered(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn finds(history: &History, guarantee: Guarantee) {
    let report = check(history);
    assert!(report.has(guarantee), "{guarantee} is not among: {report}");
    assert!(report.to_string().contains(guarantee.sentence()));
}

#[track_caller]
fn finds_only(history: &History, guarantee: Guarantee) {
    finds(history, guarantee);
    assert_eq!(check(history).broken(), [guarantee], "{}", check(history));
}

#[track_caller]
fn clean(history: &History) {
    let report = check(history);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_good_history_is_clean_and_names_are_unique() {
    let mut maker = good();
    maker.grant(7, 2);
    maker.put_on("l1", "x1", 7);
    maker.put_on("l2", "x2", 7);
    maker.put_on("l1", "x3", 0);
    maker.expire(7, 2 * SECOND);
    maker.get("l1");
    maker.compact(5);
    maker.ask(read("a", "z", 5, 0));
    maker.refused(read("a", "z", 4, 0), 11, COMPACTED);
    clean(&maker.done());
    let names: std::collections::BTreeSet<String> =
        Guarantee::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), Guarantee::ALL.len());
}

#[test]
fn a_history_is_read_back_as_it_was_written() {
    let history = good().done();
    let text = serde_json::to_string(&history).unwrap();
    let again: History = serde_json::from_str(&text).unwrap();
    assert_eq!(format!("{history:?}"), format!("{again:?}"));
}

#[test]
fn unknown_outcomes_are_settled_by_the_events() {
    let mut maker = good();
    let happened = maker.put("u", "u1");
    maker.get("u");
    let mut history = maker.done();
    history.calls[happened].outcome = Outcome::Unknown("unavailable".into());
    let (client, began, ended) = (2, 1, 2);
    history.calls.push(Call {
        client,
        began,
        ended,
        request: Request::Put(Put {
            key: "never".into(),
            value: "n1".into(),
            ..Put::default()
        }),
        outcome: Outcome::Unknown("unavailable".into()),
    });
    clean(&history);
}

#[test]
fn a_write_nobody_asked_for_has_no_origin() {
    let mut maker = good();
    let place = maker.put("u", "u1");
    let mut history = maker.done();
    history.calls.remove(place);
    finds_only(&history, Guarantee::WriteOrigin);
}

#[test]
fn a_write_done_twice_has_no_origin_the_second_time() {
    let mut maker = good();
    maker.put("u", "u1");
    let place = maker.put("u", "u1");
    let mut history = maker.done();
    history.calls[place - 1].outcome = Outcome::Unknown("unavailable".into());
    history.calls.remove(place);
    finds_only(&history, Guarantee::WriteOrigin);
}

#[test]
fn an_acknowledged_write_that_the_history_lacks_is_found() {
    let mut maker = good();
    let events = maker.events.clone();
    maker.put("lost", "l1");
    maker.events = events;
    let mut history = maker.done();
    history.watches[0].owed_until = 0;
    finds_only(&history, Guarantee::AcknowledgedWrites);
}

#[test]
fn an_acknowledged_write_that_became_another_is_found() {
    let mut history = good().done();
    let request = &mut history.calls[1].request;
    let Request::Put(put) = request else { panic!() };
    put.value = "9".into();
    finds(&history, Guarantee::AcknowledgedWrites);
}

#[test]
fn a_revision_given_twice_is_found() {
    let mut maker = good();
    let place = maker.put("x", "x1");
    let mut history = maker.done();
    let mut again = history.calls[place].clone();
    again.request = Request::Put(Put {
        key: "y".into(),
        value: "y1".into(),
        ..Put::default()
    });
    history.calls.push(again);
    finds(&history, Guarantee::RevisionUnique);
    finds(&history, Guarantee::AcknowledgedWrites);
}

#[test]
fn a_write_answered_with_its_batchs_last_revision_is_found() {
    let mut history = good().done();
    reply(&mut history, 1).revision = 4;
    finds(&history, Guarantee::OwnRevision);
}

#[test]
fn a_revision_that_nothing_took_is_found() {
    let mut maker = good();
    let revision = maker.model.revision() + 1;
    maker.model.apply(revision, &[]);
    maker.put("after", "x");
    finds_only(&maker.done(), Guarantee::Dense);
    let mut maker = good();
    let place = maker.get("a");
    let mut history = maker.done();
    reply(&mut history, place).revision += 1;
    finds(&history, Guarantee::Dense);
}

#[test]
fn wrong_answers_are_found() {
    let mut maker = good();
    let place = maker.get("a");
    let mut history = maker.done();
    let Answer::Range { kvs, .. } = &mut reply(&mut history, place).answer else {
        panic!()
    };
    kvs[0].version += 1;
    finds_only(&history, Guarantee::Responses);

    let mut history = good().done();
    let Answer::Txn { succeeded, .. } = &mut reply(&mut history, 7).answer else {
        panic!()
    };
    *succeeded = true;
    finds_only(&history, Guarantee::Responses);
}

#[test]
fn wrong_counts_limits_and_more_are_found() {
    let damage: [fn(&mut Vec<Kv>, &mut i64, &mut bool); 3] = [
        |_, count, _| *count = 1,
        |_, _, more| *more = false,
        |kvs, _, _| kvs.clear(),
    ];
    for damage in damage {
        let mut history = good().done();
        let Answer::Range { kvs, count, more } = &mut reply(&mut history, 6).answer else {
            panic!()
        };
        damage(kvs, count, more);
        finds_only(&history, Guarantee::Paging);
    }
}

#[test]
fn refusals_without_a_reason_are_found() {
    for (code, text) in [
        (11, "required revision has been compacted"),
        (3, COMPACTED),
        (
            11,
            "etcdserver: mvcc: required revision is a future revision",
        ),
        (5, LEASE_NOT_FOUND),
    ] {
        let mut maker = good();
        maker.refused(read("a", "", 3, 0), code, text);
        finds(&maker.done(), Guarantee::Refusals);
    }
}

#[test]
fn a_stale_read_is_found_and_over_a_restart_it_is_named_so() {
    let mut maker = good();
    let (_, stale) = maker.model.run(&read("a", "", 0, 0)).unwrap();
    let revision = maker.model.revision();
    maker.put("a", "new");
    let place = maker.get("a");
    let at = maker.now - 1_000_000;
    let mut history = maker.done();
    let answer = stale;
    *reply(&mut history, place) = Reply { revision, answer };
    finds_only(&history, Guarantee::RealTime);
    history.restarts.push(at);
    finds_only(&history, Guarantee::RestartRevision);
}

#[test]
fn a_lease_that_ends_in_two_revisions_is_found() {
    let mut maker = good();
    maker.grant(7, 2);
    maker.put_on("l1", "x1", 7);
    maker.put_on("l2", "x2", 7);
    maker.now += 2 * SECOND;
    for key in ["l1", "l2"] {
        let delete = Request::Delete(Delete {
            key: key.into(),
            ..Delete::default()
        });
        let (events, _) = maker.model.run(&delete).unwrap();
        maker.advance(&events);
    }
    finds_only(&maker.done(), Guarantee::LeaseAtomic);
}

#[test]
fn a_key_that_goes_with_its_former_lease_is_found() {
    let mut maker = good();
    maker.grant(7, 2);
    maker.put_on("l1", "x1", 7);
    maker.put_on("l2", "x2", 7);
    maker.put_on("l1", "x3", 0);
    maker.now += 2 * SECOND;
    let delete = Request::Delete(Delete {
        key: "l1".into(),
        end: "l3".into(),
        ..Delete::default()
    });
    let (events, _) = maker.model.run(&delete).unwrap();
    maker.advance(&events);
    finds_only(&maker.done(), Guarantee::LeaseDetach);
}

#[test]
fn a_lease_that_ends_early_is_found() {
    let mut maker = good();
    maker.grant(7, 2);
    maker.put_on("l1", "x1", 7);
    maker.expire(7, SECOND);
    finds_only(&maker.done(), Guarantee::LeaseEarly);

    let mut maker = good();
    maker.grant(7, 2);
    maker.refused(Request::Revoke { id: 7 }, 5, LEASE_NOT_FOUND);
    finds_only(&maker.done(), Guarantee::LeaseEarly);
}

#[test]
fn a_lease_that_never_ends_is_found() {
    let mut maker = good();
    maker.grant(7, 2);
    maker.put_on("l1", "x1", 7);
    maker.now += 60 * SECOND;
    finds_only(&maker.done(), Guarantee::LeaseEnds);
}

#[test]
fn a_lease_that_a_restart_forgot_is_found() {
    let mut maker = good();
    maker.grant(7, 60);
    let at = maker.tick();
    maker.history.restarts.push(at);
    let revision = maker.model.revision();
    let answer = Answer::Left { ttl: -1 };
    maker.push(
        Request::TimeToLive { id: 7 },
        Outcome::Answered(Reply { revision, answer }),
    );
    finds_only(&maker.done(), Guarantee::LeaseSurvives);
}

#[test]
fn a_floor_that_went_back_is_found() {
    let mut maker = good();
    maker.compact(5);
    maker.ask(read("c", "", 5, 0));
    let place = maker.ask(read("zz", "", 0, 0));
    let mut history = maker.done();
    history.calls[place].request = read("zz", "", 3, 0);
    finds_only(&history, Guarantee::CompactionFloor);
}

#[test]
fn a_read_refused_above_the_floor_is_found() {
    let mut maker = good();
    maker.compact(5);
    maker.refused(read("a", "", 5, 0), 11, COMPACTED);
    finds_only(&maker.done(), Guarantee::CompactionFloor);
}

/// A history with a second watch that is told the recorder's responses, changed.
fn watched(change: impl FnOnce(&mut WatchLog)) -> History {
    let mut history = good().done();
    let mut log = history.watches[0].clone();
    log.is_recorder = false;
    change(&mut log);
    history.watches.push(log);
    history
}

#[test]
fn a_second_watch_of_the_same_is_clean() {
    clean(&watched(|_| {}));
    clean(&watched(|log| {
        log.key = "b".into();
        log.end = "c".into();
        log.responses
            .iter_mut()
            .for_each(|one| one.events.retain(|e| e.kv.key == "b"));
        log.responses
            .retain(|one| one.created || !one.events.is_empty());
        log.responses.push(progress(7));
    }));
}

#[test]
fn watches_that_break_a_guarantee_are_found() {
    type Change = fn(&mut WatchLog);
    let cases: [(Guarantee, Change); 15] = [
        (Guarantee::WatchOrdered, |log| log.responses.swap(2, 3)),
        (Guarantee::WatchOrdered, |log| {
            log.responses[5].events.swap(0, 1)
        }),
        (Guarantee::WatchUnique, |log| {
            let again = log.responses[3].clone();
            log.responses.insert(4, again);
        }),
        (Guarantee::WatchAtomic, |log| {
            let mut rest = log.responses[5].clone();
            rest.events.remove(0);
            log.responses[5].events.truncate(1);
            log.responses.insert(6, rest);
        }),
        (Guarantee::WatchReliable, |log| {
            drop(log.responses.remove(3))
        }),
        (Guarantee::WatchReliable, |log| drop(log.responses.pop())),
        (Guarantee::WatchReliable, |log| {
            log.responses[3].events[0].kv.value = "never put".into();
        }),
        (Guarantee::WatchResumable, |log| {
            drop(log.responses.remove(1))
        }),
        (Guarantee::WatchResumable, |log| log.start = 3),
        (Guarantee::WatchBookmarkable, |log| {
            log.responses.insert(3, progress(5));
        }),
        (Guarantee::WatchBookmarkable, |log| {
            log.responses.push(progress(8))
        }),
        (Guarantee::WatchFilter, |log| log.end = "b".into()),
        (Guarantee::WatchPrevKv, |log| {
            log.responses[4].events[0].prev = None
        }),
        (Guarantee::WatchPrevKv, |log| log.prev_kv = false),
        (Guarantee::WatchCreate, |log| {
            let kv = &mut log.responses[4].events[0].kv;
            (kv.create, kv.version) = (kv.modified, 1);
        }),
    ];
    for (guarantee, change) in cases {
        finds(&watched(change), guarantee);
    }
}

#[test]
fn a_watch_on_the_future_is_told_nothing_before() {
    let history = watched(|log| {
        log.start = 6;
        log.responses.insert(1, progress(5));
        log.responses
            .retain(|one| one.created || one.events.iter().all(|e| e.kv.modified >= 6));
    });
    finds_only(&history, Guarantee::WatchBookmarkable);
}

#[test]
fn a_watch_canceled_for_a_compaction_nobody_asked_for_is_found() {
    let history = watched(|log| {
        log.responses.truncate(2);
        log.owed_until = 0;
        log.responses.push(WatchResponse {
            canceled: true,
            compact_revision: 5,
            at: u64::MAX,
            ..WatchResponse::default()
        });
    });
    finds_only(&history, Guarantee::CompactionFloor);
}
