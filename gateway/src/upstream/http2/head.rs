//! The head of an answer, gathered field by field and judged as RFC 9113, section 8.2 and 8.3 do.
//!
//! Pure. What is malformed costs its stream and no more; the block is read to its end all the same,
//! since what follows on the connection depends on it. Bound: the fields of one head, as HPACK
//! counts them.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, StatusCode};

use super::streams::Head;
use crate::http2::hpack::Field;

/// How many times more than is taken a block may hold before it is an attack and no mistake.
const ABUSE: usize = 4;

/// Lines a head begins with: a kube-apiserver's answer has eight.
const LINES: usize = 12;

/// The fields of one block.
#[derive(Debug)]
pub(super) struct Fields {
    status: Option<StatusCode>,
    lines: HeaderMap,
    bytes: usize,
    bytes_max: usize,
    has_lines: bool,
    fault: Option<&'static str>,
}

impl Fields {
    pub(super) fn new(bytes_max: usize) -> Self {
        Fields {
            status: None,
            lines: HeaderMap::new(),
            bytes: 0,
            bytes_max,
            has_lines: false,
            fault: None,
        }
    }

    /// Takes one more; no when it is far too much.
    pub(super) fn take(&mut self, field: &Field, size: usize) -> bool {
        self.bytes += size;
        if self.bytes > self.bytes_max {
            self.fault.get_or_insert("too large a head");
            return self.bytes <= self.bytes_max.saturating_mul(ABUSE);
        }
        let fault = match field {
            Field::Status(status) if self.status.is_none() && !self.has_lines => {
                self.status = Some(*status);
                None
            }
            Field::Plain(name, value) => {
                self.has_lines = true;
                if self.lines.is_empty() {
                    self.lines.reserve(LINES);
                }
                if speaks_of_connection(name, value.as_bytes()) {
                    Some("a line that speaks of the connection")
                } else if self.lines.try_append(name.clone(), value.clone()).is_err() {
                    Some("too many lines")
                } else {
                    None
                }
            }
            _ => Some("a field that no answer has, or in the wrong place"),
        };
        if let Some(fault) = fault {
            self.fault.get_or_insert(fault);
        }
        true
    }

    pub(super) fn into_head(self) -> Result<Head, &'static str> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let status = self.status.ok_or("no status")?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err("a protocol that nobody asked for");
        }
        let headers = self.lines;
        Ok(Head { status, headers })
    }

    pub(super) fn into_trailers(self) -> Result<HeaderMap, &'static str> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.status.is_some() => Err("trailers with a status"),
            None => Ok(self.lines),
        }
    }
}

/// What belongs to a connection of HTTP/1.1 has no place here.
fn speaks_of_connection(name: &HeaderName, value: &[u8]) -> bool {
    match name.as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => true,
        "te" => value != b"trailers",
        _ => false,
    }
}

/// The length that a head says; said twice it is the same.
pub(super) fn length(lines: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut said = None;
    for value in lines.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        let is_plain = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().filter(|_| is_plain);
        let number = number.and_then(|digits| digits.parse::<u64>().ok());
        let number = number.ok_or("a length that is no number")?;
        if said.is_some_and(|said| said != number) {
            return Err("two lengths");
        }
        said = Some(number);
    }
    Ok(said)
}
