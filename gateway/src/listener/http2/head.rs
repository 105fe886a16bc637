//! The head of a request, gathered field by field and judged as RFC 9113, section 8.2 and 8.3 do.
//!
//! Pure. What is malformed costs its stream and no more; the block is read to its end all the same,
//! since what follows on the connection depends on it. Bound: the fields of one head, as HPACK
//! counts them; what is beyond is counted and not kept.

use bytes::Bytes;
use http::header::{self, CONTENT_LENGTH, HeaderMap};
use http::request::Parts;
use http::uri::{self, Authority, PathAndQuery, Scheme};
use http::{HeaderName, Method, Request, Uri, Version};

use crate::http2::hpack::Field;

/// How many times more than is taken a block may hold before it is an attack and no mistake.
const ABUSE: usize = 4;

/// Lines a head begins with: those of a controller's request.
const LINES: usize = 16;

/// It is no request, or no trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// The fields of one block.
#[derive(Debug)]
pub(super) struct Fields {
    method: Option<Method>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    lines: HeaderMap,
    bytes: usize,
    bytes_max: usize,
    has_lines: bool,
    fault: Option<Malformed>,
    is_oversize: bool,
}

/// What a block says, when it is well made.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) parts: Parts,
    /// What the head says of its content's length.
    pub(super) length: Option<u64>,
}

impl Fields {
    pub(super) fn new(bytes_max: usize) -> Self {
        Fields {
            method: None,
            scheme: None,
            authority: None,
            path: None,
            lines: HeaderMap::new(),
            bytes: 0,
            bytes_max,
            has_lines: false,
            fault: None,
            is_oversize: false,
        }
    }

    /// More than is taken: to be answered so.
    pub(super) fn is_oversize(&self) -> bool {
        self.is_oversize
    }

    pub(super) fn fault(&self) -> Option<Malformed> {
        self.fault
    }

    /// Takes one more; no when it is far too much.
    pub(super) fn take(&mut self, field: &Field, size: usize) -> bool {
        self.bytes += size;
        if self.bytes > self.bytes_max.saturating_mul(ABUSE) {
            return false;
        }
        self.is_oversize |= self.bytes >= self.bytes_max;
        let taken = match field {
            Field::Method(method) => once(&mut self.method, method, self.has_lines),
            Field::Scheme(scheme) => once(&mut self.scheme, scheme, self.has_lines),
            Field::Authority(authority) => once(&mut self.authority, authority, self.has_lines),
            Field::Path(path) => once(&mut self.path, path, self.has_lines),
            Field::Bad(_) | Field::Status(_) => Err(Malformed("a field that no request has")),
            Field::Plain(name, value) => {
                self.has_lines = true;
                match judge(name, value.as_bytes()) {
                    Ok(()) if self.is_oversize => Ok(()),
                    Ok(()) => {
                        if self.lines.is_empty() {
                            self.lines.reserve(LINES);
                        }
                        let kept = self.lines.try_append(name.clone(), value.clone());
                        self.is_oversize |= kept.is_err();
                        Ok(())
                    }
                    Err(fault) => Err(fault),
                }
            }
        };
        if let Err(fault) = taken {
            self.fault.get_or_insert(fault);
        }
        true
    }

    /// As trailers, which name no request.
    pub(super) fn into_trailers(self) -> Result<HeaderMap, Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let has_pseudo = self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some();
        if has_pseudo || self.is_oversize {
            return Err(Malformed("trailers that are none"));
        }
        Ok(self.lines)
    }

    /// As the head of a request. `known` is the authority of the request before, which is nearly
    /// always the same.
    pub(super) fn into_request(
        self,
        known: &mut Option<(Bytes, Authority)>,
    ) -> Result<Asked, Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let method = self.method.ok_or(Malformed("no method"))?;
        let is_connect = method == Method::CONNECT;
        if is_connect && (self.scheme.is_some() || self.path.is_some()) {
            return Err(Malformed("a tunnel with a path"));
        }
        let length = length(&self.lines)?;
        let mut parts = uri::Parts::default();
        if let Some(text) = self.authority {
            parts.authority = Some(authority(text, known)?);
        }
        if !is_connect {
            let scheme = self.scheme.ok_or(Malformed("no scheme"))?;
            let scheme = match &*scheme {
                b"https" => Scheme::HTTPS,
                b"http" => Scheme::HTTP,
                other => Scheme::try_from(other).map_err(|_| Malformed("no scheme at all"))?,
            };
            // Without an authority there is no URI with a scheme.
            parts.scheme = parts.authority.is_some().then_some(scheme);
            let path = self.path.filter(|path| !path.is_empty());
            let path = PathAndQuery::from_maybe_shared(path.ok_or(Malformed("no path"))?);
            parts.path_and_query = Some(path.map_err(|_| Malformed("no path at all"))?);
        }
        let uri = Uri::from_parts(parts).map_err(|_| Malformed("no target"))?;
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = method;
        parts.uri = uri;
        parts.version = Version::HTTP_2;
        parts.headers = self.lines;
        Ok(Asked { parts, length })
    }
}

/// A pseudo field comes once, and before the lines.
fn once<T: Clone>(place: &mut Option<T>, value: &T, is_late: bool) -> Result<(), Malformed> {
    if is_late || place.is_some() {
        return Err(Malformed("a pseudo field twice, or behind a line"));
    }
    *place = Some(value.clone());
    Ok(())
}

/// What belongs to a connection of HTTP/1.1 has no place here.
fn judge(name: &HeaderName, value: &[u8]) -> Result<(), Malformed> {
    let is_of_connection = match name.as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => true,
        "te" => value != b"trailers",
        _ => false,
    };
    if is_of_connection {
        return Err(Malformed("a line that speaks of the connection"));
    }
    Ok(())
}

fn authority(text: Bytes, known: &mut Option<(Bytes, Authority)>) -> Result<Authority, Malformed> {
    if let Some((spelt, authority)) = known
        && *spelt == text
    {
        return Ok(authority.clone());
    }
    let authority = Authority::from_maybe_shared(text.clone());
    let authority = authority.map_err(|_| Malformed("no authority at all"))?;
    *known = Some((text, authority.clone()));
    Ok(authority)
}

/// The length that a head says; said twice it is the same.
fn length(lines: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut said = None;
    for value in lines.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        let is_plain = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().filter(|_| is_plain);
        let number = number.and_then(|digits| digits.parse::<u64>().ok());
        let number = number.ok_or(Malformed("a length that is no number"))?;
        if said.is_some_and(|said| said != number) {
            return Err(Malformed("two lengths"));
        }
        said = Some(number);
    }
    Ok(said)
}

/// Takes out of an answer what belongs to a connection of HTTP/1.1, and what that names.
pub(super) fn strip(lines: &mut HeaderMap) {
    static OF_CONNECTION: [HeaderName; 5] = [
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::TE,
    ];
    for name in &OF_CONNECTION {
        lines.remove(name);
    }
    if let Some(named) = lines.remove(header::CONNECTION) {
        let named = named.to_str().unwrap_or_default().to_owned();
        for name in named.split(',') {
            lines.remove(name.trim());
        }
    }
}
