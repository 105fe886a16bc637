//! The examples load, without one word of complaint.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::fs;
use std::path::Path;

use sluice_config::{KeyField, load};

/// Copies an example and makes the certificate files that it names, which are nobody's to publish.
fn prepare(example: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("examples")
            .join(example),
        dir.path(),
    );
    fs::create_dir(dir.path().join("tls")).unwrap();
    for name in [
        "server",
        "admin",
        "admin-ca",
        "prod-ca",
        "prod-client",
        "prod-client-ca",
        "prod-server",
        "staging-ca",
        "ca",
        "etcd",
        "etcd-ca",
    ] {
        for extension in ["crt", "key"] {
            fs::write(
                dir.path().join("tls").join(format!("{name}.{extension}")),
                "",
            )
            .unwrap();
        }
    }
    fs::write(dir.path().join("tls/staging-token"), "").unwrap();
    dir
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn every_example_loads() {
    let mut count = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let dir = prepare(&name);
        if let Err(faults) = load(&dir.path().join("gateway.yaml")) {
            panic!("{name}:\n{}", faults.render());
        }
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn front_example_says_what_it_says() {
    let dir = prepare("front");
    let loaded = load(&dir.path().join("gateway.yaml")).unwrap();
    let names: Vec<&str> = loaded
        .rules
        .clusters
        .iter()
        .map(|cluster| cluster.metadata.name.as_str())
        .collect();
    assert_eq!(names, ["prod", "staging"]);
    let prod = loaded.rules.clusters.first().unwrap();
    let urls: Vec<String> = prod
        .spec
        .endpoints
        .iter()
        .map(|e| e.url.to_string())
        .collect();
    assert_eq!(
        urls,
        [
            "https://10.0.0.1:6443",
            "https://10.0.0.2:6443",
            "https://[fd00::3]:6443"
        ]
    );
    let ca = prod.spec.tls.as_ref().unwrap().ca_file.as_path();
    assert!(ca.is_absolute() && ca.ends_with("tls/prod-ca.crt"));
    // Files by name, documents as written.
    let names: Vec<&str> = loaded
        .rules
        .rates
        .iter()
        .map(|rates| rates.metadata.name.as_str())
        .collect();
    assert_eq!(names, ["everywhere", "default"]);
    let rules = &loaded.rules.rates.last().unwrap().spec.rules;
    let scrapers = rules
        .iter()
        .find(|rule| rule.name.as_str() == "scrapers")
        .unwrap();
    assert!(scrapers.in_flight.as_ref().unwrap().key.is_empty());
    let everybody = rules.last().unwrap();
    assert_eq!(**everybody.rate.as_ref().unwrap().key, [KeyField::User]);
    assert_eq!(loaded.rules.files.len(), 2 + 8);
}
