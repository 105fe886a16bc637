//! The frames of HTTP/2 as bytes (RFC 9113, sections 4 and 6): their heads, their padding, and the
//! words for what is wrong. Knows no stream and keeps nothing.

/// Every frame begins with as much.
pub(crate) const HEAD_BYTES: usize = 9;

/// Content of a frame that is taken, as the protocol's beginning has it; we never announce
/// more, nor send it.
pub(crate) const CONTENT_MAX: usize = 16 * 1024;

/// What a client sends before its first frame.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

/// The largest stream, and the largest window.
pub(crate) const MAX_31: u32 = 0x7fff_ffff;

/// Why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) u32);

impl Reason {
    pub(crate) const NO_ERROR: Reason = Reason(0);
    pub(crate) const PROTOCOL_ERROR: Reason = Reason(1);
    pub(crate) const INTERNAL_ERROR: Reason = Reason(2);
    pub(crate) const FLOW_CONTROL_ERROR: Reason = Reason(3);
    pub(crate) const STREAM_CLOSED: Reason = Reason(5);
    pub(crate) const FRAME_SIZE_ERROR: Reason = Reason(6);
    pub(crate) const REFUSED_STREAM: Reason = Reason(7);
    pub(crate) const CANCEL: Reason = Reason(8);
    pub(crate) const COMPRESSION_ERROR: Reason = Reason(9);
    pub(crate) const ENHANCE_YOUR_CALM: Reason = Reason(11);
}

/// What ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fatal {
    pub(crate) reason: Reason,
    pub(crate) why: &'static str,
}

impl Fatal {
    pub(crate) const fn new(reason: Reason, why: &'static str) -> Self {
        Fatal { reason, why }
    }

    pub(crate) const fn protocol(why: &'static str) -> Self {
        Fatal::new(Reason::PROTOCOL_ERROR, why)
    }

    pub(crate) const fn size(why: &'static str) -> Self {
        Fatal::new(Reason::FRAME_SIZE_ERROR, why)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    pub(crate) fn read(bytes: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, s, t, u, v] = bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s, t, u, v]) & MAX_31,
        }
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Begins a frame of `length` bytes, which is at most [`CONTENT_MAX`] in all we write.
pub(crate) fn begin(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = u32::try_from(length).unwrap_or_default().to_be_bytes();
    let [s, t, u, v] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, s, t, u, v]);
}

/// A whole frame that is small.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, content: &[u8]) {
    begin(out, content.len(), kind, flags, stream);
    out.extend_from_slice(content);
}

pub(crate) fn reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    write(out, RST_STREAM, 0, stream, &reason.0.to_be_bytes());
}

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

pub(crate) fn goaway(out: &mut Vec<u8>, last: u32, reason: Reason, why: &str) {
    begin(out, 8 + why.len(), GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
    out.extend_from_slice(why.as_bytes());
}

/// The content of a DATA or HEADERS frame without its padding.
pub(crate) fn unpadded(head: Head, content: &[u8]) -> Result<&[u8], Fatal> {
    if !head.has(PADDED) {
        return Ok(content);
    }
    let (&padding, rest) = content
        .split_first()
        .ok_or(Fatal::size("padding without a length"))?;
    let left = rest.len().checked_sub(usize::from(padding));
    left.and_then(|left| rest.get(..left))
        .ok_or(Fatal::protocol("more padding than content"))
}

/// Splits off what HEADERS may say of priority, which nobody follows; `None` for a stream that
/// depends on itself.
pub(crate) fn unprioritized(head: Head, content: &[u8]) -> Result<Option<&[u8]>, Fatal> {
    if !head.has(WITH_PRIORITY) {
        return Ok(Some(content));
    }
    let (priority, rest) = content
        .split_at_checked(5)
        .ok_or(Fatal::size("a priority cut short"))?;
    Ok((depends_on(priority) != Some(head.stream)).then_some(rest))
}

/// Whom a stream says it depends on.
pub(crate) fn depends_on(priority: &[u8]) -> Option<u32> {
    word(priority).map(|word| word & MAX_31)
}

/// The first four bytes as a number.
pub(crate) fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_be_bytes(*word))
}
