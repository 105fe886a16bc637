//! Makes whole revisions of a watch's answers.
//!
//! A large revision may come in parts; all but the last are marked. A revision is handed on when it
//! is complete, and it must be the one after the revision before: a gap would be a write lost.
//!
//! Where a revision changes a key more than once (etcd lets two shapes of transactions do that) the
//! last change is the one that counts: nobody could ever read the others.

use std::collections::HashMap;

use bytes::Bytes;
use sluice_metastore::etcd::client::etcdserverpb::WatchResponse;
use sluice_metastore::etcd::client::mvccpb::Event;
use sluice_metastore::etcd::client::mvccpb::event::EventType;
use sluice_metastore::events::Change;
use sluice_metastore::{LeaseId, Record, Revision};

use super::MigrateError;
use super::error::shown;

/// Events that are not a whole revision yet.
#[derive(Debug, Default)]
pub(super) struct Group {
    pending: Vec<Event>,
}

impl Group {
    /// Takes an answer; hands on the changes of all revisions that are whole now, which follow
    /// `last`.
    pub(super) fn take(
        &mut self,
        answer: WatchResponse,
        last: Revision,
    ) -> Result<Vec<Change>, MigrateError> {
        self.pending.extend(answer.events);
        let newest = self.pending.last().map_or(0, revision);
        let whole = if answer.fragment {
            self.pending
                .partition_point(|event| revision(event) < newest)
        } else {
            self.pending.len()
        };
        let events: Vec<Event> = self.pending.drain(..whole).collect();
        let mut changes = Vec::with_capacity(events.len());
        let mut last = last.to_wire();
        for events in events.chunk_by(|one, two| revision(one) == revision(two)) {
            let at = events.first().map_or(0, revision);
            if at != last + 1 {
                return Err(MigrateError::Unfit(format!(
                    "the source's watch went from revision {last} to {at}, so a write is missing \
                     between them; begin the move anew"
                )));
            }
            last = at;
            put_changes(&mut changes, events, at)?;
        }
        Ok(changes)
    }
}

fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

/// Appends what one revision came to.
fn put_changes(changes: &mut Vec<Change>, events: &[Event], at: i64) -> Result<(), MigrateError> {
    let mut newest: HashMap<&Bytes, usize> = HashMap::new();
    let mut born: HashMap<&Bytes, bool> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        if let Some(kv) = &event.kv {
            newest.insert(&kv.key, place);
            // Whether the key was there before is told by its first change.
            born.entry(&kv.key).or_insert(kv.create_revision == at);
        }
    }
    let before = changes.len();
    for (place, event) in events.iter().enumerate() {
        let Some(kv) = event
            .kv
            .as_ref()
            .filter(|kv| newest.get(&kv.key) == Some(&place))
        else {
            continue;
        };
        let number = |field: i64| u64::try_from(field).unwrap_or(0);
        let is_delete = event.r#type() == EventType::Delete;
        if is_delete && born.get(&kv.key) == Some(&true) {
            continue;
        }
        changes.push(if is_delete {
            Change::Delete {
                key: kv.key.clone(),
                revision: Revision::new(number(at)),
            }
        } else {
            Change::Put(Record::new(
                &kv.key,
                &kv.value,
                Revision::new(number(kv.create_revision)),
                Revision::new(number(at)),
                number(kv.version),
                LeaseId(kv.lease),
            ))
        });
    }
    if changes.len() == before {
        let key = events.first().and_then(|event| event.kv.as_ref());
        let key = key.map_or_else(String::new, |kv| shown(&kv.key));
        return Err(MigrateError::Unfit(format!(
            "the source's revision {at} put {key} and deleted it again and did nothing else, which \
             a store whose revisions each change something cannot hold; begin the move anew"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sluice_metastore::etcd::client::mvccpb::KeyValue;

    use super::*;

    fn event(key: &'static str, at: i64, create: i64, kind: EventType) -> Event {
        Event {
            r#type: kind.into(),
            kv: Some(KeyValue {
                key: Bytes::from(key),
                mod_revision: at,
                create_revision: create,
                version: 1,
                ..KeyValue::default()
            }),
            prev_kv: None,
        }
    }

    fn put(key: &'static str, at: i64) -> Event {
        event(key, at, at, EventType::Put)
    }

    fn delete(key: &'static str, at: i64) -> Event {
        event(key, at, 0, EventType::Delete)
    }

    fn answer(events: Vec<Event>, fragment: bool) -> WatchResponse {
        WatchResponse {
            events,
            fragment,
            ..WatchResponse::default()
        }
    }

    fn taken(group: &mut Group, given: WatchResponse, last: u64) -> Vec<(u64, String)> {
        let changes = group.take(given, Revision::new(last)).unwrap();
        let told = changes.iter().map(|change| {
            let kind = match change {
                Change::Put(_) => "put",
                Change::Delete { .. } => "delete",
            };
            let key = shown(change.key());
            (change.revision().get(), format!("{kind} {key}"))
        });
        told.collect()
    }

    #[test]
    fn a_revision_in_parts_is_handed_on_whole() {
        let mut group = Group::default();
        let first = taken(&mut group, answer(vec![put("a", 5), put("b", 6)], true), 4);
        assert_eq!(first, [(5, "put a".to_owned())]);
        let second = taken(&mut group, answer(vec![delete("c", 6)], false), 5);
        assert_eq!(
            second,
            [(6, "put b".to_owned()), (6, "delete c".to_owned())]
        );
    }

    #[test]
    fn a_gap_is_refused() {
        let mut group = Group::default();
        let error = group.take(answer(vec![put("a", 7)], false), Revision::new(5));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("from revision 5 to 7")
        );
    }

    #[test]
    fn of_many_changes_of_a_key_in_one_revision_the_last_counts() {
        let mut group = Group::default();
        let events = vec![
            event("a", 5, 3, EventType::Put),
            delete("a", 5),
            put("b", 5),
            delete("b", 5),
            delete("c", 5),
            put("c", 5),
        ];
        let told = taken(&mut group, answer(events, false), 4);
        assert_eq!(told, [(5, "delete a".to_owned()), (5, "put c".to_owned())]);
        let error = group.take(
            answer(vec![put("d", 6), delete("d", 6)], false),
            Revision::new(5),
        );
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("put d and deleted it")
        );
    }
}
