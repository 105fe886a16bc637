//! Against what Kubernetes' own encoders write (`fixtures/protobuf`, made by `e2e/clients/protobuf`
//! with both encodings of each object), and against messages that nobody should write.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::table::{Form, Place, TABLE};
use super::{DEPTH_MAX, Fault, TypeMeta, decode};

/// For envelopes that say themselves what they hold.
const UNSAID: TypeMeta<'static> = TypeMeta {
    api_version: "none",
    kind: "None",
};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/protobuf")
}

/// Takes away all that is allowed to differ from Go's JSON: fields that are null there, be they
/// lists without elements or times of zero.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => object
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn read(bytes: &[u8]) -> Value {
    decode(bytes, UNSAID).expect("an encoding of Go's").into()
}

/// Every sample in protobuf, by name.
fn samples() -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(fixtures()).expect("a folder");
    let mut found = Vec::new();
    for path in files.map(|file| file.expect("a file").path()) {
        if path.extension().is_some_and(|e| e == "pb") {
            let name = path.file_stem().expect("a name").to_string_lossy();
            found.push((name.into_owned(), fs::read(&path).expect("bytes")));
        }
    }
    found.sort();
    found
}

#[test]
fn samples_read_as_the_json_of_go() {
    let samples = samples();
    assert!(samples.len() >= 25, "{}", samples.len());
    for (name, bytes) in samples {
        let path = fixtures().join(format!("{name}.json"));
        let text = fs::read_to_string(path).expect("a twin");
        let twin = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read(&bytes), without_nulls(twin), "{name}");
    }
}

/// Three objects of each kind: empty, with every pointer, list and map set to nothing, and with
/// every field set.
#[test]
fn every_field_reads_as_the_json_of_go() {
    let text = fs::read_to_string(fixtures().join("every.jsonl")).expect("a file");
    let mut kinds = BTreeSet::new();
    for line in text.lines() {
        let object: Value = serde_json::from_str(line).expect("JSON");
        let bytes = object["protobuf"].as_str().expect("base64");
        let bytes = STANDARD.decode(bytes).expect("base64");
        let twin = object["json"].clone();
        let kind = |field: &str| twin[field].as_str().expect("said").to_owned();
        kinds.insert((kind("apiVersion"), kind("kind")));
        assert_eq!(read(&bytes), without_nulls(twin), "{}", object["name"]);
    }
    for kind in crate::api::builtin::kinds() {
        let key = (kind.api_version(), kind.kind.clone());
        assert!(
            kinds.contains(&key),
            "{key:?} is served and not in the table"
        );
    }
}

#[test]
fn these_messages_lie_within_others_in_json() {
    let inlined: BTreeSet<_> = TABLE
        .fields()
        .filter(|field| field.place == Place::Inline)
        .inspect(|field| assert!(matches!(field.form, Form::Message(_)), "{field:?}"))
        .map(|field| field.name)
        .collect();
    let expected = [
        "EphemeralContainerCommon",
        "IngressRuleValue",
        "LocalObjectReference",
        "PersistentVolumeSource",
        "ProbeHandler",
        "VolumeSource",
    ];
    assert_eq!(inlined, BTreeSet::from(expected));
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}

fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u64::try_from(content.len()).expect("short");
    [varint(number << 3 | 2), varint(length), content.to_vec()].concat()
}

fn count(number: u64, value: i64) -> Vec<u8> {
    [varint(number << 3), varint(value.cast_unsigned())].concat()
}

fn envelope(api_version: &str, kind: &str, message: impl AsRef<[u8]>) -> Vec<u8> {
    let types = [field(1, api_version), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, types), field(2, message)].concat()
}

#[test]
fn what_occurs_twice_merges_or_the_last_counts() {
    let security = field(4, [varint(1), varint(2)].concat());
    let security = [security, count(4, 3)].concat();
    let spec = [count(1, 3), field(3, field(2, field(14, security)))].concat();
    let message = [
        field(1, [field(1, "a"), field(3, "shop")].concat()),
        field(1, [field(1, ""), field(11, field(1, "k"))].concat()),
        field(2, spec),
        field(2, count(1, -1)),
        field(99, "passed over"),
    ]
    .concat();
    let object = read(&envelope("apps/v1", "Deployment", message));
    assert_eq!(
        object["metadata"],
        json!({"namespace": "shop", "labels": {"k": ""}})
    );
    assert_eq!(object["spec"]["replicas"], -1);
    let groups = &object["spec"]["template"]["spec"]["securityContext"]["supplementalGroups"];
    assert_eq!(groups, &json!([1, 2, 3]));
}

