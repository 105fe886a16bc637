//! Request attributes: a path means what a second reader makes of it, and what its own attributes
//! spell means the same again.
//!
//! An input is `METHOD URI` and, on further lines, headers. The second reader knows plain paths
//! only; of those it must agree on what is refused, too.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use sluice_gateway::request::{RequestInfo, Verb};

use crate::corpus::repository;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

const SHAPE: Shape = Shape {
    cuts: b" /?&=\n;%",
    words: &[
        "GET",
        "POST",
        "DELETE",
        "PATCH",
        "PURGE",
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "pods",
        "nodes",
        "proxy",
        "watch",
        "status",
        "finalize",
        "log",
        "exec",
        "a",
        "..",
        ".",
        "%2F",
        "%2e",
        "%25",
        "%zz",
        "%ff",
        "+",
        "watch=1",
        "watch=false",
        "fieldSelector=",
        "metadata.name%3D",
        "labelSelector=",
        "limit=5",
        "continue=",
        "resourceVersion=0",
        "timeoutSeconds=9",
        "Connection: upgrade",
        "Upgrade: websocket",
    ],
    bytes_max: 400,
};

pub(crate) fn target() -> Target {
    let table = repository("gateway/src/request/paths.txt");
    let table = std::fs::read_to_string(table).unwrap();
    let rows = table.lines().filter(|row| !row.starts_with('#'));
    let seeds = rows.filter_map(|row| Some(row.split_once(" | ")?.0.as_bytes().to_vec()));
    Target {
        name: "request",
        shape: SHAPE,
        seeds: seeds.collect(),
        check: Box::new(check),
    }
}

fn check(input: &[u8]) -> Result<Verdict, String> {
    let Some((method, uri, headers)) = read(input) else {
        return Ok(Verdict::Refused);
    };
    let plain = Plain::read(&method, &uri);
    let info = match RequestInfo::parse(&method, &uri, &headers) {
        Ok(info) => info,
        Err(refusal) if refusal.code != StatusCode::BAD_REQUEST => {
            return Err(format!("refused with {} and not 400", refusal.code));
        }
        Err(refusal) => {
            return match plain {
                Some(Some(plain)) => Err(format!("refused ({}): {plain:?}", refusal.message)),
                _ => Ok(Verdict::Refused),
            };
        }
    };
    let found = Plain::of(&info);
    match plain {
        Some(Some(plain)) if plain != found => {
            return Err(format!("read as {found:?}, a second reader says {plain:?}"));
        }
        Some(None) => return Err(format!("read as {found:?}, a second reader refuses")),
        _ => {}
    }
    if Some(info.uri()) != uri.path_and_query() {
        return Err(format!("the URI has become {}", info.uri()));
    }
    if !info.is_proxied() {
        check_segments(info.path())?;
    }
    check_query(&info)?;
    check_again(&method, &info, &found)?;
    Ok(Verdict::Accepted)
}

fn read(input: &[u8]) -> Option<(Method, Uri, HeaderMap)> {
    let text = std::str::from_utf8(input).ok()?;
    let mut lines = text.split('\n');
    let (method, uri) = lines.next()?.split_once(' ')?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).ok()?,
            HeaderValue::from_str(value).ok()?,
        );
    }
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    Some((method, uri.parse().ok()?, headers))
}

/// No segment may be there that another reader could resolve, decode or split once more.
fn check_segments(path: &str) -> Result<(), String> {
    let inner = path.strip_suffix('/').unwrap_or(path);
    for segment in inner.split('/').skip(1) {
        let odd = |c: char| c.is_ascii_control() || matches!(c, '\\' | '%');
        let is_dots = matches!(segment.split(';').next(), Some("." | ".."));
        if segment.is_empty() || is_dots || segment.contains(odd) {
            return Err(format!("the path {path:?} was let through"));
        }
    }
    Ok(())
}

/// The first value of each parameter, decoded as a form is.
fn check_query(info: &RequestInfo) -> Result<(), String> {
    let asks_many = matches!(
        info.verb(),
        Verb::List | Verb::Watch | Verb::DeleteCollection
    );
    if !asks_many || info.is_proxied() || is_verb_in_path(info) {
        return Ok(());
    }
    for (key, found) in [
        ("labelSelector", info.label_selector()),
        ("fieldSelector", info.field_selector()),
        ("continue", info.continue_token()),
        ("resourceVersion", info.resource_version()),
    ] {
        let pairs = info.uri().query().unwrap_or_default().split('&');
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let value = pairs.find(|(name, _)| form_decode(name) == key);
        let value = value
            .map(|(_, value)| form_decode(value))
            .unwrap_or_default();
        if value != found {
            return Err(format!("{key} is {found:?} and not {value:?}"));
        }
    }
    Ok(())
}

