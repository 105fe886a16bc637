//! What an endpoint says, frame by frame (RFC 9113, sections 5 and 6).
//!
//! A fault of a stream costs the stream; a fault of the connection ends it. What comes for a stream
//! that has ended is looked over, save for what it does to the connection.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::core::{Block, Core, HEADER_BYTES_MAX};
use super::error::StreamError;
use super::head::{self, Fields};
use super::streams::{End, Head as AnswerHead};
use crate::http2::frames::{self, Fatal, Head, MAX_31, Reason};
use crate::http2::hpack::BadBlock;
use crate::http2::pieces::Content;
use crate::http2::settings;

/// Bytes of one block that has not come whole, and frames of it: a head of the largest size needs
/// seventeen.
const BLOCK_MAX: usize = 2 * HEADER_BYTES_MAX as usize;
const PIECES_MAX: u32 = 40;

impl Core {
    /// Takes what was read.
    pub(super) fn receive(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Fatal> {
        while !bytes.is_empty() {
            let Some((head, content)) = self.pieces.next(&mut bytes)? else {
                return Ok(());
            };
            self.frame(head, content, now)?;
        }
        Ok(())
    }

    fn frame(&mut self, head: Head, content: Content<'_>, now: Instant) -> Result<(), Fatal> {
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
        let bytes = content.bytes();
        match head.kind {
            frames::DATA => self.data_came(head, content),
            frames::HEADERS => self.headers(head, bytes, now),
            frames::CONTINUATION => self.continuation(head, bytes, now),
            frames::RST_STREAM => self.reset_came(head, bytes),
            frames::SETTINGS => self.settings(head, bytes),
            frames::PING => self.ping_came(head, bytes),
            frames::GOAWAY => self.goaway_came(head, bytes),
            frames::WINDOW_UPDATE => self.window_update(head, bytes),
            frames::PRIORITY if head.stream == 0 => Err(Fatal::protocol("a priority of no stream")),
            frames::PUSH_PROMISE => Err(Fatal::protocol("a push that nobody wants")),
            _ => Ok(()),
        }
    }

    /// Whether we have opened a stream of this number, ever.
    fn is_ours(&self, id: u32) -> bool {
        id % 2 == 1 && id < self.next_id
    }

    fn headers(&mut self, head: Head, content: &[u8], now: Instant) -> Result<(), Fatal> {
        if !self.is_ours(head.stream) {
            return Err(Fatal::protocol("an answer to nothing"));
        }
        let content = frames::unpadded(head, content)?;
        let block = frames::unprioritized(head, content)?;
        let block = block.ok_or(Fatal::protocol("a stream that depends on itself"))?;
        let ends_stream = head.has(frames::END_STREAM);
        if head.has(frames::END_HEADERS) {
            return self.block_came(head.stream, ends_stream, block, now);
        }
        self.block = Some(Block {
            id: head.stream,
            ends_stream,
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
            return self.block_came(block.id, block.ends_stream, &block.bytes, now);
        }
        if block.pieces >= PIECES_MAX || block.bytes.len() > BLOCK_MAX {
            let why = "a header block that does not end";
            return Err(Fatal::new(Reason::ENHANCE_YOUR_CALM, why));
        }
        self.block = Some(block);
        Ok(())
    }

    fn block_came(
        &mut self,
        id: u32,
        ends_stream: bool,
        block: &[u8],
        now: Instant,
    ) -> Result<(), Fatal> {
        let bytes_max = usize::try_from(HEADER_BYTES_MAX).unwrap_or(usize::MAX);
        let mut fields = Fields::new(bytes_max);
        let read = self
            .decoder
            .decode(block, |field, size| fields.take(field, size));
        read.map_err(|fault| match fault {
            BadBlock::Enough => Fatal::new(Reason::ENHANCE_YOUR_CALM, "far too large a head"),
            _ => Fatal::new(Reason::COMPRESSION_ERROR, "a header block that is none"),
        })?;
        let Some(place) = self.streams.place(id) else {
            return Ok(());
        };
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        if !stream.is_receiving {
            self.fault(place, Reason::STREAM_CLOSED, "a head behind the end");
            return Ok(());
        }
        let taken = if stream.has_head {
            self.trailers_came(place, fields.into_trailers(), ends_stream)
        } else {
            match fields.into_head() {
                Ok(head) if head.status.is_informational() => {
                    self.floods.nothing(now)?;
                    if ends_stream {
                        Err("a beginning that is the end")
                    } else {
                        Ok(())
                    }
                }
                Ok(head) => self.head_came(place, head, ends_stream),
                Err(why) => Err(why),
            }
        };
        if let Err(why) = taken {
            self.fault(place, Reason::PROTOCOL_ERROR, why);
        }
        Ok(())
    }

    fn head_came(
        &mut self,
        place: usize,
        head: AnswerHead,
        ends_stream: bool,
    ) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        let said = head::length(&head.headers)?;
        let has_none = stream.is_head
            || matches!(
                head.status,
                StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
            );
        if has_none {
            stream.length = Some(0);
        } else {
            if ends_stream && said.is_some_and(|length| length > 0) {
                return Err("less content than was said");
            }
            stream.length = said;
        }
        stream.has_head = true;
        self.unanswered -= 1;
        if stream.has_reader {
            stream.head = Some(Box::new(head));
        }
        if ends_stream {
            stream.end = End::Whole;
            stream.is_receiving = false;
        }
        self.wakes.extend(stream.reader.take());
        if ends_stream {
            self.settle(place);
        }
        Ok(())
    }

    fn trailers_came(
        &mut self,
        place: usize,
        lines: Result<HeaderMap, &'static str>,
        ends_stream: bool,
    ) -> Result<(), &'static str> {
        let lines = lines?;
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        if !ends_stream {
            return Err("trailers that do not end");
        }
        if stream.length.unwrap_or(0) > 0 {
            return Err("less content than was said");
        }
        if stream.has_reader {
            stream.trailers = Some(Box::new(lines));
        }
        stream.end = End::Whole;
        stream.is_receiving = false;
        self.wakes.extend(stream.reader.take());
        self.settle(place);
        Ok(())
    }

