//! Objects that go by themselves: core events, an hour after they were last written.
//!
//! Each hangs on a lease of the store. A lease is shared by what is written within a minute, up to
//! a bound, as a kube-apiserver shares them: a storm of events makes few leases, and the end of one
//! deletes a bounded number of objects at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_metastore::{LeaseId, Store};

use super::prepare;
use crate::api::errors;
use crate::api::resource::ResourceKind;
use crate::clock;
use crate::status::Refusal;

/// How long an event lives: a kube-apiserver's default.
const EVENT_TTL: Duration = Duration::from_secs(3600);
/// How long a lease is handed out, and so how much longer than asked an object may live.
const SHARED_FOR: Duration = Duration::from_secs(60);
/// Objects on one lease: what one revision deletes when it ends.
const SHARED_BY_MAX: usize = 1000;

/// The lease being handed out; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    current: Arc<Mutex<Option<Current>>>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    id: LeaseId,
    granted: Instant,
    n_objects: usize,
}

impl Leases {
    /// The lease for an object of a kind; [`LeaseId::NONE`] for kinds whose objects stay.
    pub(super) async fn of(&self, kind: &ResourceKind, store: &Store) -> Result<LeaseId, Refusal> {
        if !prepare::is(kind, "", "events") {
            return Ok(LeaseId::NONE);
        }
        let now = clock::now();
        if let Some(id) = self.take(now) {
            return Ok(id);
        }
        // Two at once may each be granted one; the other's is used once and ends like any other.
        let granted = store
            .lease_grant(LeaseId::NONE, EVENT_TTL + SHARED_FOR)
            .await;
        let (id, _) = granted.map_err(|e| errors::from_store(&e))?;
        *self.current.lock() = Some(Current {
            id,
            granted: now,
            n_objects: 1,
        });
        Ok(id)
    }

    fn take(&self, now: Instant) -> Option<LeaseId> {
        let mut current = self.current.lock();
        let lease = current.as_mut()?;
        let is_fresh = now.saturating_duration_since(lease.granted) < SHARED_FOR;
        if !is_fresh || lease.n_objects >= SHARED_BY_MAX {
            return None;
        }
        lease.n_objects += 1;
        Some(lease.id)
    }
}
