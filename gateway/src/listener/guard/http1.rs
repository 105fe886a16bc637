//! HTTP/1.1 to the letter: one way to say where a line, a head, a body ends.
//!
//! It follows the stream of a connection from head to head, byte for byte, and is stricter than
//! whoever reads after it in every place where two readers may differ: line ends, spaces, folded
//! lines, lengths given twice or beside chunks, extensions of chunks. After a request for a tunnel
//! it looks no further: the listener closes a connection on which that was refused. Keeps one
//! unfinished line, bounded; copies nothing else.

/// An empty line before a request is of old browsers; more are of nobody.
const EMPTY_LINES_MAX: u8 = 1;

/// Digits of a length: more do not fit in memory, nor in 64 bits.
const LENGTH_DIGITS_MAX: usize = 18;
const CHUNK_DIGITS_MAX: usize = 15;

/// Bytes up to `at` of what was taken are fine, the rest is not to be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) reason: &'static str,
}

/// Where in the stream a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    RequestLine,
    Fields,
    Content(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    Tunnel,
}

/// What a head has said so far.
#[derive(Debug, Default)]
struct Head {
    /// The first line names the host, or need not.
    needs_no_host: bool,
    is_http11: bool,
    has_host: bool,
    length: Option<u64>,
    is_chunked: bool,
    asks_tunnel: bool,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Strict {
    place: Place,
    head: Head,
    empty_lines: u8,
    line: Vec<u8>,
    line_max: usize,
    is_overlong: bool,
}

impl Strict {
    /// Lines longer than `line_max` are refused where the reader behind has not done so.
    pub(super) fn new(line_max: usize) -> Self {
        Strict {
            place: Place::RequestLine,
            head: Head::default(),
            empty_lines: 0,
            line: Vec::new(),
            line_max,
            is_overlong: false,
        }
    }

    /// Takes what was read.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match &mut self.place {
                Place::Tunnel => return Ok(()),
                Place::Content(left) | Place::Chunk(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    at += taken;
                    if *left == 0 {
                        self.end_content();
                    }
                }
                _ => {
                    let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
                        self.keep(rest);
                        return Ok(());
                    };
                    let piece = rest.get(..=end).unwrap_or(rest);
                    self.whole_line(piece)
                        .map_err(|reason| Fault { at, reason })?;
                    at += piece.len();
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.line.len() + piece.len() > self.line_max {
            self.is_overlong = true;
            self.line.clear();
        } else if !self.is_overlong {
            self.line.extend_from_slice(piece);
        }
    }

    /// Judges a line whose last piece this is.
    fn whole_line(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        if self.line.is_empty() && !self.is_overlong {
            return self.judge(piece);
        }
        self.keep(piece);
        if self.is_overlong {
            return Err("a line is too long");
        }
        let line = std::mem::take(&mut self.line);
        self.judge(&line)
    }

