//! The bytes of tables and of bare metadata, made from stored objects.
//!
//! Objects come in as the raw JSON they would be served as, and leave as raw JSON: metadata is
//! copied, never re-encoded. The whole answer is built in memory, at about the size of its input.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::columns::Columns;
use super::negotiate::{Include, MetaVersion};

/// Whether a table names its columns: the first of a stream does, the others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// With column definitions.
    Named,
    /// Without.
    Bare,
}

#[derive(Deserialize)]
struct Partly<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Serialize)]
struct Partial<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: &'a RawValue,
}

#[derive(Serialize)]
struct Row<'a> {
    cells: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Value>,
    object: RowObject<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RowObject<'a> {
    Nothing(()),
    Metadata(Partial<'a>),
    Object(&'a RawValue),
}

#[derive(Serialize)]
struct Table<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Value,
    #[serde(rename = "columnDefinitions")]
    column_definitions: Value,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct PartialList<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: &'a RawValue,
    items: Vec<Partial<'a>>,
}

/// How to render: the columns, the label, what rows carry, and the moment ages are counted to.
#[derive(Clone, Debug)]
pub struct Style {
    /// The columns of the kind.
    pub columns: Columns,
    /// The label.
    pub version: MetaVersion,
    /// What rows carry beside their cells.
    pub include: Include,
    /// Now.
    pub now: Timestamp,
}

/// A list as a table. `items` are whole objects, `metadata` is the list's own.
///
/// # Errors
/// When an item or the metadata is not the JSON of an object.
pub fn render_list<'a>(
    style: &Style,
    metadata: &str,
    items: impl IntoIterator<Item = &'a [u8]>,
) -> serde_json::Result<Bytes> {
    let rows: Result<Vec<_>, _> = items.into_iter().map(|raw| row(style, raw)).collect();
    table(style, serde_json::from_str(metadata)?, Head::Named, rows?)
}

/// One object as a table of one row: the answer to a get, or the object of a watch frame.
///
/// # Errors
/// When `raw` is not the JSON of an object.
pub fn render_watch_object(style: &Style, head: Head, raw: &[u8]) -> serde_json::Result<Bytes> {
    let object: Value = serde_json::from_slice(raw)?;
    let version = object.pointer("/metadata/resourceVersion");
    let metadata = version.map_or_else(|| json!({}), |v| json!({"resourceVersion": v}));
    table(style, metadata, head, vec![row(style, raw)?])
}

/// A list as a `PartialObjectMetadataList`.
///
/// # Errors
/// When an item or the metadata is not the JSON of an object.
pub fn render_partial_list<'a>(
    version: MetaVersion,
    metadata: &str,
    items: impl IntoIterator<Item = &'a [u8]>,
) -> serde_json::Result<Bytes> {
    let items: Result<Vec<_>, _> = items.into_iter().map(|raw| partial(version, raw)).collect();
    let list = PartialList {
        kind: "PartialObjectMetadataList",
        api_version: version.as_str(),
        metadata: serde_json::from_str(metadata)?,
        items: items?,
    };
    serde_json::to_vec(&list).map(Bytes::from)
}

/// One object as a `PartialObjectMetadata`.
///
/// # Errors
/// When `raw` is not the JSON of an object with metadata.
pub fn render_partial(version: MetaVersion, raw: &[u8]) -> serde_json::Result<Bytes> {
    serde_json::to_vec(&partial(version, raw)?).map(Bytes::from)
}

fn partial(version: MetaVersion, raw: &[u8]) -> serde_json::Result<Partial<'_>> {
    let Partly { metadata } = serde_json::from_slice(raw)?;
    Ok(Partial {
        kind: "PartialObjectMetadata",
        api_version: version.as_str(),
        metadata,
    })
}

fn row<'a>(style: &Style, raw: &'a [u8]) -> serde_json::Result<Row<'a>> {
    let object: Value = serde_json::from_slice(raw)?;
    Ok(Row {
        cells: style.columns.cells(&object, style.now),
        conditions: completed(&object),
        object: match style.include {
            Include::None => RowObject::Nothing(()),
            Include::Metadata => RowObject::Metadata(partial(style.version, raw)?),
            Include::Object => RowObject::Object(serde_json::from_slice(raw)?),
        },
    })
}

/// Clients may grey out the rows of pods that have ended.
fn completed(object: &Value) -> Option<Value> {
    if object.get("kind").and_then(Value::as_str) != Some("Pod") {
        return None;
    }
    let phase = object.pointer("/status/phase").and_then(Value::as_str)?;
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

fn table(
    style: &Style,
    metadata: Value,
    head: Head,
    rows: Vec<Row<'_>>,
) -> serde_json::Result<Bytes> {
    let table = Table {
        kind: "Table",
        api_version: style.version.as_str(),
        metadata,
        column_definitions: match head {
            Head::Named => style.columns.definitions(),
            Head::Bare => Value::Null,
        },
        rows,
    };
    serde_json::to_vec(&table).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDGET: &str = r#"{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":"w","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","z":12345678901234567890},"spec":{"size":3,"on":true}}"#;

    fn style(include: Include) -> Style {
        let columns = json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "priority": 1},
            {"name": "Gone", "type": "string", "jsonPath": ".spec.gone"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]);
        Style {
            columns: Columns::custom(columns.as_array().expect("a list")).expect("paths"),
            version: MetaVersion::V1,
            include,
            now: "2026-01-01T00:05:00Z".parse().expect("a time"),
        }
    }

    #[test]
    fn a_list_becomes_rows_with_metadata_copied() {
        let meta = r#"{"resourceVersion":"9"}"#;
        let bytes =
            render_list(&style(Include::Metadata), meta, [WIDGET.as_bytes()]).expect("json");
        let table: Value = serde_json::from_slice(&bytes).expect("json");
        assert_eq!(table["metadata"]["resourceVersion"], "9");
        assert_eq!(table["columnDefinitions"][0]["format"], "name");
        assert_eq!(table["rows"][0]["cells"], json!(["w", 3, true, null, "5m"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        // A number beyond a double's precision came through untouched.
        let text = std::str::from_utf8(&bytes).expect("text");
        assert!(text.contains("12345678901234567890"), "{text}");
    }

    #[test]
    fn later_frames_are_bare_and_objects_are_as_asked() {
        let raw = WIDGET.as_bytes();
        let first = render_watch_object(&style(Include::None), Head::Named, raw).expect("json");
        let first: Value = serde_json::from_slice(&first).expect("json");
        assert_eq!(first["rows"][0]["object"], Value::Null);
        assert_eq!(first["metadata"]["resourceVersion"], "7");
        let later = render_watch_object(&style(Include::Object), Head::Bare, raw).expect("json");
        let later: Value = serde_json::from_slice(&later).expect("json");
        assert_eq!(later["columnDefinitions"], Value::Null);
        assert_eq!(later["rows"][0]["object"]["spec"]["size"], 3);
    }

    #[test]
    fn partial_lists_carry_metadata_alone() {
        let meta = r#"{"resourceVersion":"9"}"#;
        let bytes = render_partial_list(MetaVersion::V1, meta, [WIDGET.as_bytes()]).expect("json");
        let list: Value = serde_json::from_slice(&bytes).expect("json");
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(list["items"][0]["metadata"]["name"], "w");
        assert_eq!(list["items"][0].get("spec"), None);
    }
}
