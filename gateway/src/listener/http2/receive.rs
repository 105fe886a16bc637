//! What a client says, frame by frame (RFC 9113, sections 5 and 6).
//!
//! A fault of a stream costs the stream and is counted; a fault of the connection ends it. Frames
//! that come for a stream we have reset are looked over, save for what they do to the connection.

use std::time::Instant;

use http::Method;

use super::core::{Block, Core, Event, LEAVING, Leaving, too_large};
use super::date;
use super::head::{Asked, Fields};
use super::streams::Stream;
use super::upload;
use crate::http2::flow::{Allowance, Credit};
use crate::http2::frames::{self, CONTENT_MAX, Fatal, HEAD_BYTES, Head, Reason};
use crate::http2::hpack::BadBlock;
use crate::http2::settings;

/// CONTINUATION frames of one block: a head of the largest size needs four.
const PIECES_MAX: u32 = 6;

impl Core {
    /// Takes what was read.
    pub(super) fn receive(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Fatal> {
        if !self.preface.is_empty() {
            let (now, later) = self.preface.split_at(self.preface.len().min(bytes.len()));
            bytes = bytes
                .strip_prefix(now)
                .ok_or(Fatal::protocol("this is no HTTP/2"))?;
            self.preface = later;
        }
        while !bytes.is_empty() {
            if self.carry.is_empty() {
                let Some((head, content, rest)) = whole(bytes)? else {
                    self.carry.extend_from_slice(bytes);
                    return Ok(());
                };
                bytes = rest;
                self.frame(head, content, now)?;
                continue;
            }
            let wanted = wanted(&self.carry)?.min(bytes.len());
            let (piece, rest) = bytes.split_at(wanted);
            self.carry.extend_from_slice(piece);
            bytes = rest;
            if wanted_more(&self.carry)? {
                continue;
            }
            let carry = std::mem::take(&mut self.carry);
            if let Some((head, content, _)) = whole(&carry)? {
                self.frame(head, content, now)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        if !self.has_settings {
            if head.kind != frames::SETTINGS || head.has(frames::ACK) {
                return Err(Fatal::protocol("the first frame holds no settings"));
            }
            self.has_settings = true;
        }
        self.floods.frame(head, now)?;
        let is_continued = head.kind == frames::CONTINUATION;
        let awaited = self.block.as_ref().map(|block| block.id);
        if awaited.is_some() != is_continued || awaited.is_some_and(|id| id != head.stream) {
            return Err(Fatal::protocol("a header block that is torn"));
        }
        match head.kind {
            frames::DATA => self.data_came(head, content, now),
            frames::HEADERS => self.headers(head, content, now),
            frames::CONTINUATION => self.continuation(head, content, now),
            frames::RST_STREAM => self.reset_came(head, content),
            frames::SETTINGS => self.settings(head, content),
            frames::PING => self.ping_came(head, content),
            frames::GOAWAY => self.goaway_came(head, content),
            frames::WINDOW_UPDATE => self.window_update(head, content, now),
            frames::PRIORITY => self.priority(head, content, now),
            frames::PUSH_PROMISE => Err(Fatal::protocol("a client that pushes")),
            _ => Ok(()),
        }
    }

    fn headers(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        // Those of even numbers would be ours.
        if head.stream.is_multiple_of(2) {
            return Err(Fatal::protocol("a stream of a server's number"));
        }
        let content = frames::unpadded(head, content)?;
        let unprioritized = frames::unprioritized(head, content)?;
        let is_bad = unprioritized.is_none();
        let block = unprioritized.unwrap_or_else(|| content.get(5..).unwrap_or_default());
        let ends_stream = head.has(frames::END_STREAM);
        if head.has(frames::END_HEADERS) {
            return self.block_came(head.stream, ends_stream, is_bad, block, now);
        }
        self.block = Some(Block {
            id: head.stream,
            ends_stream,
            is_bad,
            bytes: block.to_vec(),
            pieces: 0,
        });
        Ok(())
    }

    fn continuation(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        let Some(mut block) = self.block.take() else {
            return Ok(());
        };
        block.bytes.extend_from_slice(content);
        block.pieces += 1;
        if head.has(frames::END_HEADERS) {
            let Block {
                id,
                ends_stream,
                is_bad,
                bytes,
                ..
            } = block;
            return self.block_came(id, ends_stream, is_bad, &bytes, now);
        }
        if block.pieces >= PIECES_MAX {
            return Err(Fatal::new(
                Reason::ENHANCE_YOUR_CALM,
                "a header block that does not end",
            ));
        }
        self.block = Some(block);
        Ok(())
    }

    fn block_came(
        &mut self,
        id: u32,
        ends_stream: bool,
        is_bad: bool,
        block: &[u8],
        now: Instant,
    ) -> Result<(), Fatal> {
        let bytes_max = usize::try_from(self.limits.header_bytes).unwrap_or(usize::MAX);
        let mut fields = Fields::new(bytes_max);
        let read = self
            .decoder
            .decode(block, |field, size| fields.take(field, size));
        read.map_err(|fault| match fault {
            BadBlock::Enough => Fatal::new(Reason::ENHANCE_YOUR_CALM, "far too large a head"),
            _ => Fatal::new(Reason::COMPRESSION_ERROR, "a header block that is none"),
        })?;
        if let Some(place) = self.streams.place(id) {
            return self.trailers_came(place, fields, ends_stream && !is_bad, now);
        }
        if self.is_beyond(id) {
            self.seen = self.seen.max(id);
            return Ok(());
        }
        if id <= self.seen {
            if self.streams.did_reset(id) {
                return Ok(()); // it was on its way
            }
            return Err(Fatal::new(
                Reason::STREAM_CLOSED,
                "a head of a stream that is over or was passed over",
            ));
        }
        self.seen = id;
        if self.streams.len() >= usize::try_from(self.limits.streams).unwrap_or(usize::MAX) {
            frames::reset(&mut self.out, id, Reason::REFUSED_STREAM);
            self.streams.remember(id);
            return Ok(());
        }
        if is_bad {
            return self.fault(id, Reason::PROTOCOL_ERROR, now);
        }
        self.request(id, ends_stream, fields, now)
    }

    fn request(
        &mut self,
        id: u32,
        ends_stream: bool,
        fields: Fields,
        now: Instant,
    ) -> Result<(), Fatal> {
        let is_oversize = fields.is_oversize() && fields.fault().is_none();
        let asked = if is_oversize {
            None
        } else {
            match fields.into_request(&mut self.known) {
                Ok(asked) if ends_stream && asked.length.is_some_and(|length| length > 0) => {
                    return self.fault(id, Reason::PROTOCOL_ERROR, now);
                }
                Ok(asked) => Some(asked),
                Err(malformed) => {
                    tracing::debug!(reason = malformed.0, "a request that is none");
                    return self.fault(id, Reason::PROTOCOL_ERROR, now);
                }
            }
        };
        let place = self.streams.next_place();
        let length = asked.as_ref().and_then(|asked| asked.length);
        // A tunnel's content is nobody's until there is a tunnel, and we make none.
        let is_connect = asked
            .as_ref()
            .is_some_and(|asked| asked.parts.method == Method::CONNECT);
        let (inlet, upload) = if ends_stream || is_oversize || is_connect {
            (None, None)
        } else {
            let (inlet, upload) = upload::pair(length, self.bell(place));
            (Some(inlet), Some(upload))
        };
        self.streams.insert(Stream {
            id,
            is_receiving: !ends_stream,
            is_sending: true,
            credit: Credit::new(self.stream_credit),
            allowance: Allowance::new(self.limits.stream_window),
            length,
            inlet,
        });
        match asked {
            Some(Asked { parts, .. }) => self.events.push(Event::Asked {
                place,
                id,
                parts: Box::new(parts),
                upload,
            }),
            None => {
                let (status, lines) = too_large();
                self.head(place, status, &lines, None, date::now, true);
            }
        }
        Ok(())
    }

    fn trailers_came(
        &mut self,
        place: usize,
        fields: Fields,
        is_end: bool,
        now: Instant,
    ) -> Result<(), Fatal> {
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        let id = stream.id;
        if !stream.is_receiving {
            return self.fault(id, Reason::STREAM_CLOSED, now);
        }
        let is_whole = stream.length.unwrap_or(0) == 0;
        match fields.into_trailers() {
            Ok(trailers) if is_end && is_whole => {
                if let Some(inlet) = &stream.inlet {
                    inlet.end(Some(trailers));
                }
                self.close_receiving(place);
                Ok(())
            }
            _ => self.fault(id, Reason::PROTOCOL_ERROR, now),
        }
    }

    fn data_came(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        if head.stream == 0 {
            return Err(Fatal::protocol("data of no stream"));
        }
        self.allowance
            .come(head.length)
            .map_err(|_| Fatal::new(Reason::FLOW_CONTROL_ERROR, "more data than was granted"))?;
        let content = frames::unpadded(head, content)?;
        let count = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let padding = head.length - count;
        let Some(place) = self.streams.place(head.stream) else {
            self.grant(head.length);
            if self.is_idle(head.stream) {
                return Err(Fatal::protocol("data of a stream that was not opened"));
            }
            if self.streams.did_reset(head.stream) || self.is_beyond(head.stream) {
                return Ok(());
            }
            return self.fault(head.stream, Reason::STREAM_CLOSED, now);
        };
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        let is_last = head.has(frames::END_STREAM);
        let left = stream.length.map(|left| left.checked_sub(u64::from(count)));
        let fault = if !stream.is_receiving {
            Some(Reason::STREAM_CLOSED)
        } else if stream.allowance.come(head.length).is_err() {
            Some(Reason::FLOW_CONTROL_ERROR)
        } else if left == Some(None) || (is_last && left.flatten().unwrap_or(0) > 0) {
            Some(Reason::PROTOCOL_ERROR)
        } else {
            None
        };
        if let Some(reason) = fault {
            self.grant(head.length);
            return self.fault(head.stream, reason, now);
        }
        stream.length = left.flatten();
        let is_read = stream.inlet.as_ref().is_some_and(|it| it.push(content));
        if is_read
            && is_last
            && let Some(inlet) = &stream.inlet
        {
            inlet.end(None);
        }
        if padding > 0
            && !is_last
            && let Some(more) = stream.allowance.take(padding)
        {
            frames::window_update(&mut self.out, head.stream, more);
        }
        self.grant(if is_read { padding } else { head.length });
        if is_last {
            self.close_receiving(place);
        }
        Ok(())
    }

    /// The client's side of a stream is over.
    fn close_receiving(&mut self, place: usize) {
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        stream.is_receiving = false;
        if !stream.is_sending {
            self.remove(place, Reason::NO_ERROR);
        }
    }

    fn reset_came(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        let reason = exactly::<4>(content).map(u32::from_be_bytes)?;
        if self.is_idle(head.stream) {
            return Err(Fatal::protocol("a reset of no stream"));
        }
        if let Some(place) = self.streams.place(head.stream) {
            self.remove(place, Reason(reason));
            let id = head.stream;
            self.events.push(Event::Gone { place, id });
        }
        Ok(())
    }

    fn settings(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(Fatal::protocol("settings of a stream"));
        }
        if head.has(frames::ACK) {
            return if content.is_empty() {
                Ok(())
            } else {
                Err(Fatal::size("settings in an acknowledgement"))
            };
        }
        let said = settings::read(content)?;
        if let Some(bytes) = said.header_table {
            self.encoder.peer_keeps(bytes);
        }
        if let Some(window) = said.stream_window {
            let more = i64::from(window) - i64::from(self.stream_credit);
            self.stream_credit = window;
            for stream in self.streams.each() {
                stream.credit.grant(more).map_err(|_| {
                    Fatal::new(Reason::FLOW_CONTROL_ERROR, "a window that is too large")
                })?;
            }
            self.has_room |= more > 0;
        }
        frames::write(&mut self.out, frames::SETTINGS, frames::ACK, 0, &[]);
        Ok(())
    }

    fn ping_came(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        let said = exactly::<8>(content)?;
        if head.stream != 0 {
            return Err(Fatal::protocol("a ping of a stream"));
        }
        if !head.has(frames::ACK) {
            frames::write(&mut self.out, frames::PING, frames::ACK, 0, &said);
        } else if said == LEAVING && self.leaving == Leaving::Said {
            self.leaving = Leaving::Counted(self.seen);
            self.farewell(Reason::NO_ERROR, "");
        }
        Ok(())
    }

    fn goaway_came(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(Fatal::protocol("a goodbye of a stream"));
        }
        if content.len() < 8 {
            return Err(Fatal::size("a goodbye cut short"));
        }
        self.peer_leaves = true;
        Ok(())
    }

    fn window_update(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        let more = u32::from_be_bytes(exactly::<4>(content)?) & frames::MAX_31;
        if head.stream == 0 {
            if more == 0 {
                return Err(Fatal::protocol("a window that grows by nothing"));
            }
            self.has_room = true;
            return self
                .credit
                .grant(i64::from(more))
                .map_err(|_| Fatal::new(Reason::FLOW_CONTROL_ERROR, "a window that is too large"));
        }
        if self.is_idle(head.stream) {
            return Err(Fatal::protocol("a window of no stream"));
        }
        let Some(place) = self.streams.place(head.stream) else {
            return Ok(()); // it has ended meanwhile
        };
        if more == 0 {
            return self.fault(head.stream, Reason::PROTOCOL_ERROR, now);
        }
        self.has_room = true;
        let stream = self.streams.get(place);
        let granted = stream.map_or(Ok(()), |it| it.credit.grant(i64::from(more)));
        match granted {
            Ok(()) => Ok(()),
            Err(_) => self.fault(head.stream, Reason::FLOW_CONTROL_ERROR, now),
        }
    }

    fn priority(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        if head.stream == 0 {
            return Err(Fatal::protocol("a priority of no stream"));
        }
        let (reason, why) = if content.len() != 5 {
            (Reason::FRAME_SIZE_ERROR, "a priority of another size")
        } else if frames::depends_on(content) == Some(head.stream) {
            (Reason::PROTOCOL_ERROR, "a stream that depends on itself")
        } else {
            return Ok(());
        };
        // A stream that nobody has opened cannot be reset.
        if self.is_idle(head.stream) {
            return Err(Fatal::new(reason, why));
        }
        self.fault(head.stream, reason, now)
    }

    /// Nobody has opened it; those of even numbers would be ours.
    fn is_idle(&self, id: u32) -> bool {
        id > self.seen || id.is_multiple_of(2)
    }

    /// A stream that broke the rules: it is over.
    fn fault(&mut self, id: u32, reason: Reason, now: Instant) -> Result<(), Fatal> {
        frames::reset(&mut self.out, id, reason);
        self.streams.remember(id);
        if let Some(place) = self.streams.place(id) {
            self.remove(place, reason);
            self.events.push(Event::Gone { place, id });
        }
        self.floods.fault(now)
    }
}

fn exactly<const N: usize>(content: &[u8]) -> Result<[u8; N], Fatal> {
    content
        .try_into()
        .map_err(|_| Fatal::size("a frame of another size than its kind has"))
}

/// A frame's head and content, and what follows it.
type Split<'a> = (Head, &'a [u8], &'a [u8]);

/// The first frame, if it is whole, and what follows it.
fn whole(bytes: &[u8]) -> Result<Option<Split<'_>>, Fatal> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let head = Head::read(*head);
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if length > CONTENT_MAX {
        return Err(Fatal::size("a frame that is too large"));
    }
    let split = rest.split_at_checked(length);
    Ok(split.map(|(content, rest)| (head, content, rest)))
}

/// How many bytes a frame that has begun wants for its head, or for its end.
fn wanted(carry: &[u8]) -> Result<usize, Fatal> {
    let Some(head) = carry.first_chunk::<HEAD_BYTES>() else {
        return Ok(HEAD_BYTES - carry.len());
    };
    let length = usize::try_from(Head::read(*head).length).unwrap_or(usize::MAX);
    if length > CONTENT_MAX {
        return Err(Fatal::size("a frame that is too large"));
    }
    Ok(HEAD_BYTES + length - carry.len())
}

fn wanted_more(carry: &[u8]) -> Result<bool, Fatal> {
    wanted(carry).map(|more| more > 0)
}
