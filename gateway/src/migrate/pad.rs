//! Raises a live etcd's revision by writing a key of ours again and again.
//!
//! A client of kube-apiserver holds resource versions, which are revisions: were they to go back, it
//! would take old objects for new ones. So the target's revision is raised above the source's before
//! the first key is copied, and every copied key is younger than whatever a client knew.

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::MigrateError;
use super::remote::Remote;
use super::report::Report;
use super::target;

/// Writes that are made without asking: seconds on a fast disk, a few minutes on a slow one.
pub(super) const UNASKED: i64 = 100_000;
/// Writes in flight; a server groups those that wait for the same sync.
const AT_ONCE: usize = 64;
/// Writes between two looks at where the target stands.
const ROUND: i64 = 4096;

/// Writes until the target stands at `goal` or above.
///
/// # Errors
/// `Behind` when that takes more writes than are allowed.
pub(super) async fn raise(
    target: &Remote,
    goal: i64,
    is_allowed: bool,
    report: &dyn Report,
) -> Result<(), MigrateError> {
    let begun = target.standing().await?.revision;
    let needed = goal - begun;
    if needed <= 0 {
        return Ok(());
    }
    if needed > UNASKED && !is_allowed {
        return Err(MigrateError::Behind {
            target: begun,
            source_revision: goal,
            needed,
        });
    }
    report.begin(
        "raising the target's revision",
        "writes",
        u64::try_from(needed).ok(),
    );
    let mut at = begun;
    while at < goal {
        let round = (goal - at).min(ROUND);
        let writes = stream::iter(0..round).map(|_| async {
            let value = Bytes::from_static(b"raises the revision");
            target.txn(target::puts(vec![(target::PAD, value)])).await
        });
        writes
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        at = target.standing().await?.revision;
        report.at(u64::try_from(at - begun).unwrap_or(0), 0);
    }
    report.end();
    Ok(())
}