    fn data_came(&mut self, head: Head, content: Content<'_>) -> Result<(), Fatal> {
        self.allowance
            .come(head.length)
            .map_err(|_| Fatal::new(Reason::FLOW_CONTROL_ERROR, "more data than was granted"))?;
        let data = frames::unpadded(head, content.bytes())?;
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let padding = head.length - count;
        if !self.is_ours(head.stream) {
            return Err(Fatal::protocol("data of a stream that was not opened"));
        }
        let Some(place) = self.streams.place(head.stream) else {
            self.grant(head.length); // it was on its way
            return Ok(());
        };
        let Some(stream) = self.streams.get(place) else {
            return Ok(());
        };
        let is_last = head.has(frames::END_STREAM);
        let left = stream.length.map(|left| left.checked_sub(u64::from(count)));
        let fault = if !stream.is_receiving {
            Some((Reason::STREAM_CLOSED, "data behind the end"))
        } else if !stream.has_head {
            Some((Reason::PROTOCOL_ERROR, "data before the head"))
        } else if stream.allowance.come(head.length).is_err() {
            Some((Reason::FLOW_CONTROL_ERROR, "more data than was granted"))
        } else if left == Some(None) {
            Some((Reason::PROTOCOL_ERROR, "more content than was said"))
        } else if is_last && left.flatten().unwrap_or(0) > 0 {
            Some((Reason::PROTOCOL_ERROR, "less content than was said"))
        } else {
            None
        };
        if let Some((reason, why)) = fault {
            self.grant(head.length);
            self.fault(place, reason, why);
            return Ok(());
        }
        stream.length = left.flatten();
        if stream.has_reader {
            let piece = match &content {
                Content::Here(_) => Bytes::copy_from_slice(data),
                Content::Own(own) => own.slice_ref(data),
            };
            stream.hold(piece);
        }
        let unread = if stream.has_reader {
            padding
        } else {
            head.length
        };
        if is_last {
            stream.end = End::Whole;
            stream.is_receiving = false;
        } else if unread > 0
            && let Some(more) = stream.allowance.take(unread)
        {
            frames::window_update(&mut self.out, head.stream, more);
        }
        self.wakes.extend(stream.reader.take());
        self.grant(unread);
        if is_last {
            self.settle(place);
        }
        Ok(())
    }

