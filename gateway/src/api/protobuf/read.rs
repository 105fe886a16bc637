//! Messages into JSON, by the fields of the table.
//!
//! What occurs twice is as protobuf wants it: the last number or text counts, messages merge, lists
//! and maps grow. `depth` counts the levels of JSON that may still be opened; recursion is bounded
//! by it alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::Fault;
use super::table::{Field, Form, MessageId, Place, Table};
use super::wire::{self, Content, Fields};
use crate::api::storage::Object;

const TOO_DEEP: &str = "the object has too many levels";
/// The seconds of the years that RFC 3339 can write, 0 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Reads a message's fields into an object.
pub(super) fn fields(
    table: &Table,
    message: &[u8],
    id: MessageId,
    depth: usize,
    into: &mut Object,
) -> Result<(), Fault> {
    let depth = inner(depth)?;
    for field in Fields::new(message) {
        let (number, content) = field?;
        if let Some(field) = table.field(id, number) {
            let reader = Reader { table, depth };
            reader
                .field(field, content, into)
                .map_err(|fault| fault.within(field.name))?;
        }
    }
    Ok(())
}

fn inner(depth: usize) -> Result<usize, Fault> {
    depth.checked_sub(1).ok_or(Fault::message(TOO_DEEP))
}

/// Reads what lies in an object.
#[derive(Clone, Copy)]
struct Reader<'t> {
    table: &'t Table,
    depth: usize,
}

