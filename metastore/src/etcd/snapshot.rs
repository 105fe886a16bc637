//! `Snapshot`: the whole store at one revision, as a stream.
//!
//! A thread makes the pieces and waits for the client to take them; what the wire does not take is
//! not made. The pinned revision is a value, so writes go on beside it, yet it keeps alive what they
//! supersede: a client that has stopped reading is let go.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{OwnedPermit, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::errors;
use super::proto::etcdserverpb as pb;
use super::shared::Shared;
use crate::Error;
use crate::backup::Snapshot;

/// Snapshots that are under way at once. Each holds a thread and a revision; an operator takes one,
/// and a schedule of somebody else's perhaps another.
const SNAPSHOTS_MAX: usize = 4;
/// Pieces made ahead of what the connection takes.
const PIECES_AHEAD: usize = 2;
/// How long a client may take no piece before it counts as gone.
const STALL: Duration = Duration::from_secs(60);

/// The answer's stream.
pub(crate) type Pieces = ReceiverStream<Result<pb::SnapshotResponse, Status>>;

/// Where snapshots are admitted.
#[derive(Debug)]
pub(crate) struct Desk(Arc<Semaphore>);

impl Default for Desk {
    fn default() -> Self {
        Desk(Arc::new(Semaphore::new(SNAPSHOTS_MAX)))
    }
}

/// Begins a snapshot of now.
pub(crate) fn stream(shared: &Arc<Shared>) -> Result<Pieces, Status> {
    let permit = Arc::clone(&shared.snapshots.0).try_acquire_owned();
    let permit = permit.map_err(|_none_left| errors::too_many_requests())?;
    let (pieces, stream) = channel(PIECES_AHEAD + 1);
    // A stream that just ends would pass for a whole one: there is always room to say why.
    let ending = pieces.clone().try_reserve_owned();
    let ending = ending.map_err(|_new_and_full| errors::too_many_requests())?;
    let shared = Arc::clone(shared);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || send(&shared, &pieces, ending, &runtime, permit));
    Ok(ReceiverStream::new(stream))
}

/// Why no more pieces are made.
enum End {
    /// Nobody is there to hear why.
    Gone,
    Told(Status),
}

fn send(
    shared: &Shared,
    pieces: &Sender<Result<pb::SnapshotResponse, Status>>,
    ending: OwnedPermit<Result<pb::SnapshotResponse, Status>>,
    runtime: &Handle,
    _permit: OwnedSemaphorePermit,
) {
    let mut end = None;
    let outcome = Snapshot::take(&shared.store).and_then(|snapshot| {
        let revision = snapshot.revision();
        tracing::info!(%revision, bytes = snapshot.bytes(), "a snapshot is sent");
        snapshot.write(&mut |piece, left| {
            let message = message(shared, &snapshot, piece, left);
            runtime
                .block_on(give(shared, pieces, message))
                .map_err(|why| {
                    end = Some(why);
                    // Stops the writer; `end` says why.
                    Error::Overloaded
                })
        })
    });
    let told = match (outcome, end) {
        (Ok(()), _) | (_, Some(End::Gone)) => return,
        (_, Some(End::Told(status))) => status,
        (Err(error), None) => {
            tracing::warn!(%error, "a snapshot ended early");
            errors::status(&error)
        }
    };
    ending.send(Err(told));
}

fn message(shared: &Shared, of: &Snapshot, piece: Bytes, left: u64) -> pb::SnapshotResponse {
    pb::SnapshotResponse {
        header: shared.header(of.revision()),
        remaining_bytes: left,
        blob: piece,
        version: Snapshot::VERSION.to_owned(),
    }
}

async fn give(
    shared: &Shared,
    pieces: &Sender<Result<pb::SnapshotResponse, Status>>,
    message: pb::SnapshotResponse,
) -> Result<(), End> {
    tokio::select! {
        biased;
        // First: an end must not wait for a client.
        () = shared.stopping.cancelled() => Err(End::Told(errors::stopped())),
        sent = tokio::time::timeout(STALL, pieces.send(Ok(message))) => match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_closed)) => Err(End::Gone),
            Err(_elapsed) => Err(End::Told(errors::too_many_requests())),
        },
    }
}
