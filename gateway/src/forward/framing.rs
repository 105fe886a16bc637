//! Finds where one event of a watch ends and the next begins, so that a watch whose upstream
//! breaks can end between two.
//!
//! The last, unfinished event is held back until it is whole; whole ones pass without a copy.
//! JSON events end with a newline, protobuf ones are led by their length in four bytes. Bound:
//! [`HELD_MAX`]; a larger event passes as it comes, and a break in the middle of it is a reset.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes of an unfinished event that wait for its end: the largest object etcd takes, in JSON.
const HELD_MAX: usize = 3 * 1024 * 1024;

/// How events are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// A newline after each.
    Lines,
    /// Four bytes of length, most significant first, before each.
    Lengths,
    /// Not to be seen from outside: compressed, or of an unknown type.
    Opaque,
}

/// Cuts a stream of chunks between events.
#[derive(Debug)]
pub(super) struct Framer {
    framing: Framing,
    ready: VecDeque<Bytes>,
    held: VecDeque<Bytes>,
    held_bytes: usize,
    /// Part of the current event has been handed on.
    is_torn: bool,
    length: Length,
}

/// Where in a length-led event the stream is.
#[derive(Debug, Default)]
struct Length {
    prefix: [u8; 4],
    prefix_seen: usize,
    content_left: usize,
}

impl Framer {
    pub(super) fn new(framing: Framing) -> Self {
        Framer {
            framing,
            ready: VecDeque::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            is_torn: framing == Framing::Opaque,
            length: Length::default(),
        }
    }

    /// What can be handed on.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Whether what has been handed on so far ends in the middle of an event.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Takes in a chunk.
    pub(super) fn push(&mut self, mut chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        let whole = match self.framing {
            Framing::Opaque => {
                self.ready.push_back(chunk);
                return;
            }
            Framing::Lines => chunk
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(0, |at| at + 1),
            Framing::Lengths => self.length.walk(&chunk),
        };
        if whole > 0 {
            self.release();
            self.is_torn = false;
            self.ready.push_back(chunk.split_to(whole));
        }
        if chunk.is_empty() {
            return;
        }
        if self.is_torn {
            self.ready.push_back(chunk);
            return;
        }
        self.held_bytes += chunk.len();
        self.held.push_back(chunk);
        if self.held_bytes > HELD_MAX {
            self.release();
            self.is_torn = true;
        }
    }

    /// Hands on the unfinished event: the upstream has ended by itself, and its bytes pass.
    pub(super) fn release(&mut self) {
        self.held_bytes = 0;
        self.ready.append(&mut self.held);
    }
}

impl Length {
    /// Bytes of `chunk` up to the end of the last event that ends in it.
    fn walk(&mut self, chunk: &[u8]) -> usize {
        let (mut at, mut whole) = (0, 0);
        while let Some(rest) = chunk.get(at..).filter(|rest| !rest.is_empty()) {
            if self.prefix_seen < self.prefix.len() {
                let wanted = self.prefix.iter_mut().skip(self.prefix_seen);
                let taken = wanted.zip(rest).map(|(to, &from)| *to = from).count();
                self.prefix_seen += taken;
                at += taken;
                if self.prefix_seen < self.prefix.len() {
                    break;
                }
                let length = u32::from_be_bytes(self.prefix);
                self.content_left = usize::try_from(length).unwrap_or(usize::MAX);
            } else {
                let taken = rest.len().min(self.content_left);
                self.content_left -= taken;
                at += taken;
            }
            if self.content_left == 0 {
                self.prefix_seen = 0;
                whole = at;
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(framer: &mut Framer, chunk: &[u8]) -> Vec<u8> {
        framer.push(Bytes::copy_from_slice(chunk));
        std::iter::from_fn(|| framer.pop()).flatten().collect()
    }

    #[test]
    fn half_a_line_waits_for_its_end() {
        let mut framer = Framer::new(Framing::Lines);
        assert_eq!(pass(&mut framer, b"{1}\n{2"), b"{1}\n");
        assert_eq!(pass(&mut framer, b"22"), b"");
        assert_eq!(pass(&mut framer, b"}\n{3}\n{"), b"{222}\n{3}\n");
        framer.release();
        assert_eq!(
            framer.pop().as_deref(),
            Some(&b"{"[..]),
            "a clean end passes every byte"
        );
    }

    #[test]
    fn lengths_are_followed_across_any_cut() {
        let mut stream = Vec::new();
        for event in [&b"abc"[..], b"", b"defgh"] {
            stream.extend_from_slice(&u32::try_from(event.len()).unwrap().to_be_bytes());
            stream.extend_from_slice(event);
        }
        let ends = [0, 7, 11, 20];
        for cut in 0..=stream.len() {
            let mut framer = Framer::new(Framing::Lengths);
            let first = pass(&mut framer, &stream[..cut]);
            let boundary = *ends.iter().rfind(|&&end| end <= cut).unwrap();
            assert_eq!(first, &stream[..boundary], "cut at {cut}");
            assert_eq!(
                pass(&mut framer, &stream[cut..]),
                &stream[boundary..],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn huge_event_passes_and_is_torn_until_its_end() {
        let mut framer = Framer::new(Framing::Lines);
        let half = vec![b'x'; HELD_MAX / 2 + 1];
        assert!(pass(&mut framer, &half).is_empty());
        assert_eq!(pass(&mut framer, &half).len(), half.len() * 2);
        assert!(framer.is_torn());
        assert_eq!(pass(&mut framer, b"y"), b"y");
        assert_eq!(pass(&mut framer, b"z\n{"), b"z\n");
        assert!(!framer.is_torn());
    }
}
