//! A snapshot out of a live etcd or Sluice, piece by piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::Status;

use super::remote::Remote;
use super::report::Report;
use super::{Access, MigrateError};

/// How long no piece may come before the server counts as gone.
const STALL: Duration = Duration::from_secs(60);
const CALL: &str = "send a snapshot";

/// Fetches a snapshot of now; `each` gets the pieces in order, with how many bytes of the database
/// are still to come, and may end it.
///
/// # Errors
/// When the server cannot be reached or ends early; what `each` answered.
pub async fn fetch_snapshot<E: From<MigrateError>>(
    access: &Access,
    report: Arc<dyn Report>,
    each: &mut dyn FnMut(Bytes, u64) -> Result<(), E>,
) -> Result<(), E> {
    let (remote, _) = Remote::connect(access, "server", report).await?;
    let mut pieces = remote.snapshot().await?;
    loop {
        let piece = tokio::time::timeout(STALL, pieces.message()).await;
        let piece = piece.unwrap_or_else(|_elapsed| {
            let text = format!("nothing came for {STALL:?}");
            Err(Status::unavailable(text))
        });
        match piece {
            Ok(Some(piece)) => each(piece.blob, piece.remaining_bytes)?,
            Ok(None) => return Ok(()),
            Err(status) => return Err(remote.broke_off(CALL, &status).await.into()),
        }
    }
}
