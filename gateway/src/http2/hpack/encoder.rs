//! Writes heads: names by the static table, values spelt out, nothing remembered.

use http::{HeaderName, HeaderValue, Method, StatusCode};

/// The size a peer's table has until it says otherwise.
const TABLE_BYTES: u32 = 4096;

/// One connection's writer.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// The peer keeps less than it began with, and has to be told that we take note.
    owes_resize: bool,
    is_resized: bool,
}

impl Encoder {
    /// The peer says how much it keeps. We use none of it, and have to say so if it is less than
    /// before (RFC 7541, section 4.2).
    pub(crate) fn peer_keeps(&mut self, bytes: u32) {
        self.owes_resize |= bytes < TABLE_BYTES && !self.is_resized;
    }

    /// Begins a block.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_resize) {
            self.is_resized = true;
            out.push(0x20);
        }
    }
}

pub(crate) fn status(out: &mut Vec<u8>, status: StatusCode) {
    let index = match status.as_u16() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            out.push(8);
            return text(out, status.as_str().as_bytes());
        }
    };
    out.push(0x80 | index);
}

/// What a request begins with.
pub(crate) fn request(
    out: &mut Vec<u8>,
    method: &Method,
    is_tls: bool,
    authority: &str,
    path: &str,
) {
    match *method {
        Method::GET => out.push(0x82),
        Method::POST => out.push(0x83),
        _ => {
            out.push(2);
            text(out, method.as_str().as_bytes());
        }
    }
    out.push(if is_tls { 0x87 } else { 0x86 });
    out.push(1);
    text(out, authority.as_bytes());
    out.push(4);
    text(out, path.as_bytes());
}

pub(crate) fn field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    // What is sensitive is remembered by nobody on the way.
    let kind = if value.is_sensitive() { 0x10 } else { 0 };
    match index(name) {
        Some(index) => number(out, kind, 4, index),
        None => {
            out.push(kind);
            text(out, name.as_str().as_bytes());
        }
    }
    text(out, value.as_bytes());
}

/// RFC 7541, section 5.1.
fn number(out: &mut Vec<u8>, kind: u8, prefix: u32, number: usize) {
    let mask = (1_u8 << prefix) - 1;
    match u8::try_from(number) {
        Ok(small) if small < mask => out.push(kind | small),
        _ => {
            out.push(kind | mask);
            let mut rest = number.saturating_sub(usize::from(mask));
            while rest >= 0x80 {
                out.push(u8::try_from(rest & 0x7f).unwrap_or_default() | 0x80);
                rest >>= 7;
            }
            out.push(u8::try_from(rest).unwrap_or_default());
        }
    }
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    number(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// Where the static table has a name.
fn index(name: &HeaderName) -> Option<usize> {
    let index = match name.as_str() {
        "accept-charset" => 15,
        "accept-encoding" => 16,
        "accept-language" => 17,
        "accept-ranges" => 18,
        "accept" => 19,
        "access-control-allow-origin" => 20,
        "age" => 21,
        "allow" => 22,
        "authorization" => 23,
        "cache-control" => 24,
        "content-disposition" => 25,
        "content-encoding" => 26,
        "content-language" => 27,
        "content-length" => 28,
        "content-location" => 29,
        "content-range" => 30,
        "content-type" => 31,
        "cookie" => 32,
        "date" => 33,
        "etag" => 34,
        "expires" => 36,
        "if-match" => 39,
        "if-modified-since" => 40,
        "if-none-match" => 41,
        "last-modified" => 44,
        "link" => 45,
        "location" => 46,
        "range" => 50,
        "referer" => 51,
        "retry-after" => 53,
        "server" => 54,
        "set-cookie" => 55,
        "strict-transport-security" => 56,
        "user-agent" => 58,
        "vary" => 59,
        "via" => 60,
        "www-authenticate" => 61,
        _ => return None,
    };
    Some(index)
}