    fn judge(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let line = line.strip_suffix(b"\r\n").ok_or("a line ends without CR")?;
        let is_plain = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        if !line.iter().all(is_plain) {
            return Err("a control character");
        }
        match self.place {
            Place::RequestLine => self.request_line(line),
            Place::Fields if line.is_empty() => self.end_head(),
            Place::Fields => self.field(line),
            Place::ChunkSize => self.chunk_size(line),
            Place::ChunkEnd if line.is_empty() => {
                self.place = Place::ChunkSize;
                Ok(())
            }
            Place::ChunkEnd => Err("a chunk is longer than it says"),
            Place::Trailers if line.is_empty() => {
                self.end_request();
                Ok(())
            }
            Place::Trailers => trailer(line),
            Place::Content(_) | Place::Chunk(_) | Place::Tunnel => Ok(()),
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if line.is_empty() {
            self.empty_lines += 1;
            return if self.empty_lines > EMPTY_LINES_MAX {
                Err("empty lines before a request")
            } else {
                Ok(())
            };
        }
        let mut parts = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("a request line that has not three parts");
        };
        if method.is_empty() || !method.iter().all(is_token) {
            return Err("a method that is none");
        }
        let is_visible = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        if target.is_empty() || !target.iter().all(is_visible) {
            return Err("a target with a character that no URI has");
        }
        self.head = Head {
            is_http11: match version {
                b"HTTP/1.1" => true,
                b"HTTP/1.0" => false,
                _ => return Err("a version that is none"),
            },
            needs_no_host: version == b"HTTP/1.0" || target.first() != Some(&b'/'),
            asks_tunnel: method == b"CONNECT",
            ..Head::default()
        };
        self.place = Place::Fields;
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let (name, value) = split_field(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            if std::mem::replace(&mut self.head.has_host, true) {
                return Err("a second host");
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            if self.head.length.is_some() || self.head.is_chunked {
                return Err("a length given twice");
            }
            self.head.length = Some(length(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_alone = !self.head.is_chunked && self.head.length.is_none();
            if !is_alone || !self.head.is_http11 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err("a transfer-encoding other than one `chunked`");
            }
            self.head.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.head.asks_tunnel = true;
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), &'static str> {
        if !self.head.needs_no_host && !self.head.has_host {
            return Err("no host");
        }
        match (self.head.is_chunked, self.head.length) {
            (true, _) => self.place = Place::ChunkSize,
            (false, None | Some(0)) => self.end_request(),
            (false, Some(length)) => self.place = Place::Content(length),
        }
        Ok(())
    }

    fn chunk_size(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let is_hex = line.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(line).unwrap_or_default();
        if !is_hex || text.len() > CHUNK_DIGITS_MAX {
            return Err("a chunk's size with something beside");
        }
        self.place = match u64::from_str_radix(text, 16) {
            Ok(0) => Place::Trailers,
            Ok(size) => Place::Chunk(size),
            Err(_) => return Err("a chunk without size"),
        };
        Ok(())
    }

    fn end_content(&mut self) {
        match self.place {
            Place::Chunk(_) => self.place = Place::ChunkEnd,
            _ => self.end_request(),
        }
    }

    fn end_request(&mut self) {
        self.empty_lines = 0;
        self.place = if self.head.asks_tunnel {
            Place::Tunnel
        } else {
            Place::RequestLine
        };
    }
}

/// Trailers say nothing that a head has to.
fn trailer(line: &[u8]) -> Result<(), &'static str> {
    let (name, _) = split_field(line)?;
    let framing: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
    if framing.iter().any(|it| name.eq_ignore_ascii_case(it)) {
        return Err("a trailer that belongs in a head");
    }
    Ok(())
}

/// Name and value; a line that begins with a space, or has one before its colon, has no name.
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let colon = line.iter().position(|&byte| byte == b':');
    let colon = colon.ok_or("a line without a colon")?;
    let name = line.get(..colon).unwrap_or_default();
    if name.is_empty() || !name.iter().all(is_token) {
        return Err("a name with a character that no name has");
    }
    let value = line.get(colon + 1..).unwrap_or_default();
    Ok((name, value.trim_ascii()))
}

fn length(value: &[u8]) -> Result<u64, &'static str> {
    let is_plain =
        (1..=LENGTH_DIGITS_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse()
        .ok()
        .filter(|_| is_plain)
        .ok_or("a length that is no number")
}

fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Taken whole, and byte by byte.
    fn verdict(text: &str) -> Result<(), &'static str> {
        let whole = Strict::new(1000).take(text.as_bytes());
        let mut strict = Strict::new(1000);
        let piecewise = text.bytes().try_for_each(|byte| strict.take(&[byte]));
        let reason = |fault: Fault| fault.reason;
        let whole = whole.map_err(reason);
        assert_eq!(whole, piecewise.map_err(reason), "{text:?}");
        whole
    }

    #[test]
    fn honest_requests_follow_each_other() {
        for first in [
            "",
            "\r\n",
            "GET http://x/a?b=%20 HTTP/1.1\r\nhost:x\r\nA: \u{e4}\tb \r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na\nb\0c",
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n\
             3\r\na\nb\r\n0a\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n",
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(verdict(&format!("{first}{GET}{GET}")), Ok(()), "{first:?}");
        }
    }

    #[test]
    fn nothing_is_looked_at_in_a_tunnel() {
        for head in [
            "GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
            "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
        ] {
            assert_eq!(verdict(&format!("{head}\0\n\n")), Ok(()), "{head:?}");
        }
    }

    #[test]
    fn what_is_fine_before_a_fault_is_handed_on() {
        let text = format!("{GET}GET /b HTTP/1.1\r\nHost : y\r\n\r\n");
        let fault = Strict::new(1000).take(text.as_bytes()).unwrap_err();
        assert_eq!(fault.at, text.find("Host :").unwrap());
    }

    #[test]
    fn long_lines_end_somewhere() {
        let long = format!(
            "GET /a HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n",
            "b".repeat(1000)
        );
        let mut strict = Strict::new(1000);
        let piecewise = long.bytes().try_for_each(|byte| strict.take(&[byte]));
        assert_eq!(piecewise.unwrap_err().reason, "a line is too long");
    }
}
