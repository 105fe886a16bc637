//! Messages in gRPC's frames, and answers to unary calls over HTTP/2.
//!
//! A good answer is a head, one frame, and a status behind it; a refusal is a head alone.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use prost::Message;
use tonic::{Code, Status};

use super::bridge;
use crate::etcd::admission::Room;
use crate::etcd::gate::Counted;

/// A piece of a large answer: what a connection holds for a stream whose client does not read.
const PIECE_BYTES: usize = 64 * 1024;
/// How often a client that does not read is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long an answer may take whatever its size, while others wait for room.
const GRACE: Duration = Duration::from_secs(10);
/// Bytes of it a second that its client must take beyond that: a megabit.
const RATE_MIN: usize = 128 * 1024;

/// One byte for "compressed", four for the length.
pub(super) const FRAME_HEAD: usize = 5;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// Lays one message into a frame, in one allocation.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + length);
    frame.put_u8(0);
    // Messages are far below four gibibytes: what an answer may hold is bounded before it is built.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    frame.freeze()
}

/// The one message of a body that holds exactly one plain frame; `None` for all else.
pub(super) fn unframed(body: &Bytes) -> Option<Bytes> {
    let (head, message) = body.split_at_checked(FRAME_HEAD)?;
    let [0, length @ ..] = head else { return None };
    let length = u32::from_be_bytes(<[u8; 4]>::try_from(length).ok()?);
    (usize::try_from(length) == Ok(message.len())).then(|| body.slice(FRAME_HEAD..))
}

/// The head of every good answer.
pub(super) fn head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    head
}

/// What stands behind a good answer.
pub(super) fn ending() -> HeaderMap {
    let mut ending = HeaderMap::with_capacity(1);
    ending.insert(GRPC_STATUS, OK);
    ending
}

/// Whoever waits for the answer to a call.
pub(super) struct Caller {
    pub(super) respond: SendResponse<Bytes>,
    /// `None` for what is no call.
    pub(super) counted: Option<Counted>,
}

impl Caller {
    /// Counts how the call ended.
    pub(super) fn ended(&mut self, code: Code) {
        if let Some(counted) = &mut self.counted {
            counted.ended(code);
        }
    }
}

/// Sends a framed message and a good status. A caller that went away is no fault of ours.
pub(super) fn send(caller: &mut Caller, frame: Bytes) {
    caller.ended(Code::Ok);
    let sent = caller
        .respond
        .send_response(head(), false)
        .and_then(|mut body| {
            body.send_data(frame, false)?;
            body.send_trailers(ending())
        });
    if let Err(error) = sent {
        tracing::trace!(%error, "nobody waits for an answer any more");
    }
}

/// Sends a framed message that took room, as its client takes it. While others wait for room, a
/// client that takes too little loses its answer: so an overload by clients that do not read ends.
pub(super) async fn send_large(caller: &mut Caller, frame: Bytes, room: &Room) {
    match caller.respond.send_response(head(), false) {
        Ok(mut stream) => match send_pieces(&mut stream, frame, room).await {
            Ok(true) => {
                caller.ended(Code::Ok);
                if let Err(error) = stream.send_trailers(ending()) {
                    tracing::trace!(%error, "nobody waits for an answer any more");
                }
            }
            Ok(false) => {
                tracing::info!("an etcd client did not read its answer while others waited");
                stream.send_reset(Reason::CANCEL);
            }
            Err(error) => tracing::trace!(%error, "nobody waits for an answer any more"),
        },
        Err(error) => tracing::trace!(%error, "nobody waits for an answer any more"),
    }
}

/// Sends bytes in pieces of their own, so that what waits in the connection holds no room; `false`
/// when their client takes too little and others wait.
pub(super) async fn send_pieces(
    stream: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    room: &Room,
) -> Result<bool, h2::Error> {
    let begun = Instant::now();
    let mut sent = 0;
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        sent += piece.len();
        let piece = Bytes::copy_from_slice(&piece);
        let mut sending = pin!(bridge::send_piece(stream, piece, false));
        loop {
            match tokio::time::timeout(LOOK_EVERY, sending.as_mut()).await {
                Ok(done) => break done?,
                Err(_elapsed) => {
                    let allowed = GRACE + Duration::from_secs((sent / RATE_MIN) as u64);
                    if room.is_wanted() && begun.elapsed() > allowed {
                        return Ok(false);
                    }
                }
            }
        }
    }
    Ok(true)
}

/// Refuses a call.
pub(super) fn refuse(caller: &mut Caller, status: Status) {
    caller.ended(status.code());
    let (parts, ()) = status.into_http::<()>().into_parts();
    let head = Response::from_parts(parts, ());
    if let Err(error) = caller.respond.send_response(head, true) {
        tracing::trace!(%error, "nobody waits for a refusal any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::client::etcdserverpb as pb;

    #[test]
    fn a_frame_is_read_back_and_a_broken_one_is_not() {
        let message = pb::RangeRequest {
            key: Bytes::from_static(b"/k"),
            ..Default::default()
        };
        let frame = framed(&message);
        let read = unframed(&frame).map(pb::RangeRequest::decode);
        assert_eq!(read, Some(Ok(message)));
        for length in 0..frame.len() {
            assert_eq!(unframed(&frame.slice(..length)), None, "{length} bytes");
        }
        let mut compressed = BytesMut::from(frame.as_ref());
        compressed[0] = 1;
        assert_eq!(unframed(&compressed.freeze()), None);
        let two = [frame.as_ref(), frame.as_ref()].concat();
        assert_eq!(unframed(&Bytes::from(two)), None);
        assert_eq!(
            unframed(&framed(&pb::RangeRequest::default())),
            Some(Bytes::new())
        );
    }
}