    fn reset_came(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        let reason = exactly::<4>(content).map(u32::from_be_bytes).map(Reason)?;
        if !self.is_ours(head.stream) {
            return Err(Fatal::protocol("a reset of no stream"));
        }
        let Some(place) = self.streams.place(head.stream) else {
            return Ok(());
        };
        let has_head = self.streams.get(place).is_some_and(|it| it.has_head);
        let error = if reason == Reason::REFUSED_STREAM && !has_head {
            StreamError::Unseen { is_leaving: false }
        } else {
            StreamError::Reset(reason)
        };
        self.break_off(place, error);
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
        match said.streams {
            Some(max) => {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                let is_more = max > self.streams_max;
                self.streams_max = max;
                if is_more {
                    self.has_more_room();
                }
            }
            // It takes as many as there are until it says otherwise.
            None if self.streams_max == 0 && !self.is_limited => {
                self.streams_max = usize::MAX;
            }
            None => {}
        }
        self.is_limited = true;
        if let Some(window) = said.stream_window {
            let more = i64::from(window) - i64::from(self.stream_credit);
            self.stream_credit = window;
            for stream in self.streams.each().filter(|it| it.is_open()) {
                let granted = stream.credit.grant(more);
                granted.map_err(|_| too_wide())?;
            }
            if more > 0 {
                self.unblock();
            }
        }
        self.reply(frames::SETTINGS, &[])
    }

    fn ping_came(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        let said = exactly::<8>(content)?;
        if head.stream != 0 {
            return Err(Fatal::protocol("a ping of a stream"));
        }
        if head.has(frames::ACK) {
            return Ok(());
        }
        self.reply(frames::PING, &said)
    }

    fn goaway_came(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(Fatal::protocol("a goodbye of a stream"));
        }
        let last = frames::word(content).filter(|_| content.len() >= 8);
        let last = last.ok_or(Fatal::size("a goodbye cut short"))? & MAX_31;
        if self.last_id.is_some_and(|before| last > before) {
            return Err(Fatal::protocol("a goodbye that takes back another"));
        }
        self.last_id = Some(last);
        for place in self.streams.places() {
            if self.streams.get(place).is_some_and(|it| it.id > last) {
                self.break_off(place, StreamError::Unseen { is_leaving: true });
            }
        }
        self.has_more_room(); // for those who wait: to hear that there is none
        Ok(())
    }

    fn window_update(&mut self, head: Head, content: &[u8]) -> Result<(), Fatal> {
        let more = u32::from_be_bytes(exactly::<4>(content)?) & MAX_31;
        if head.stream == 0 {
            if more == 0 {
                return Err(Fatal::protocol("a window that grows by nothing"));
            }
            self.unblock();
            let granted = self.credit.grant(i64::from(more));
            return granted.map_err(|_| too_wide());
        }
        if !self.is_ours(head.stream) {
            return Err(Fatal::protocol("a window of no stream"));
        }
        let Some(place) = self.streams.place(head.stream) else {
            return Ok(()); // it has ended meanwhile
        };
        if more == 0 {
            let why = "a window that grows by nothing";
            self.fault(place, Reason::PROTOCOL_ERROR, why);
            return Ok(());
        }
        let stream = self.streams.get(place);
        let granted = stream.map_or(Ok(()), |it| it.credit.grant(i64::from(more)));
        match granted {
            Ok(()) => self.unblock(),
            Err(_) => {
                let why = "a window that is too large";
                self.fault(place, Reason::FLOW_CONTROL_ERROR, why);
            }
        }
        Ok(())
    }

    /// An answer that broke the rules: it is over.
    fn fault(&mut self, place: usize, reason: Reason, why: &'static str) {
        self.reset(place, reason, StreamError::Malformed(why));
    }
}

fn too_wide() -> Fatal {
    Fatal::new(Reason::FLOW_CONTROL_ERROR, "a window that is too large")
}

fn exactly<const N: usize>(content: &[u8]) -> Result<[u8; N], Fatal> {
    content
        .try_into()
        .map_err(|_| Fatal::size("a frame of another size than its kind has"))
}
