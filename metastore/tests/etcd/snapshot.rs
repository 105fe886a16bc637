//! Snapshots over the wire: one revision, whole, at the client's pace.

use pb::maintenance_client::MaintenanceClient;
use sluice_metastore::backup::{Contents, HashCheck};
use sluice_metastore::etcd::client::etcdserverpb as pb;
use tonic::{Code, Status, Streaming};

use super::fixture::*;

type Pieces = Streaming<pb::SnapshotResponse>;

/// More than a connection buffers for a client that does not read.
const VALUES: usize = 40;
const VALUE_BYTES: usize = 200_000;

async fn filled() -> Member {
    let member = Member::start().await;
    for number in 0..VALUES {
        let value = "v".repeat(VALUE_BYTES + number);
        member.put(&format!("/k/{number:03}"), &value).await;
    }
    member
}

async fn open(member: &Member) -> Result<Pieces, Status> {
    // A connection of its own: an unread stream takes all of one's window.
    let mut maintenance = MaintenanceClient::new(connect(member.address).await);
    let opened = maintenance.snapshot(pb::SnapshotRequest {}).await?;
    Ok(opened.into_inner())
}

/// Reads to the end; answers the bytes and the revision told.
async fn drain(mut pieces: Pieces) -> (Vec<u8>, i64) {
    let (mut bytes, mut revision, mut last) = (Vec::new(), 0, None);
    while let Some(piece) = pieces.message().await.unwrap() {
        assert_eq!(piece.version, "3.6.0");
        bytes.extend_from_slice(&piece.blob);
        revision = piece.header.unwrap().revision;
        if piece.blob.len() != 32 {
            let left = piece.remaining_bytes;
            assert!(last.is_none_or(|last| left < last), "{left} after {last:?}");
            last = Some(left);
        }
    }
    assert_eq!(last, Some(0), "all that was announced came");
    (bytes, revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_late_gets_the_revision_it_asked_at() {
    let member = filled().await;
    let pieces = open(&member).await.unwrap();
    // Held up by the client alone: writes go on, and come to nothing of it.
    for number in 0..VALUES {
        member.put(&format!("/k/{number:03}"), "later").await;
    }
    let (bytes, revision) = drain(pieces).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.db");
    std::fs::write(&file, bytes).unwrap();
    let contents = Contents::read(&file, HashCheck::Wanted, &mut |_, _| {}).unwrap();
    let summary = contents.summary();
    assert_eq!(summary.revision.to_wire(), revision);
    let now = member.put("/end", "").await;
    assert!(revision < now && summary.total_keys == VALUES as u64);
    assert!(summary.total_size > (VALUES * VALUE_BYTES) as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_at_once_are_bounded_and_room_comes_back() {
    let member = filled().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut pieces = open(&member).await.unwrap();
        pieces.message().await.unwrap().unwrap();
        held.push(pieces);
    }
    let refused = open(&member).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    drop(held.pop());
    let mut tries = 0;
    while open(&member).await.is_err() {
        tries += 1;
        assert!(tries < 1000, "the room of one that left did not come back");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_does_not_wait_for_a_snapshot() {
    let member = filled().await;
    let mut pieces = open(&member).await.unwrap();
    pieces.message().await.unwrap().unwrap();
    member.shutdown.cancel();
    let ended = tokio::time::timeout(PATIENCE, async {
        loop {
            match pieces.message().await {
                Ok(Some(piece)) => assert_ne!(piece.blob.len(), 32, "the end came first"),
                Ok(None) => panic!("taken for whole"),
                Err(status) => return status,
            }
        }
    });
    let status = ended.await.unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