fn form_decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    let mut parts = spaced.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(digits, 16).ok());
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Spells the attributes out as a path and reads that.
fn check_again(method: &Method, info: &RequestInfo, found: &Plain) -> Result<(), String> {
    let mut path = String::new();
    if info.is_resource() {
        match info.group() {
            "" => path += "/api",
            group => path += &format!("/apis/{}", encode(group)),
        }
        path += &format!("/{}", encode(info.version()));
        if is_verb_in_path(info) {
            path += &format!("/{}", info.verb_name());
        }
        // The namespace's own path, which has few subresources: others would be resources in it.
        let is_namespace = info.resource() == "namespaces"
            && info.name() == info.namespace()
            && matches!(info.subresource(), "" | "status" | "finalize");
        if !info.namespace().is_empty() && !is_namespace {
            path += &format!("/namespaces/{}", encode(info.namespace()));
        }
        path += &format!("/{}", encode(info.resource()));
        // A list's name comes out of its selector.
        if is_verb_in_path(info) || !matches!(info.verb(), Verb::List | Verb::Watch) {
            for part in [info.name(), info.subresource()] {
                if !part.is_empty() {
                    path += &format!("/{}", encode(part));
                }
            }
        }
    } else {
        let parts: Vec<String> = info.path().split('/').map(encode).collect();
        path += &parts.join("/");
    }
    if let Some(query) = info.uri().query().filter(|_| !info.is_proxied()) {
        path += &format!("?{query}");
    }
    let uri: Uri = path.parse().map_err(|why| format!("{path:?}: {why}"))?;
    let again = RequestInfo::parse(method, &uri, &HeaderMap::new())
        .map_err(|refusal| format!("{path} is refused: {}", refusal.message))?;
    let again = Plain::of(&again);
    if again != *found {
        return Err(format!("{found:?}, spelt out as {path}, is {again:?}"));
    }
    Ok(())
}

fn is_verb_in_path(info: &RequestInfo) -> bool {
    let mut segments = info.path().split('/').skip(1);
    let word = match segments.next() {
        Some("api") => segments.nth(1),
        Some("apis") => segments.nth(2),
        _ => None,
    };
    info.is_resource() && matches!(word, Some("watch" | "proxy"))
}

fn encode(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    segment.bytes().map(one).collect()
}

/// What rules, RBAC and audit look at.
#[derive(Debug, PartialEq, Eq)]
struct Plain {
    is_resource: bool,
    verb: String,
    group: String,
    version: String,
    namespace: String,
    resource: String,
    name: String,
    subresource: String,
}

impl Plain {
    fn of(info: &RequestInfo) -> Self {
        Plain {
            is_resource: info.is_resource(),
            verb: info.verb_name().to_owned(),
            group: info.group().to_owned(),
            version: info.version().to_owned(),
            namespace: info.namespace().to_owned(),
            resource: info.resource().to_owned(),
            name: info.name().to_owned(),
            subresource: info.subresource().to_owned(),
        }
    }

    /// Reads a path of plain segments: `None` for one that is not, `Some(None)` for one to refuse.
    fn read(method: &Method, uri: &Uri) -> Option<Option<Self>> {
        let is_plain = |text: &str| {
            let all = text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
            all && !text.is_empty() && text != "." && text != ".."
        };
        let (mut watches, mut selected) = (false, String::new());
        if let Some(query) = uri.query() {
            match query.strip_prefix("fieldSelector=metadata.name%3D") {
                Some(name) if is_plain(name) => name.clone_into(&mut selected),
                _ if matches!(query, "watch=1" | "watch=true" | "watch=") => watches = true,
                _ if matches!(query, "watch=0" | "watch=false" | "limit=5") => {}
                _ => return None,
            }
        }
        let segments: Vec<&str> = uri.path().strip_prefix('/')?.split('/').collect();
        if !segments.iter().all(|segment| is_plain(segment)) {
            return None;
        }
        let is_resource = match segments[0] {
            "api" => segments.len() > 2,
            "apis" => segments.len() > 3,
            _ => false,
        };
        let mut plain = Plain {
            is_resource,
            verb: method.as_str().to_ascii_lowercase(),
            group: String::new(),
            version: String::new(),
            namespace: String::new(),
            resource: String::new(),
            name: String::new(),
            subresource: String::new(),
        };
        if !is_resource {
            return Some(Some(plain));
        }
        let mut left = segments
            .into_iter()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>();
        if uri.path().starts_with("/apis/") {
            plain.group = left.remove(0);
        }
        plain.version = left.remove(0);
        let is_word = left[0] == "watch" || left[0] == "proxy";
        if is_word {
            plain.verb = left.remove(0);
            if left.is_empty() {
                return Some(None);
            }
        } else {
            let verbs = "GET=get HEAD=get POST=create PUT=update PATCH=patch DELETE=delete";
            let mut verbs = verbs.split([' ', '=']);
            let mut verb = verbs.by_ref().skip_while(|word| *word != method.as_str());
            plain.verb = verb.nth(1).unwrap_or_default().to_owned();
        }
        if left[0] == "namespaces" && left.len() > 1 {
            plain.namespace.clone_from(&left[1]);
            if left.len() > 2 && left[2] != "status" && left[2] != "finalize" {
                left.drain(..2);
            }
        }
        let mut left = left.into_iter();
        plain.resource = left.next().unwrap_or_default();
        plain.name = left.next().unwrap_or_default();
        if plain.verb != "proxy" {
            plain.subresource = left.next().unwrap_or_default();
        }
        if plain.name.is_empty() {
            plain.verb = match plain.verb.as_str() {
                "get" if watches => "watch".to_owned(),
                "get" => "list".to_owned(),
                "delete" => "deletecollection".to_owned(),
                other => other.to_owned(),
            };
            if matches!(plain.verb.as_str(), "list" | "watch") && !is_word {
                plain.name = selected;
            }
        }
        Some(Some(plain))
    }
}
