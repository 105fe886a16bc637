//! Where one frame of a tunnel ends and the next begins, in the direction to the client, and what
//! can be said to the client there before the tunnel is closed.
//!
//! A tunnel's bytes pass untouched; only when the gateway has to end it, it waits for the end of a
//! frame and says why: to a WebSocket by a close frame, to SPDY by GOAWAY, and before it by a
//! `Status` on the error channel where the subprotocol has one. That one is not for the words alone:
//! to kubectl, whose error stream ends with nothing in it, a command that was cut off has succeeded.
//! Knows no sockets.

/// The subprotocols that end a command with a `Status` in JSON.
const STATUS_PROTOCOLS: [&[u8]; 2] = [b"v5.channel.k8s.io", b"v4.channel.k8s.io"];

/// The WebSocket channel of errors, in binary frames.
const ERROR_CHANNEL: u8 = 3;

/// The SPDY stream of errors: the first of the client's, since there has been a client.
const ERROR_STREAM: [u8; 4] = [0, 0, 0, 1];

/// Types of SPDY control frames.
const SYN_REPLY: u8 = 2;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

/// Close codes of RFC 6455: all that was to be said has been said; the server goes away.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;

/// Why a tunnel has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The gateway does.
    Stopping,
    /// Its caller is nobody any more.
    Disowned,
}

impl Why {
    /// What a client is told, in words that a person reads.
    fn text(self) -> &'static str {
        match self {
            Why::Stopping => "the gateway is stopping; try again, and another one will answer",
            Why::Disowned => "the credential that this began with does not hold any more",
        }
    }

    /// The same as Kubernetes says it.
    fn status(self) -> String {
        let (reason, code) = match self {
            Why::Stopping => ("ServiceUnavailable", 503),
            Why::Disowned => ("Unauthorized", 401),
        };
        let text = self.text();
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{text}","reason":"{reason}","code":{code}}}"#
        )
    }
}

/// How frames are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    WebSocket { has_status: bool },
    Spdy { has_status: bool },
}

/// How far the SPDY stream of errors has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorStream {
    Unopened,
    Open,
    /// The upstream has said how the command ended, or ends the tunnel itself.
    Spent,
}

/// Follows the frames of one direction.
#[derive(Debug)]
pub(super) struct Wire {
    framing: Framing,
    head: [u8; 14],
    head_seen: usize,
    content_left: u64,
    /// Between two parts of one message.
    is_in_message: bool,
    errors: ErrorStream,
}

impl Wire {
    /// `protocol` is what was upgraded to, `chosen` the version of Kubernetes' own protocol in it.
    pub(super) fn new(protocol: &[u8], chosen: Option<&[u8]>) -> Self {
        let has_status = chosen.is_some_and(|it| STATUS_PROTOCOLS.contains(&it));
        let framing = if protocol.eq_ignore_ascii_case(b"websocket") {
            Framing::WebSocket { has_status }
        } else {
            Framing::Spdy { has_status }
        };
        Wire {
            framing,
            head: [0; 14],
            head_seen: 0,
            content_left: 0,
            is_in_message: false,
            errors: ErrorStream::Unopened,
        }
    }

    /// Takes in bytes that pass.
    pub(super) fn walk(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.content_left > 0 {
                let left = usize::try_from(self.content_left).unwrap_or(usize::MAX);
                let taken = left.min(bytes.len());
                self.content_left -= taken as u64;
                bytes = bytes.get(taken..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.head.get_mut(self.head_seen) {
                *place = first;
                self.head_seen += 1;
            }
            bytes = rest;
            if let Some(content) = self.content() {
                self.content_left = content;
                self.head_seen = 0;
            }
        }
    }

    /// Whether the last frame is whole.
    pub(super) fn is_between(&self) -> bool {
        self.head_seen == 0 && self.content_left == 0
    }

    /// The length of the content behind a head that is whole.
    fn content(&mut self) -> Option<u64> {
        let seen = self.head.get(..self.head_seen)?;
        match self.framing {
            Framing::Spdy { .. } => {
                let (head, length) = seen.split_first_chunk::<5>()?;
                let [a, b, c] = *length else { return None };
                let length = u64::from(u32::from_be_bytes([0, a, b, c]));
                self.errors = match (*head, self.errors) {
                    ([0x80, _, 0, SYN_REPLY, _], ErrorStream::Unopened) => ErrorStream::Open,
                    ([0x80, _, 0, RST_STREAM | GOAWAY, _], _) => ErrorStream::Spent,
                    ([a, b, c, d, _], _) if [a, b, c, d] == ERROR_STREAM => ErrorStream::Spent,
                    (_, errors) => errors,
                };
                Some(length)
            }
            Framing::WebSocket { .. } => {
                let (&first, &second) = (seen.first()?, seen.get(1)?);
                let wide = match second & 0x7f {
                    126 => 2,
                    127 => 8,
                    _ => 0,
                };
                let mask = if second & 0x80 == 0 { 0 } else { 4 };
                if seen.len() < 2 + wide + mask {
                    return None;
                }
                let is_control = first & 0x08 != 0;
                if !is_control {
                    self.is_in_message = first & 0x80 == 0;
                }
                let length = seen.get(2..2 + wide)?;
                let length = length.iter().fold(0, |n, &b| n << 8 | u64::from(b));
                Some(if wide == 0 {
                    u64::from(second & 0x7f)
                } else {
                    length
                })
            }
        }
    }

    /// What is sent before the tunnel is closed; to be sent between two frames.
    pub(super) fn farewell(&self, why: Why) -> Vec<u8> {
        match self.framing {
            Framing::Spdy { has_status } => {
                let mut frames = Vec::new();
                if has_status && self.errors == ErrorStream::Open {
                    let status = why.status();
                    let length = u32::try_from(status.len()).unwrap_or_default();
                    let [_, length @ ..] = length.to_be_bytes();
                    frames.extend_from_slice(&ERROR_STREAM);
                    frames.push(1); // the last of its stream
                    frames.extend_from_slice(&length);
                    frames.extend_from_slice(status.as_bytes());
                }
                // A control frame of version 3 without flags; eight bytes: no stream after the
                // last of all is refused, and no fault.
                frames.extend_from_slice(&[0x80, 3, 0, GOAWAY, 0, 0, 0, 8]);
                frames.extend_from_slice(&0x7fff_ffff_u32.to_be_bytes());
                frames.extend_from_slice(&0_u32.to_be_bytes());
                frames
            }
            Framing::WebSocket { has_status } => {
                let says_status = has_status && !self.is_in_message;
                let mut frames = Vec::new();
                if says_status {
                    let content = [&[ERROR_CHANNEL], why.status().as_bytes()].concat();
                    push_frame(&mut frames, 0x82, &content);
                }
                // A client takes the status for what it is only when the close is an orderly one.
                let code = if says_status { NORMAL } else { GOING_AWAY };
                let content = [&code.to_be_bytes()[..], why.text().as_bytes()].concat();
                push_frame(&mut frames, 0x88, &content);
                frames
            }
        }
    }
}

/// Appends an unmasked frame of less than 64 KiB.
fn push_frame(frames: &mut Vec<u8>, first: u8, content: &[u8]) {
    frames.push(first);
    match u8::try_from(content.len()) {
        Ok(short @ 0..=125) => frames.push(short),
        _ => {
            let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
            frames.push(126);
            frames.extend_from_slice(&length.to_be_bytes());
        }
    }
    frames.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where in `bytes` a frame ends, told byte by byte.
    fn ends(mut wire: Wire, bytes: &[u8]) -> Vec<usize> {
        let mut ends = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            wire.walk(&[*byte]);
            if wire.is_between() {
                ends.push(at + 1);
            }
        }
        ends
    }