impl Reader<'_> {
    fn inner(self) -> Result<Self, Fault> {
        let depth = inner(self.depth)?;
        Ok(Reader { depth, ..self })
    }

    /// Puts a field's content in its place.
    fn field(self, field: Field, content: Content<'_>, into: &mut Object) -> Result<(), Fault> {
        match (field.place, field.form) {
            (Place::Inline, Form::Message(id)) => {
                fields(self.table, content.bytes()?, id, self.depth, into)
            }
            (Place::List, _) => {
                let list = into
                    .entry(field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                match list {
                    Value::Array(list) => self.inner()?.element(field.form, content, list),
                    _ => Ok(()),
                }
            }
            (Place::Map, _) => {
                let map = into
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                match map {
                    Value::Object(map) => self.inner()?.entry(field.form, content, map),
                    _ => Ok(()),
                }
            }
            (place, form) => {
                let before = into.remove(field.name);
                let value = self.value(form, content, before)?;
                let is_left_out = value.is_null() || (place == Place::Plain && is_empty(&value));
                if !is_left_out {
                    into.insert(field.name.to_owned(), value);
                }
                Ok(())
            }
        }
    }

    fn element(self, form: Form, content: Content<'_>, list: &mut Vec<Value>) -> Result<(), Fault> {
        match (form, content) {
            // Numbers may come all in one.
            (Form::Int32 | Form::Int64, Content::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let number = wire::varint(&mut packed)
                        .ok_or_else(|| Fault::message("a number is malformed"))?;
                    list.push(self.value(form, Content::Number(number), None)?);
                }
            }
            _ => list.push(self.value(form, content, None)?),
        }
        Ok(())
    }

    fn entry(self, form: Form, content: Content<'_>, map: &mut Object) -> Result<(), Fault> {
        // What is not written is empty, and no map of ours has numbers.
        let (mut key, mut value) = ("", Content::Bytes(&[]));
        for field in Fields::new(content.bytes()?) {
            match field? {
                (1, text) => key = text.text()?,
                (2, content) => value = content,
                _ => {}
            }
        }
        let value = self.value(form, value, None)?;
        if !value.is_null() {
            map.insert(key.to_owned(), value);
        }
        Ok(())
    }

    /// A value of its own, or merged with what was read `before`; null for what is not there.
    fn value(
        self,
        form: Form,
        content: Content<'_>,
        before: Option<Value>,
    ) -> Result<Value, Fault> {
        Ok(match form {
            Form::Text => content.text()?.into(),
            Form::Flag => (content.number()? != 0).into(),
            Form::Int32 => low_half(content.number()?).into(),
            Form::Int64 => content.number()?.cast_signed().into(),
            Form::Float => float(content)?,
            Form::Bytes => STANDARD.encode(content.bytes()?).into(),
            Form::Texts => texts(content.bytes()?)?,
            Form::Time => time(content.bytes()?, "%Y-%m-%dT%H:%M:%SZ")?,
            Form::MicroTime => time(content.bytes()?, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
            Form::Quantity => quantity(content.bytes()?)?,
            Form::IntOrString => int_or_string(content.bytes()?)?,
            Form::Raw => raw(content.bytes()?, self.depth)?,
            Form::Message(id) => {
                let mut object = match before {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                fields(self.table, content.bytes()?, id, self.depth, &mut object)?;
                Value::Object(object)
            }
            Form::Union(id) => {
                let mut object = Map::new();
                fields(self.table, content.bytes()?, id, self.depth, &mut object)?;
                union(object)
            }
        })
    }
}

/// Whether Go's JSON takes a value for empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

/// The lower 32 bits, signed: a negative number may come with its sign extended or without.
fn low_half(number: u64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn float(content: Content<'_>) -> Result<Value, Fault> {
    let Content::Eight(bits) = content else {
        return Err(Fault::message("wrong wire type"));
    };
    // By way of text: whole numbers are written without a fraction.
    let text = f64::from_bits(bits).to_string();
    let number: Number =
        serde_json::from_str(&text).map_err(|_| Fault::message("a float is not a number"))?;
    Ok(number.into())
}

fn texts(message: &[u8]) -> Result<Value, Fault> {
    let mut list = Vec::new();
    for field in Fields::new(message) {
        if let (1, text) = field? {
            list.push(text.text()?.into());
        }
    }
    Ok(Value::Array(list))
}

/// Seconds and nanoseconds since the epoch; no bytes are no time.
fn time(message: &[u8], format: &str) -> Result<Value, Fault> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::new(message) {
        match field? {
            (1, number) => seconds = number.number()?.cast_signed(),
            (2, number) => nanos = low_half(number.number()?),
            _ => {}
        }
    }
    let is_time = SECONDS.contains(&seconds) && (0..1_000_000_000).contains(&nanos);
    let time = Timestamp::new(seconds, nanos).ok().filter(|_| is_time);
    let time = time.ok_or_else(|| Fault::message("a time is out of range"))?;
    Ok(time.strftime(format).to_string().into())
}

/// Its text is canonical already; none is zero.
fn quantity(message: &[u8]) -> Result<Value, Fault> {
    let mut text = "";
    for field in Fields::new(message) {
        if let (1, content) = field? {
            text = content.text()?;
        }
    }
    Ok(if text.is_empty() { "0" } else { text }.into())
}

fn int_or_string(message: &[u8]) -> Result<Value, Fault> {
    let (mut which, mut number, mut text) = (0, 0, "");
    for field in Fields::new(message) {
        match field? {
            (1, content) => which = content.number()?,
            (2, content) => number = low_half(content.number()?),
            (3, content) => text = content.text()?,
            _ => {}
        }
    }
    match which {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        _ => Err(Fault::message("neither a number nor a text")),
    }
}

fn raw(message: &[u8], depth: usize) -> Result<Value, Fault> {
    let mut json: &[u8] = &[];
    for field in Fields::new(message) {
        if let (1, content) = field? {
            json = content.bytes()?;
        }
    }
    if json.is_empty() {
        return Ok(Value::Null);
    }
    // The parser has a bound of its own, so the walk after it is bounded too.
    let value = serde_json::from_slice(json)
        .map_err(|_| Fault::message("raw content is not JSON: send the object as JSON"))?;
    if levels(&value) > depth {
        return Err(Fault::message(TOO_DEEP));
    }
    Ok(value)
}

fn levels(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(list) => list.iter().map(levels).max(),
        Value::Object(object) => object.values().map(levels).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

/// The one field that counts: a list before a message, a message before a flag.
fn union(object: Object) -> Value {
    let rank = |value: &Value| match value {
        Value::Array(_) => 2,
        Value::Object(_) => 1,
        _ => 0,
    };
    object.into_values().max_by_key(rank).unwrap_or(Value::Null)
}
