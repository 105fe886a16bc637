//! Objects in protobuf, as clients send built-in kinds: what is encoded here, by hand from the
//! published field numbers, comes back as the JSON that it stands for; damaged, it is refused or
//! read, and never a failure of the server's.
//!
//! An input is a program that makes a ConfigMap, and then damages it.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::bodies::{Server, verdict};
use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

const URI: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const MEDIA: &str = "application/vnd.kubernetes.protobuf";

pub(crate) fn target() -> Target {
    let server = Server::start();
    Target {
        name: "protobuf",
        shape: Shape::program(120),
        seeds: vec![Vec::new()],
        check: Box::new(move |input| check(&server, input)),
    }
}

fn check(server: &Server, input: &[u8]) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    let (model, mut bytes) = config_map(&mut feed);
    let is_damaged = !feed.is_empty();
    while !feed.is_empty() {
        damage(&mut feed, &mut bytes);
    }
    let answer = server.ask(&Method::POST, URI, MEDIA, &bytes)?;
    let answer = answer.ok_or("protobuf cannot be sent")?;
    if is_damaged {
        return Ok(verdict(answer.code));
    }
    if answer.code != StatusCode::CREATED {
        return Err(format!("{} refused: {}", model, answer.json));
    }
    let mut found = answer.json;
    if let Some(metadata) = found["metadata"].as_object_mut() {
        metadata.retain(|field, _| field != "uid" && field != "creationTimestamp");
    }
    match found == model {
        true => Ok(Verdict::Accepted),
        false => Err(format!("sent {model}\nread {found}")),
    }
}

fn varint(out: &mut Vec<u8>, mut number: usize) {
    while number > 127 {
        out.push(u8::try_from(number & 127).unwrap() | 128);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

/// A field of bytes: a text, or a message.
fn put(out: &mut Vec<u8>, field: usize, content: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, content.len());
    out.extend_from_slice(content);
}

/// Entries of a map, and what they are in JSON.
fn map(feed: &mut Feed<'_>, field: usize, out: &mut Vec<u8>, values: &[&str]) -> Option<Value> {
    let mut model = Map::new();
    for _ in 0..feed.below(4) {
        let key = format!("k{}", feed.text(&["a", "0", "-", "."], 3)) + "z";
        let value = feed.text(values, 3);
        let mut entry = Vec::new();
        put(&mut entry, 1, key.as_bytes());
        // An empty text need not be there.
        if !value.is_empty() || feed.below(2) == 0 {
            put(&mut entry, 2, value.as_bytes());
        }
        put(out, field, &entry);
        model.insert(key, value.into());
    }
    Some(Value::Object(model)).filter(|model| *model != json!({}))
}

fn config_map(feed: &mut Feed<'_>) -> (Value, Vec<u8>) {
    let mut model = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let (mut metadata, mut message) = (Vec::new(), Vec::new());
    let name = format!("n{}z", feed.text(&["a", "b", "-"], 4));
    put(&mut metadata, 1, name.as_bytes());
    put(&mut metadata, 3, b"default");
    model["metadata"] = json!({"name": name, "namespace": "default"});
    if let Some(labels) = map(feed, 11, &mut metadata, &["a", "7"]) {
        model["metadata"]["labels"] = labels;
    }
    if let Some(annotations) = map(feed, 12, &mut metadata, &["{\"a\":1}", "\u{e9}", "\n", " "]) {
        model["metadata"]["annotations"] = annotations;
    }
    put(&mut message, 1, &metadata);
    if let Some(data) = map(
        feed,
        2,
        &mut message,
        &["text", "\u{1f600}", "\"", "\\u0000", "\t"],
    ) {
        model["data"] = data;
    }
    if feed.below(2) == 1 {
        varint(&mut message, 4 << 3);
        message.push(1);
        model["immutable"] = true.into();
    }
    let (mut kinds, mut envelope) = (Vec::new(), b"k8s\0".to_vec());
    put(&mut kinds, 1, b"v1");
    put(&mut kinds, 2, b"ConfigMap");
    put(&mut envelope, 1, &kinds);
    put(&mut envelope, 2, &message);
    (model, envelope)
}

fn damage(feed: &mut Feed<'_>, bytes: &mut Vec<u8>) {
    let at = feed.below(bytes.len() + 1);
    let until = (at + 1 + feed.below(8)).min(bytes.len());
    match feed.below(6) {
        0 => bytes.insert(at, feed.byte()),
        1 if at < until => drop(bytes.drain(at..until)),
        2 => bytes.truncate(at),
        3 if at < until => {
            let copy = bytes[at..until].to_vec();
            bytes.splice(at..at, copy);
        }
        // Another kind: its fields are read out of these.
        4 => {
            let kind = feed.pick(&["Pod", "Service", "Secret", "Node", "Event", "DeleteOptions"]);
            let (mut kinds, mut envelope) = (Vec::new(), b"k8s\0".to_vec());
            put(&mut kinds, 1, b"v1");
            put(&mut kinds, 2, kind.as_bytes());
            put(&mut envelope, 1, &kinds);
            put(&mut envelope, 2, bytes.get(17..).unwrap_or_default());
            *bytes = envelope;
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = feed.byte();
            }
        }
    }
}
