//! All rows, bounded: a new client's row takes the place of the one that was quiet the longest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::row::Row;
use super::view::ClientView;
use crate::audit::{AdminChange, Event, EventStage, Sink};
use crate::identity::ANONYMOUS;

/// Rows kept: at about 5 KiB each this is 20 MiB, and more than the busy (client, verb, resource)
/// triples of a large cluster, where nodes share their verbs and resources but not their names.
const ROWS_MAX: usize = 4096;

/// Quiet rows forgotten at once when there is no room, so that a flood of new names does not cost
/// a search each.
const EVICTED_AT_ONCE: usize = 256;

/// Bytes kept of a text that a caller chooses, a user agent or a resource that need not exist:
/// more than any true one has, and 4096 rows of it are 1 MiB.
const TEXT_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: Arc<str>,
    verb: Box<str>,
    group: Box<str>,
    resource: Box<str>,
}

#[derive(Default)]
struct Table {
    rows: HashMap<Key, Row, foldhash::quality::RandomState>,
    agents: HashMap<Arc<str>, String, foldhash::quality::RandomState>,
    evicted: u64,
}

/// The profiles; cheap to clone.
#[derive(Clone, Default)]
pub struct Profiles {
    table: Arc<Mutex<Table>>,
}

/// Takes audit events into the profiles.
pub struct ProfileSink(Profiles);

impl Profiles {
    /// No profiles yet.
    #[must_use]
    pub fn new() -> Self {
        Profiles::default()
    }

    /// What takes events into them.
    #[must_use]
    pub fn sink(&self) -> ProfileSink {
        ProfileSink(self.clone())
    }

    /// Rows that were forgotten for want of room.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.table.lock().evicted
    }

    /// Every client, busiest first. `now` is time since the Unix epoch.
    #[must_use]
    pub fn view(&self, now: Duration) -> Vec<ClientView> {
        let table = self.table.lock();
        let mut clients: HashMap<&str, ClientView> = HashMap::new();
        for (key, row) in &table.rows {
            let client = clients.entry(&key.client).or_insert_with(|| ClientView {
                client: key.client.to_string(),
                user_agent: table.agents.get(&key.client).cloned().unwrap_or_default(),
                rate_per_second: 0.0,
                rows: Vec::new(),
            });
            let mut view = row.view(now);
            view.verb = key.verb.to_string();
            view.group = key.group.to_string();
            view.resource = key.resource.to_string();
            client.rate_per_second += view.rate_per_second;
            client.rows.push(view);
        }
        let mut clients: Vec<ClientView> = clients.into_values().collect();
        drop(table);
        for client in &mut clients {
            client
                .rows
                .sort_by(|a, b| b.rate_per_second.total_cmp(&a.rate_per_second));
        }
        clients.sort_by(|a, b| b.rate_per_second.total_cmp(&a.rate_per_second));
        clients
    }

    fn observe(&self, event: &Event) {
        let Some(key) = key(event) else { return };
        let mut table = self.table.lock();
        if let Some(agent) = event.user_agent.as_ref().and_then(|v| v.to_str().ok())
            && let agent = cut(agent)
            && table
                .agents
                .get(&key.client)
                .is_none_or(|known| known != agent)
        {
            table
                .agents
                .insert(Arc::clone(&key.client), agent.to_owned());
        }
        if !table.rows.contains_key(&key) && table.rows.len() >= ROWS_MAX {
            table.evict();
        }
        let now = event.received + event.took;
        table
            .rows
            .entry(key)
            .or_insert_with(|| Row::new(now))
            .observe(event);
    }
}

impl Table {
    /// Forgets the rows that were quiet the longest, and agents of clients without rows.
    fn evict(&mut self) {
        let mut seen: Vec<Duration> = self.rows.values().map(|row| row.last_seen).collect();
        seen.sort_unstable();
        let Some(limit) = seen.get(EVICTED_AT_ONCE).copied() else {
            return;
        };
        let before = self.rows.len();
        self.rows.retain(|_, row| row.last_seen > limit);
        self.evicted += (before - self.rows.len()) as u64;
        let clients: HashSet<&Arc<str>> = self.rows.keys().map(|key| &key.client).collect();
        self.agents.retain(|client, _| clients.contains(client));
    }
}

/// The row an event belongs to; requests that nobody was found to have made have none, and all of
/// anonymous callers one a verb, so that nobody unknown can fill the table.
fn key(event: &Event) -> Option<Key> {
    let user = event.impersonator.as_ref().or(event.user.as_ref())?;
    let info = event.info.as_ref()?;
    let resource: Box<str> = if user.name == ANONYMOUS {
        "*".into()
    } else if !info.is_resource() {
        let first = info
            .path()
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default();
        format!("/{}", cut(first)).into()
    } else if info.subresource().is_empty() {
        cut(info.resource()).into()
    } else {
        format!("{}/{}", cut(info.resource()), cut(info.subresource())).into()
    };
    let group = if user.name == ANONYMOUS {
        ""
    } else {
        info.group()
    };
    Some(Key {
        client: user.name.as_str().into(),
        verb: info.verb().as_str().into(),
        group: cut(group).into(),
        resource,
    })
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_MAX))
        .unwrap_or_default()
}

impl Sink for ProfileSink {
    fn event(&mut self, event: &Event) {
        // A tunnel that has begun is counted when it ends.
        if event.stage == EventStage::Complete {
            self.0.observe(event);
        }
    }

    fn admin(&mut self, _change: &AdminChange) {}

    fn flush(&mut self) {}
}
