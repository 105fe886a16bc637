//! Who wants to hear at once that a prefix is up to date.
//!
//! Before a consistent list, kube-apiserver reads the current revision through one key that does
//! not exist, `/registry/<resource>`, and then waits until its watch on `/registry/<resource>/` has
//! caught up; it may ask for progress only every 100 ms. So that read nudges those watches, and
//! each that asked for progress notices gets one when it is caught up. It is the periodic notice,
//! early: legal at any time, and it needs no change of any client.
//!
//! It begins with the first request for progress that anybody makes, which is how a kube-apiserver
//! shows that its lists wait. One that reads lists from the store (`ConsistentListFromCache` off)
//! never asks, and decides by how far its cache is: it gets what etcd would send it.
//!
//! Bounded by the watches that exist: each is in the table once and has at most one nudge pending.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::KeyRange;

/// The table of a listener: resource key without its last slash, to the watches on it.
#[derive(Default)]
pub(crate) struct Nudges {
    by_key: Mutex<HashMap<Bytes, Vec<Entered>>>,
    /// Somebody asked for progress once.
    is_awaited: AtomicBool,
}

/// A watch by its id on its stream, and the stream.
type Entered = (i64, Arc<Nudge>);

/// One watch stream's side: which of its watches were nudged.
#[derive(Default)]
pub(crate) struct Nudge {
    pending: Mutex<Vec<i64>>,
    wake: Notify,
}

impl Nudges {
    /// Somebody asked for progress: from now on it is pushed.
    pub(crate) fn begin(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Nudges the watches on the prefix that `key` names; answers how many.
    pub(crate) fn touch(&self, key: &[u8]) -> usize {
        if !self.is_awaited.load(Ordering::Relaxed) {
            return 0;
        }
        let by_key = self.by_key.lock();
        let Some(watches) = by_key.get(without_slash(key)) else {
            return 0;
        };
        for (id, nudge) in watches {
            nudge.add(*id);
        }
        watches.len()
    }

    /// Enters a watch, if its range is a prefix; [`Nudges::leave`] takes it out again.
    pub(crate) fn enter(&self, range: &KeyRange, id: i64, nudge: &Arc<Nudge>) -> Option<Bytes> {
        let KeyRange::Between(start, _) = range else {
            return None;
        };
        let key = start.slice_ref(without_slash(start));
        let mut by_key = self.by_key.lock();
        by_key
            .entry(key.clone())
            .or_default()
            .push((id, Arc::clone(nudge)));
        Some(key)
    }

    /// Takes a watch out.
    pub(crate) fn leave(&self, key: &Bytes, id: i64, nudge: &Arc<Nudge>) {
        let mut by_key = self.by_key.lock();
        if let Some(watches) = by_key.get_mut(key) {
            watches.retain(|(other, theirs)| *other != id || !Arc::ptr_eq(theirs, nudge));
            if watches.is_empty() {
                by_key.remove(key);
            }
        }
    }
}

impl Nudge {
    /// Nudges one watch of the stream.
    pub(crate) fn add(&self, id: i64) {
        let mut pending = self.pending.lock();
        if !pending.contains(&id) {
            pending.push(id);
        }
        drop(pending);
        self.wake.notify_one();
    }

    /// Waits until a watch of this stream was nudged. Cancel-safe: a nudge stays pending.
    pub(crate) async fn waited(&self) {
        self.wake.notified().await;
    }

    /// The watches nudged since the last call.
    pub(crate) fn take(&self) -> Vec<i64> {
        std::mem::take(&mut *self.pending.lock())
    }
}

fn without_slash(key: &[u8]) -> &[u8] {
    key.strip_suffix(b"/").unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_read_nudges_exactly_the_watches_on_its_prefix() {
        let nudges = Nudges::default();
        let (pods, configs) = (Arc::new(Nudge::default()), Arc::new(Nudge::default()));
        let key = nudges
            .enter(&KeyRange::prefix(b"/registry/pods/"), 3, &pods)
            .expect("a prefix");
        nudges.enter(&KeyRange::prefix(b"/registry/configmaps/"), 3, &configs);
        assert_eq!(nudges.touch(b"/registry/pods"), 0, "nobody asked yet");
        nudges.begin();
        assert_eq!(nudges.touch(b"/registry/pods"), 1);
        assert_eq!(nudges.touch(b"/registry/pods"), 1);
        assert_eq!(nudges.touch(b"/registry/pod"), 0);
        assert_eq!((pods.take(), configs.take()), (vec![3], vec![]));
        nudges.leave(&key, 3, &pods);
        assert_eq!(nudges.touch(b"/registry/pods"), 0);
        assert!(
            nudges.by_key.lock().len() == 1,
            "a prefix without watches is forgotten"
        );
    }

    #[test]
    fn a_watch_on_one_key_is_never_nudged() {
        let nudge = Arc::new(Nudge::default());
        let key = KeyRange::Key(Bytes::from_static(b"/registry/pods"));
        assert_eq!(Nudges::default().enter(&key, 0, &nudge), None);
    }
}
