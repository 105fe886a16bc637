//! Leases of a source, with what is left of them.
//!
//! A time to live counts down at the source while it is carried over; the other side counts on from
//! what was left, so that a key ends when it would have ended. A lease that ended meanwhile is given
//! the least there is, and its keys go as they went at the source.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sluice_metastore::LeaseId;

use super::MigrateError;
use super::remote::Remote;

/// Questions in flight: a source with many leases answers each from memory.
const AT_ONCE: usize = 32;
/// What is left of a lease that ended while its keys were carried over.
pub(super) const ENDED: Duration = Duration::from_secs(1);

/// All leases of a source now.
pub(super) async fn all(source: &Remote) -> Result<Vec<(LeaseId, Duration)>, MigrateError> {
    let ids = source.leases().await?;
    some(source, ids).await
}

/// What is left of these, whether they ended or not.
pub(super) async fn some(
    source: &Remote,
    ids: Vec<i64>,
) -> Result<Vec<(LeaseId, Duration)>, MigrateError> {
    let left = stream::iter(ids).map(|id| async move {
        let left = source.lease_left(id).await?;
        let left = left.and_then(|seconds| u64::try_from(seconds).ok());
        Ok((LeaseId(id), left.map_or(ENDED, Duration::from_secs)))
    });
    left.buffer_unordered(AT_ONCE).try_collect().await
}
