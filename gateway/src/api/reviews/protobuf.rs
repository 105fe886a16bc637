//! Questions in protobuf: kubectl and client libraries ask in it, and read the answer as JSON.
//!
//! Only the fields a question needs are read, by number; all others are passed over. The envelope
//! is Kubernetes' own: four magic bytes, then `runtime.Unknown` with type and raw message.

use serde_json::{Map, Value, json};

use super::Review;
use crate::api::errors;
use crate::api::protobuf::wire::{self, Content as Found, Reader};
use crate::status::Refusal;

/// Of a review of any kind: `spec` is its second field, as metadata is the first.
const SPEC: u64 = 2;

/// A field worth reading: number, JSON name, what it is.
type Field = (u64, &'static str, Content);

#[derive(Clone, Copy)]
enum Content {
    Text,
    Texts,
    Message(&'static [Field]),
}

use Content::{Message, Text, Texts};

const RESOURCE: &[Field] = &[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
];
const PATH: &[Field] = &[(1, "path", Text), (2, "verb", Text)];
const ACCESS: &[Field] = &[
    (1, "resourceAttributes", Message(RESOURCE)),
    (2, "nonResourceAttributes", Message(PATH)),
    (3, "user", Text),
    (4, "groups", Texts),
    (6, "uid", Text),
];
const RULES: &[Field] = &[(1, "namespace", Text)];
const TOKEN: &[Field] = &[(1, "token", Text), (2, "audiences", Texts)];

impl Review {
    fn spec_fields(self) -> &'static [Field] {
        match self {
            Review::SelfSubject => &[],
            Review::SelfAccess | Review::Access | Review::LocalAccess => ACCESS,
            Review::SelfRules => RULES,
            Review::Token => TOKEN,
        }
    }

    /// Reads a question in its envelope as the JSON it would be.
    ///
    /// # Errors
    /// 400 for what is no such envelope.
    pub fn read_protobuf(self, bytes: &[u8]) -> Result<Map<String, Value>, Refusal> {
        self.decode(bytes).ok_or_else(|| {
            let kind = self.kind();
            errors::bad_request(format!("the body is not a {kind} in protobuf"))
        })
    }

    fn decode(self, bytes: &[u8]) -> Option<Map<String, Value>> {
        let (version, kind, raw) = wire::open(bytes)?;
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), json!(version));
        object.insert("kind".to_owned(), json!(kind));
        let mut message = Reader(raw);
        while let Some((number, content)) = message.field()? {
            if let (SPEC, Found::Bytes(content)) = (number, content)
                && self != Review::SelfSubject
            {
                let spec = read(content, self.spec_fields())?;
                object.insert("spec".to_owned(), Value::Object(spec));
            }
        }
        Some(object)
    }
}

fn read(bytes: &[u8], fields: &[Field]) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.field()? {
        let known = fields.iter().find(|(known, ..)| *known == number);
        let (Some((_, name, kind)), Found::Bytes(content)) = (known, content) else {
            continue;
        };
        match kind {
            Text => {
                let text = std::str::from_utf8(content).ok()?;
                if !text.is_empty() {
                    object.insert((*name).to_owned(), json!(text));
                }
            }
            Texts => {
                let text = std::str::from_utf8(content).ok()?;
                let list = object.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut()?.push(json!(text));
            }
            Message(fields) => {
                // Depth is that of the tables above, not of the input.
                let inner = read(content, fields)?;
                object.insert((*name).to_owned(), Value::Object(inner));
            }
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).expect("short")];
        out.extend_from_slice(content);
        out
    }

    fn sample() -> Vec<u8> {
        let resource = [
            field(1, b"shop"),
            field(2, b"get"),
            field(5, b"pods"),
            field(8, b"?"),
        ]
        .concat();
        let spec = [
            field(1, &resource),
            field(3, b"ann"),
            field(4, b"a"),
            field(4, b"b"),
        ]
        .concat();
        let message = [field(1, b""), field(2, &spec), vec![0x18, 0x80, 0x01]].concat();
        let types = [
            field(1, b"authorization.k8s.io/v1"),
            field(2, b"SubjectAccessReview"),
        ]
        .concat();
        [b"k8s\0".to_vec(), field(1, &types), field(2, &message)].concat()
    }

    #[test]
    fn a_question_reads_as_its_json() {
        let object = Review::Access
            .read_protobuf(&sample())
            .expect("an envelope");
        assert_eq!(
            Value::Object(object),
            json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {
                    "resourceAttributes": {"namespace": "shop", "verb": "get", "resource": "pods"},
                    "user": "ann", "groups": ["a", "b"],
                },
            })
        );
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let whole = sample();
        for end in 5..whole.len() {
            let cut = whole.get(..end).unwrap_or_default();
            // A cut between two fields of the envelope is a shorter envelope.
            let is_field_end = end == 4 + 2 + 46;
            assert_eq!(
                Review::Access.read_protobuf(cut).is_ok(),
                is_field_end,
                "{end}"
            );
        }
        assert!(Review::Access.read_protobuf(b"{}").is_err());
    }
}
