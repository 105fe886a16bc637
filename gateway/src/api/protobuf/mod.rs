//! Objects of built-in kinds in protobuf, read as the JSON they would be.
//!
//! kubectl's `create` with a generator and most controllers send protobuf whether or not anybody
//! asked for it. The numbers, names and types of the fields are a table (`fields.txt`, written by
//! `make_fields.py` from the API's own definitions); one reader walks a message by it. Answers are
//! JSON: every such client reads both.
//!
//! A field the table does not know is passed over. What protobuf always writes and JSON leaves out
//! (empty texts, zeros, empty messages that are no pointers) is left out.

pub(crate) mod wire;

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use wire::{Content, Reader};

/// The media type of the envelope.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Messages in messages; the deepest built-in kind has about a dozen, and none contains itself.
const DEPTH_MAX: usize = 32;

/// How often a field occurs, and what is done with it when it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At most once, left out when empty.
    Plain,
    /// At most once, kept when empty.
    Kept,
    /// A list.
    List,
    /// A map from texts.
    Map,
    /// At most once; in JSON its fields are the outer message's own.
    Inline,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Flag,
    Number,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Raw,
    Message(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    place: Place,
    kind: Kind,
}

type Fields = HashMap<u64, Field>;

/// Every message by name, `core.Pod`.
static TABLE: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    include_str!("fields.txt")
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            Some((name, words.filter_map(field).collect()))
        })
        .collect()
});

fn field(word: &'static str) -> Option<(u64, Field)> {
    let mut parts = word.splitn(3, ':');
    let number = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let kind = parts.next()?;
    let bare = kind.trim_start_matches(['*', '%', '^', '!']);
    let place = match kind.as_bytes().first()? {
        b'*' => Place::List,
        b'%' => Place::Map,
        b'^' => Place::Inline,
        b'!' => Place::Kept,
        _ => Place::Plain,
    };
    let kind = match bare {
        "s" => Kind::Text,
        "b" => Kind::Flag,
        "i" => Kind::Number,
        "y" => Kind::Bytes,
        "time" => Kind::Time,
        "microtime" => Kind::MicroTime,
        "quantity" => Kind::Quantity,
        "intorstring" => Kind::IntOrString,
        "raw" => Kind::Raw,
        message => Kind::Message(message),
    };
    Some((number, Field { name, place, kind }))
}

/// The object in an envelope, with its `apiVersion` and `kind`; `None` when it is damaged or of a
/// kind the table does not know.
pub(crate) fn decode(bytes: &[u8]) -> Option<Map<String, Value>> {
    let (version, kind, raw) = wire::open(bytes)?;
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let package = match (kind.as_str(), group.split('.').next()) {
        ("DeleteOptions", _) => "meta",
        (_, Some("")) | (_, None) => "core",
        (_, Some(first)) => first,
    };
    let fields = TABLE.get(format!("{package}.{kind}").as_str())?;
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(version));
    object.insert("kind".to_owned(), json!(kind));
    read(raw, fields, DEPTH_MAX, &mut object)?;
    Some(object)
}

fn read(bytes: &[u8], fields: &Fields, depth: usize, into: &mut Map<String, Value>) -> Option<()> {
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        let Some(field) = fields.get(&number) else {
            continue;
        };
        if field.place == Place::Inline {
            if let (Kind::Message(name), Content::Bytes(inner)) = (field.kind, content) {
                read(inner, TABLE.get(name)?, depth.checked_sub(1)?, into)?;
            }
            continue;
        }
        if field.place == Place::Map {
            let Content::Bytes(entry) = content else {
                return None;
            };
            let (key, value) = entry_of(entry, field.kind, depth)?;
            let map = into.entry(field.name).or_insert_with(|| json!({}));
            map.as_object_mut()?.insert(key, value);
            continue;
        }
        let value = value_of(content, field.kind, depth)?;
        match field.place {
            Place::List => {
                let list = into.entry(field.name).or_insert_with(|| json!([]));
                list.as_array_mut()?.push(value);
            }
            Place::Plain if is_empty(&value) => {}
            _ if value.is_null() => {}
            _ => {
                into.insert(field.name.to_owned(), value);
            }
        }
    }
    Some(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Array(_) => false,
    }
}

/// Key and value of a map's entry; an absent value is the empty one.
fn entry_of(bytes: &[u8], kind: Kind, depth: usize) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), Content::Bytes(&[]));
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        match (number, content) {
            (1, Content::Bytes(text)) => key = std::str::from_utf8(text).ok()?.to_owned(),
            (2, content) => value = content,
            _ => {}
        }
    }
    Some((key, value_of(value, kind, depth)?))
}

fn value_of(content: Content<'_>, kind: Kind, depth: usize) -> Option<Value> {
    let bytes = match (kind, content) {
        (Kind::Flag, Content::Number(number)) => return Some(json!(number != 0)),
        // Negative numbers come as their two's complement.
        (Kind::Number, Content::Number(number)) => return Some(json!(number.cast_signed())),
        (_, Content::Bytes(bytes)) => bytes,
        _ => return None,
    };
    Some(match kind {
        Kind::Text => json!(std::str::from_utf8(bytes).ok()?),
        Kind::Bytes => json!(STANDARD.encode(bytes)),
        Kind::Time => time(bytes, Precision::Seconds)?,
        Kind::MicroTime => time(bytes, Precision::Microseconds)?,
        Kind::Quantity => text_field(bytes, 1)?,
        Kind::IntOrString => int_or_string(bytes)?,
        Kind::Raw => raw(bytes)?,
        Kind::Message(name) => {
            let mut inner = Map::new();
            read(bytes, TABLE.get(name)?, depth.checked_sub(1)?, &mut inner)?;
            Value::Object(inner)
        }
        Kind::Flag | Kind::Number => return None,
    })
}

fn text_field(bytes: &[u8], wanted: u64) -> Option<Value> {
    let mut reader = Reader(bytes);
    let mut found = json!("");
    while let Some((number, content)) = reader.field()? {
        if let (true, Content::Bytes(text)) = (number == wanted, content) {
            found = json!(std::str::from_utf8(text).ok()?);
        }
    }
    Some(found)
}

#[derive(Clone, Copy)]
enum Precision {
    Seconds,
    Microseconds,
}

/// Seconds and nanoseconds since the epoch; without either it is no time.
fn time(bytes: &[u8], precision: Precision) -> Option<Value> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        match (number, content) {
            (1, Content::Number(n)) => seconds = n.cast_signed(),
            (2, Content::Number(n)) => nanos = i32::try_from(n).ok()?,
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Some(Value::Null);
    }
    Some(match precision {
        Precision::Seconds => json!(Timestamp::from_second(seconds).ok()?.to_string()),
        Precision::Microseconds => {
            let at = Timestamp::new(seconds, nanos).ok()?;
            json!(at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
        }
    })
}

fn int_or_string(bytes: &[u8]) -> Option<Value> {
    let (mut is_text, mut number_value, mut text) = (false, 0, String::new());
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        match (number, content) {
            (1, Content::Number(n)) => is_text = n != 0,
            (2, Content::Number(n)) => number_value = n.cast_signed(),
            (3, Content::Bytes(t)) => text = std::str::from_utf8(t).ok()?.to_owned(),
            _ => {}
        }
    }
    Some(if is_text {
        json!(text)
    } else {
        json!(number_value)
    })
}

/// JSON within: what a controller keeps of its own.
fn raw(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader(bytes);
    let mut found = Value::Null;
    while let Some((number, content)) = reader.field()? {
        if let (1, Content::Bytes(text)) = (number, content) {
            found = serde_json::from_slice(text).ok()?;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests;