    #[test]
    fn websocket_frames_end_where_they_end() {
        let mut bytes = vec![0x82, 2, 1, b'a', 0x89, 0];
        bytes.extend([0x82, 126, 1, 0]);
        bytes.extend([7; 256]);
        bytes.extend([0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 9]);
        bytes.extend([0x82, 0x81, 1, 2, 3, 4, 9]); // masked
        let wire = || Wire::new(b"WebSocket", None);
        assert_eq!(ends(wire(), &bytes), [4, 6, 266, 277, 284]);
        let mut at_once = wire();
        at_once.walk(&bytes);
        assert!(at_once.is_between());
        at_once.walk(&[0x82]);
        assert!(!at_once.is_between());
    }

    #[test]
    fn spdy_frames_end_where_they_end() {
        let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
        let data = [0, 0, 0, 1, 1, 0, 0, 2, b'h', b'i'];
        let bytes = [&ping[..], &data, &ping].concat();
        assert_eq!(ends(Wire::new(b"SPDY/3.1", None), &bytes), [12, 22, 34]);
    }

    #[test]
    fn farewells_are_frames_themselves_and_say_why() {
        for (protocol, chosen) in [
            (&b"SPDY/3.1"[..], None),
            (b"websocket", None),
            (b"websocket", Some(&b"v5.channel.k8s.io"[..])),
        ] {
            let mut wire = Wire::new(protocol, chosen);
            let farewell = wire.farewell(Why::Stopping);
            wire.walk(&farewell);
            assert!(wire.is_between(), "{protocol:?}");
            let text = String::from_utf8_lossy(&farewell).into_owned();
            assert_eq!(text.contains(Why::Stopping.text()), protocol != b"SPDY/3.1");
            assert_eq!(text.contains("\"code\":503"), chosen.is_some());
        }
        let replied = [0x80, 3, 0, SYN_REPLY, 0, 0, 0, 4, 0, 0, 0, 1];
        let said = [0, 0, 0, 1, 1, 0, 0, 2, b'{', b'}'];
        for (seen, is_open) in [
            (&[][..], false), // a stream that is not there
            (&replied, true),
            (&[&replied[..], &said].concat(), false), // and nothing more after the last word
        ] {
            let mut wire = Wire::new(b"SPDY/3.1", Some(b"v4.channel.k8s.io"));
            wire.walk(seen);
            let farewell = wire.farewell(Why::Stopping);
            let text = String::from_utf8_lossy(&farewell).into_owned();
            assert_eq!(text.contains("\"code\":503"), is_open, "{seen:?}");
            wire.walk(&farewell);
            assert!(wire.is_between());
        }
        let disowned = Wire::new(b"websocket", Some(b"v4.channel.k8s.io")).farewell(Why::Disowned);
        let text = String::from_utf8_lossy(&disowned).into_owned();
        assert!(text.contains("does not hold any more") && text.contains("\"code\":401"));
        let mut torn = Wire::new(b"websocket", Some(b"v4.channel.k8s.io"));
        torn.walk(&[0x02, 1, 1]);
        let text = String::from_utf8_lossy(&torn.farewell(Why::Stopping)).into_owned();
        assert!(!text.contains("Status"), "not inside another message");
    }
}
