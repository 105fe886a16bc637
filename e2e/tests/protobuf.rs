//! What the gateway's reader of protobuf bodies is made of and held against is what Kubernetes' own
//! types and encoders say: both are written anew and compared with what is committed. Its refusals
//! in protobuf say to their decoder what they say in JSON.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use sluice_e2e::parts::Parts;

const REMEDY: &str = "write it anew: see e2e/clients/protobuf/main.go";

/// Every file of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn table_and_fixtures_are_those_of_kubernetes_own_types() {
    let Some(parts) = Parts::find(&["protobuf"]) else {
        return;
    };
    let gateway = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway");
    let table = Command::new(parts.path("protobuf")).arg("table").output();
    let table = String::from_utf8(table.unwrap().stdout).unwrap();
    let committed = fs::read_to_string(gateway.join("src/api/protobuf/fields.txt")).unwrap();
    for (line, (new, old)) in table.lines().zip(committed.lines()).enumerate() {
        assert_eq!(new, old, "fields.txt, line {}: {REMEDY}", line + 1);
    }
    assert_eq!(table.len(), committed.len(), "fields.txt: {REMEDY}");

    let folder = tempfile::tempdir().unwrap();
    let written = Command::new(parts.path("protobuf"))
        .arg("golden")
        .arg(folder.path())
        .status();
    assert!(written.unwrap().success());
    let (new, old) = (
        files(folder.path()),
        files(&gateway.join("fixtures/protobuf")),
    );
    assert!(new.keys().eq(old.keys()), "fixtures/protobuf: {REMEDY}");
    for (name, bytes) in new {
        assert!(
            old.get(&name) == Some(&bytes),
            "fixtures/protobuf/{name}: {REMEDY}"
        );
    }
}

#[test]
fn a_refusal_in_protobuf_tells_a_go_client_all_of_it() {
    let Some(parts) = Parts::find(&["protobuf"]) else {
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway/fixtures/status");
    let names: Vec<_> = files(&folder).into_keys().collect();
    let encoded: Vec<_> = names
        .iter()
        .filter_map(|it| it.strip_suffix(".pb"))
        .collect();
    assert!(!encoded.is_empty());
    for name in encoded {
        let read = Command::new(parts.path("protobuf"))
            .arg("read")
            .arg(folder.join(format!("{name}.pb")))
            .output()
            .unwrap();
        assert!(read.status.success(), "{name}: {read:?}");
        let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        let expected = fs::read(folder.join(format!("{name}.json"))).unwrap();
        assert_eq!(json(&read.stdout), json(&expected), "{name}");
    }
}