#[test]
fn an_envelope_may_leave_unsaid_what_it_holds() {
    let bytes = [b"k8s\0".to_vec(), field(2, field(1, field(1, "a")))].concat();
    let expected = TypeMeta {
        api_version: "v1",
        kind: "ConfigMap",
    };
    let object = decode(&bytes, expected).expect("a config map");
    assert_eq!(
        Value::Object(object),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    );
    // Options of a delete are of the group that they are sent to.
    let options = envelope("apps/v1", "DeleteOptions", count(1, 0));
    assert_eq!(read(&options)["gracePeriodSeconds"], 0);
}

fn fault(bytes: &[u8]) -> String {
    decode(bytes, UNSAID).expect_err("a fault").to_string()
}

#[test]
fn faults_say_where_they_are() {
    assert_eq!(decode(b"{}", UNSAID), Err(Fault::Envelope));
    assert!(fault(&envelope("v1", "Nothing", "")).contains("no kind \"Nothing\""));
    let config_map = |message: Vec<u8>| fault(&envelope("v1", "ConfigMap", message));
    let at = |text: String| text.split_once("at=").expect("a place").1.to_owned();
    // A length beyond the end; no wire type; a text that is none; a number for a message.
    assert_eq!(at(config_map(vec![0x0a, 0x7f])), "\"\"");
    assert_eq!(at(config_map(vec![0x0b])), "\"\"");
    assert_eq!(
        at(config_map(field(1, field(1, b"\xff")))),
        "\"metadata.name\""
    );
    assert_eq!(at(config_map(count(1, 1))), "\"metadata\"");
    // A time that no calendar has; raw content that is another message.
    let late = field(1, field(8, count(1, i64::MAX)));
    assert_eq!(at(config_map(late)), "\"metadata.creationTimestamp\"");
    let nested = envelope("v1", "Pod", "");
    let revision = envelope("apps/v1", "ControllerRevision", field(2, field(1, nested)));
    assert!(fault(&revision).contains("send the object as JSON"));
}

#[test]
fn what_is_too_deep_is_refused() {
    // A schema within a schema, by `not`.
    let schemas = |levels: usize| {
        let innermost = field(5, "object");
        let schema = (0..levels).fold(innermost, |inner, _| field(28, inner));
        let version = field(4, field(1, schema));
        let spec = field(7, version);
        let bytes = envelope(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            field(2, spec),
        );
        decode(&bytes, UNSAID)
    };
    let deepest = (1..DEPTH_MAX)
        .take_while(|levels| schemas(*levels).is_ok())
        .last();
    // Around it: object, spec, versions, version, schema, openAPIV3Schema.
    assert_eq!(deepest, Some(DEPTH_MAX - 6));
    let refused = schemas(100_000).expect_err("too deep").to_string();
    assert!(refused.contains("too many levels"), "{refused}");
    let raw = |levels: usize| {
        let text = ["[".repeat(levels), "]".repeat(levels)].concat();
        let bytes = envelope("apps/v1", "ControllerRevision", field(2, field(1, text)));
        decode(&bytes, UNSAID).is_ok()
    };
    assert!(raw(DEPTH_MAX - 1));
    assert!(!raw(DEPTH_MAX));
}

/// Numbers that are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }

    /// Breaks a message in one of the ways that matter: bytes changed, taken away, or doubled.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let (from, length) = (self.below(bytes.len()), 1 + self.below(8));
        let to = (from + length).min(bytes.len());
        match self.below(6) {
            0 => bytes.truncate(from),
            1 => drop(bytes.drain(from..to)),
            2 => bytes.extend_from_within(from..to),
            _ => bytes[from] = self.byte(),
        }
    }
}

/// Whatever comes, it is read or refused, and what is read can be read again from the store.
#[test]
fn damaged_messages_do_no_harm() {
    let mut dice = Dice(0x005e_ed0f_5e1f);
    let (mut read, mut refused) = (0, 0);
    let mut check = |bytes: &[u8]| match decode(bytes, UNSAID) {
        Ok(object) => {
            let text = Value::Object(object).to_string();
            serde_json::from_str::<Value>(&text).expect("JSON that can be stored");
            read += 1;
        }
        Err(_) => refused += 1,
    };
    for (_, sample) in samples() {
        for _ in 0..150 {
            let mut bytes = sample.clone();
            dice.damage(&mut bytes);
            check(&bytes);
            if !bytes.is_empty() {
                dice.damage(&mut bytes);
            }
            check(&bytes);
        }
    }
    for kind in ["Pod", "Event", "Service"] {
        for length in 0..200 {
            let message: Vec<_> = (0..length).map(|_| dice.byte()).collect();
            check(&envelope("v1", kind, message));
        }
    }
    // Both happen, or this test tests nothing.
    assert!(read > 300 && refused > 300, "read={read} refused={refused}");
}
