//! Counts HTTP/2 frames that make work and carry nothing: pings, settings, priorities,
//! continuations, empty data, window updates, resets and what nobody knows.
//!
//! Honest clients send a handful of the first kinds a second; window updates come with what is
//! read, and resets with watches that end, so those have a bound of their own. Follows the frames
//! by their lengths and looks at nothing inside. Pure: time is an argument.

use std::time::{Duration, Instant};

/// The window in which frames add up.
const WINDOW: Duration = Duration::from_secs(1);

/// Pings, settings, empty data and the like within a window: the busiest gRPC client probes its
/// bandwidth some dozen times a second.
const IDLE_MAX: u32 = 500;

/// Window updates and resets within a window: a client that reads 100 MB a second in frames of
/// 16 KiB, and updates stream and connection for each, sends 13,000.
const BUSY_MAX: u32 = 20_000;

/// What a client sends before its first frame.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// More such frames than anybody honest sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood;

/// One connection's frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the preface or of a frame that are still to come.
    skip: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    window_began: Instant,
    idle: u32,
    busy: u32,
}

impl Frames {
    pub(super) fn new(now: Instant) -> Self {
        Frames {
            skip: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_len: 0,
            window_began: now,
            idle: 0,
            busy: 0,
        }
    }

    /// Takes what was read; the time is asked for only when a frame counts.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        now: impl Fn() -> Instant,
    ) -> Result<(), Flood> {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let wanted = HEAD_BYTES - self.head_len;
            let (new, rest) = bytes.split_at(wanted.min(bytes.len()));
            for (to, from) in self.head.iter_mut().skip(self.head_len).zip(new) {
                *to = *from;
            }
            self.head_len += new.len();
            bytes = rest;
            if self.head_len == HEAD_BYTES {
                self.head_len = 0;
                self.frame(&now)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, now: impl Fn() -> Instant) -> Result<(), Flood> {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.skip = usize::try_from(length).unwrap_or(usize::MAX);
        let is_work = match kind {
            HEADERS => true,
            DATA => length > 0 || flags & END_STREAM != 0,
            _ => false,
        };
        if is_work {
            return Ok(());
        }
        let now = now();
        if now.duration_since(self.window_began) >= WINDOW {
            self.window_began = now;
            self.idle = 0;
            self.busy = 0;
        }
        let (count, max) = match kind {
            RST_STREAM | WINDOW_UPDATE => (&mut self.busy, BUSY_MAX),
            _ => (&mut self.idle, IDLE_MAX),
        };
        *count += 1;
        if *count > max { Err(Flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, content: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(content).unwrap().to_be_bytes();
        let mut bytes = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD_BYTES + content, 0);
        bytes
    }

    /// How many of a frame are taken within one window, whole or cut anywhere.
    fn taken(frame: &[u8], count: usize, cut: usize) -> usize {
        let start = Instant::now();
        let mut frames = Frames::new(start);
        frames.take(&[0; PREFACE_BYTES], || start).unwrap();
        let stream = frame.repeat(count);
        let mut pieces = stream.chunks(cut);
        let fine = pieces
            .by_ref()
            .take_while(|piece| frames.take(piece, || start).is_ok());
        fine.count() * cut / frame.len()
    }

    #[test]
    fn idle_frames_have_a_bound_and_work_has_none() {
        let idle = usize::try_from(IDLE_MAX).unwrap();
        for (frame, expected) in [
            (frame(PING, 0, 8), idle),
            (frame(4, 0, 0), idle),
            (frame(2, 0, 5), idle),
            (frame(9, 0, 100), idle),
            (frame(DATA, 0, 0), idle),
            (frame(200, 0, 1), idle),
            (frame(WINDOW_UPDATE, 0, 4), 1000),
            (frame(RST_STREAM, 0, 4), 1000),
            (frame(HEADERS, 5, 20), 1000),
            (frame(DATA, END_STREAM, 0), 1000),
            (frame(DATA, 0, 3), 1000),
        ] {
            assert_eq!(taken(&frame, 1000, frame.len()), expected, "{frame:?}");
            let in_bytes = taken(&frame, 1000, 1);
            assert!(in_bytes.abs_diff(expected) <= 1, "{frame:?} {in_bytes}");
        }
    }

    #[test]
    fn windows_pass() {
        let start = Instant::now();
        let mut frames = Frames::new(start);
        frames.take(&[0; PREFACE_BYTES], || start).unwrap();
        let half = frame(PING, 0, 8).repeat(usize::try_from(IDLE_MAX).unwrap());
        assert_eq!(frames.take(&half, || start), Ok(()));
        assert_eq!(frames.take(&half, || start + WINDOW), Ok(()));
        assert_eq!(frames.take(&half, || start + WINDOW), Err(Flood));
    }
}
