//! Every answer against the model at the answer's revision.

use std::collections::BTreeMap;

use super::guarantee::{Guarantee, Report};
use super::ledger::Ledger;
use super::model::Model;
use super::record::{Answer, Call, History, Request};

pub(super) fn check(history: &History, ledger: &Ledger, report: &mut Report) {
    let mut due: BTreeMap<i64, Vec<&Call>> = BTreeMap::new();
    for (place, call) in history.calls.iter().enumerate() {
        if let Some(at) = stands_at(place, call, ledger) {
            due.entry(at).or_default().push(call);
        }
    }
    let mut model = Model::default();
    let mut entries = ledger.entries.iter().peekable();
    for (at, calls) in due {
        while let Some(entry) = entries.next_if(|entry| entry.revision <= at) {
            model.apply(entry.revision, &entry.events);
        }
        if at != model.revision() {
            let last = ledger.last();
            for call in calls {
                let what = format!("{call}: the history ends at {last}");
                let is_ahead = at > last;
                report.add(
                    if is_ahead {
                        Guarantee::Dense
                    } else {
                        Guarantee::Responses
                    },
                    what,
                );
            }
            continue;
        }
        for call in calls {
            judge(&model, call, report);
        }
    }
}

/// The revision of the state that a call was answered from; `None` when no model can tell.
fn stands_at(place: usize, call: &Call, ledger: &Ledger) -> Option<i64> {
    let reply = call.reply()?;
    match &call.request {
        Request::Range(range) if range.revision > 0 => Some(range.revision),
        Request::Range(_) => Some(reply.revision),
        Request::Put(_) | Request::Delete(_) | Request::Txn(_) => {
            if reply.answer.is_effective() {
                // Those that are accounted for nowhere were spoken of already.
                ledger.homes.get(&place).map(|home| home - 1)
            } else {
                Some(reply.revision)
            }
        }
        _ => None,
    }
}

fn judge(model: &Model, call: &Call, report: &mut Report) {
    let Some(reply) = call.reply() else { return };
    let at = model.revision();
    let Some((_, expected)) = model.run(&call.request) else {
        let what = format!("{call}: on the state at {at} it is refused");
        report.add(Guarantee::Responses, what);
        return;
    };
    if let Some(guarantee) = differs(&expected, &reply.answer) {
        let what = format!("{call}: on the state at {at} the answer is {expected:?}");
        report.add(guarantee, what);
    }
}

/// What a wrong answer breaks.
fn differs(expected: &Answer, got: &Answer) -> Option<Guarantee> {
    match (expected, got) {
        (
            Answer::Range { kvs, count, more },
            Answer::Range {
                kvs: got,
                count: got_count,
                more: got_more,
            },
        ) => {
            if count != got_count || more != got_more || kvs.len() != got.len() {
                return Some(if kvs.iter().zip(got).all(|(one, two)| one == two) {
                    Guarantee::Paging
                } else {
                    Guarantee::Responses
                });
            }
            (kvs != got).then_some(Guarantee::Responses)
        }
        (
            Answer::Txn { succeeded, answers },
            Answer::Txn {
                succeeded: got_succeeded,
                answers: got,
            },
        ) => {
            if succeeded != got_succeeded || answers.len() != got.len() {
                return Some(Guarantee::Responses);
            }
            let mut pairs = answers.iter().zip(got);
            pairs.find_map(|(expected, got)| differs(expected, got))
        }
        (expected, got) => (expected != got).then_some(Guarantee::Responses),
    }
}
