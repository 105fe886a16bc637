//! Messages as a client writes them, against the JSON they stand for.

use serde_json::{Value, json};

use super::{TABLE, decode};

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

fn bytes(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u64::try_from(content.len()).expect("short");
    [varint(number << 3 | 2), varint(length), content.to_vec()].concat()
}

fn count(number: u64, value: i64) -> Vec<u8> {
    [varint(number << 3), varint(value.cast_unsigned())].concat()
}

fn envelope(version: &str, kind: &str, message: Vec<u8>) -> Vec<u8> {
    let types = [bytes(1, version), bytes(2, kind)].concat();
    [
        b"k8s\0".to_vec(),
        bytes(1, types),
        bytes(2, message),
        bytes(3, ""),
        bytes(4, ""),
    ]
    .concat()
}

#[test]
fn table_names_every_message_it_uses() {
    assert!(TABLE.len() > 300, "{}", TABLE.len());
    for (name, fields) in TABLE.iter() {
        for field in fields.values() {
            if let super::Kind::Message(inner) = field.kind {
                assert!(TABLE.contains_key(inner), "{name} uses {inner}");
            }
        }
    }
}

#[test]
fn secret_comes_with_its_bytes_in_base64() {
    let metadata = [
        bytes(1, "s"),
        bytes(2, ""),
        bytes(8, ""),
        bytes(11, [bytes(1, "k"), bytes(2, "v")].concat()),
    ];
    let data = [bytes(1, "a"), bytes(2, b"\xffb")].concat();
    let message = [
        bytes(1, metadata.concat()),
        bytes(2, data),
        bytes(3, "Opaque"),
    ]
    .concat();
    let object = decode(&envelope("v1", "Secret", message)).expect("a secret");
    assert_eq!(
        Value::Object(object),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"a": "/2I="},
            "metadata": {"name": "s", "labels": {"k": "v"}},
        })
    );
}

#[test]
fn deployment_keeps_pointers_and_inlines_what_json_inlines() {
    let limit = [bytes(1, "cpu"), bytes(2, bytes(1, "100m"))].concat();
    let port = [count(3, 80), bytes(1, "")].concat();
    let probe = [
        bytes(
            1,
            bytes(
                2,
                [
                    bytes(1, "/up"),
                    bytes(2, [count(1, 1), bytes(3, "http")].concat()),
                ]
                .concat(),
            ),
        ),
        count(2, 0),
    ];
    let container = [
        bytes(1, "c"),
        bytes(2, ""),
        bytes(6, port),
        bytes(8, bytes(1, limit)),
        bytes(10, probe.concat()),
        bytes(13, ""),
    ];
    let volume = [bytes(1, "v"), bytes(2, bytes(2, ""))].concat();
    let pod = [bytes(1, volume), bytes(2, container.concat()), count(4, -1)].concat();
    let spec = [
        count(1, 0),
        bytes(2, ""),
        bytes(3, [bytes(1, ""), bytes(2, pod)].concat()),
        count(7, 0),
    ];
    let message = [
        bytes(1, bytes(1, "d")),
        bytes(2, spec.concat()),
        bytes(3, count(1, 0)),
    ]
    .concat();
    let object = decode(&envelope("apps/v1", "Deployment", message)).expect("a deployment");
    assert_eq!(
        Value::Object(object),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {
                "replicas": 0, "selector": {},
                "template": {"spec": {
                    "terminationGracePeriodSeconds": -1,
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{
                        "name": "c", "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "100m"}},
                        "livenessProbe": {"httpGet": {"path": "/up", "port": "http"}},
                    }],
                }},
            },
        })
    );
}

#[test]
fn lease_times_keep_their_microseconds() {
    let at = [count(1, 1_700_000_000), count(2, 123_456_000)].concat();
    let spec = [bytes(1, "me"), count(2, 15), bytes(4, at)].concat();
    let message = [bytes(1, bytes(1, "l")), bytes(2, spec)].concat();
    let object = decode(&envelope("coordination.k8s.io/v1", "Lease", message)).expect("a lease");
    assert_eq!(
        object["spec"],
        json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15,
            "renewTime": "2023-11-14T22:13:20.123456Z",
        })
    );
}

#[test]
fn what_is_damaged_or_unknown_is_none() {
    let whole = envelope("v1", "ConfigMap", bytes(1, bytes(1, "c")));
    assert!(decode(&whole).is_some());
    assert!(decode(b"{}").is_none());
    assert!(decode(&envelope("v1", "Nothing", Vec::new())).is_none());
    // A length beyond the end, an unknown wire type, a text that is none.
    assert!(decode(&envelope("v1", "ConfigMap", vec![0x0a, 0x7f])).is_none());
    assert!(decode(&envelope("v1", "ConfigMap", vec![0x0b])).is_none());
    assert!(decode(&envelope("v1", "ConfigMap", bytes(1, bytes(1, b"\xff")))).is_none());
}
