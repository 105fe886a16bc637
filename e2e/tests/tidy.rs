//! The repository's own rules, as tests: who may import whom, how long a file may be, that modules
//! say what they are, and that documents keep up.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// No source file is longer; tests aside.
const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Every file below `dir` with this extension, build output aside.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

fn is_test(path: &Path) -> bool {
    let text = shown(path);
    text.contains("/tests/")
        || text.ends_with("tests.rs")
        || text.contains("/benches/")
        || text.contains("/examples/")
}

fn report(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}

/// Lines with their comments cut off.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
}

#[test]
fn crates_import_in_one_direction() {
    let allowed: [(&str, &[&str]); 5] = [
        ("config", &[]),
        ("ratelimit", &[]),
        ("metastore", &[]),
        ("gateway", &["config", "metastore", "ratelimit"]),
        ("e2e", &["config", "gateway", "metastore", "ratelimit"]),
    ];
    let mut faults = Vec::new();
    for (name, may) in allowed {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        for line in manifest.lines() {
            let Some(other) = line
                .strip_prefix("sluice-")
                .and_then(|l| l.split([' ', '.']).next())
            else {
                continue;
            };
            if !may.contains(&other) {
                faults.push(format!("{name} depends on {other}"));
            }
        }
    }
    report("a crate imports only what lies below it", &faults);
}

#[test]
fn only_the_etcd_listener_names_a_wire_library_in_metastore() {
    let wire = [
        "hyper::",
        "hyper_util",
        "tonic",
        "axum",
        "http::",
        "prost",
        "h2::",
    ];
    let faults: Vec<String> = files(&root().join("metastore/src"), "rs")
        .iter()
        .filter(|path| !shown(path).starts_with("metastore/src/etcd/"))
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap();
            code_lines(&text).any(|line| wire.iter().any(|name| line.contains(name)))
        })
        .map(|path| shown(path))
        .collect();
    report(
        "hyper and tonic are named only under metastore/src/etcd/",
        &faults,
    );
}

/// Cores are handed the time and what was read; who waits, listens or starts threads is above them.
#[test]
fn config_and_ratelimit_do_nothing_by_themselves() {
    let acts = [
        "async ",
        ".await",
        "tokio",
        "http::",
        "std::net::Tcp",
        "std::net::Udp",
        "std::thread",
        "std::process",
        "Instant::now",
        "SystemTime::now",
    ];
    let mut faults = Vec::new();
    for place in ["config/src", "ratelimit/src"] {
        for path in files(&root().join(place), "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for line in code_lines(&text) {
                if acts.iter().any(|act| line.contains(act)) {
                    faults.push(format!("{}: {}", shown(&path), line.trim()));
                }
            }
        }
    }
    report("config and ratelimit are inert", &faults);
}

/// The gate builds them first: a suite that builds one for itself does so beside the others.
#[test]
fn every_real_part_of_a_suite_is_built_by_make_parts() {
    let script = fs::read_to_string(root().join("e2e/parts/build.sh")).unwrap();
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let made = makefile
        .lines()
        .find_map(|line| line.trim().strip_prefix("e2e/parts/build.sh "))
        .unwrap();
    let made: Vec<&str> = made.split(' ').collect();
    // The arms of the script's one `case` are the names it knows.
    let known: BTreeSet<&str> = script
        .lines()
        .filter_map(|line| line.trim().split_once(')'))
        .filter(|(arm, _)| {
            arm.chars()
                .all(|c| c.is_ascii_lowercase() || " |-".contains(c))
        })
        .flat_map(|(arm, _)| arm.split(" | "))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(known.len() > 5, "e2e/parts/build.sh knows {known:?}");
    let mut faults = Vec::new();
    for path in files(&root().join("e2e/tests"), "rs") {
        let text = fs::read_to_string(&path).unwrap();
        if !text.contains("Parts::find") {
            continue;
        }
        let asked = known
            .iter()
            .filter(|name| text.contains(&format!("\"{name}\"")));
        let missing = asked.filter(|name| !made.contains(name));
        faults.extend(missing.map(|name| format!("{} asks for {name}", shown(&path))));
    }
    report("make parts builds what the suites ask for", &faults);
}

#[test]
fn only_bootstrap_and_control_name_config_types() {
    let free = ["bootstrap/", "control/", "cli/", "main.rs"];
    let faults: Vec<String> = files(&root().join("gateway/src"), "rs")
        .iter()
        .filter(|path| {
            let inside = shown(path).trim_start_matches("gateway/src/").to_owned();
            !free.iter().any(|f| inside.starts_with(f))
        })
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap();
            code_lines(&text)
                .any(|line| line.contains("sluice_config::") || line.contains("use sluice_config"))
        })
        .map(|path| shown(path))
        .collect();
    report(
        "a request is served from compiled values, never from config types",
        &faults,
    );
}

/// Inside the gateway: a module, and the modules it must not know.
#[test]
fn gateway_modules_keep_their_ranks() {
    let above = [
        "pipeline",
        "control",
        "bootstrap",
        "cli",
        "admin",
        "listener",
    ];
    let with = |more: &[&'static str]| [&above[..], more].concat();
    let leaf = with(&[
        "upstream", "forward", "api", "flow", "authn", "audit", "profile",
    ]);
    let never = [
        ("request", leaf.clone()),
        ("identity.rs", leaf.clone()),
        ("status.rs", leaf.clone()),
        ("material.rs", leaf.clone()),
        ("body.rs", leaf.clone()),
        ("http2", leaf),
        ("upstream", with(&["forward", "api", "flow"])),
        ("forward", with(&["api", "flow", "audit", "profile"])),
        (
            "api",
            with(&["forward", "upstream", "flow", "audit", "profile"]),
        ),
        (
            "flow",
            with(&["forward", "upstream", "api", "audit", "profile"]),
        ),
        (
            "authn",
            with(&["forward", "upstream", "api", "flow", "audit", "profile"]),
        ),
        (
            "audit",
            with(&["forward", "upstream", "api", "flow", "profile"]),
        ),
        ("profile", with(&["forward", "upstream", "api", "flow"])),
    ];
    let src = root().join("gateway/src");
    let mut faults = Vec::new();
    for (module, banned) in never {
        let place = src.join(module);
        let sources = if place.is_dir() {
            files(&place, "rs")
        } else {
            vec![place]
        };
        assert!(
            !sources.is_empty(),
            "gateway/src/{module} is gone: mend this table"
        );
        for path in sources.iter().filter(|path| !is_test(path)) {
            let text = fs::read_to_string(path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            for line in code_lines(text) {
                for name in &banned {
                    if line.contains(&format!("crate::{name}::"))
                        || line.contains(&format!("use crate::{name};"))
                        || line.contains(&format!("crate::{{{name}"))
                    {
                        faults.push(format!("{}: {}", shown(path), line.trim()));
                    }
                }
            }
        }
    }
    report("a gateway module imports only what lies below it", &faults);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut faults = Vec::new();
    for path in files(&root(), "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        if lines > LINES_MAX && !is_test(&path) {
            faults.push(format!("{} has {lines} lines", shown(&path)));
        }
        if !text.starts_with("//!") && !text.starts_with("#![") {
            faults.push(format!("{} has no module docs", shown(&path)));
        }
        if let Some(line) = text.lines().position(|line| !line.is_ascii()) {
            faults.push(format!("{}:{} is not ASCII", shown(&path), line + 1));
        }
    }
    report("a source file is short, documented and ASCII", &faults);
}

#[test]
fn documents_name_every_metric() {
    let reference = fs::read_to_string(root().join("gateway/METRICS.md")).unwrap();
    let source = fs::read_to_string(root().join("gateway/src/telemetry/names.rs")).unwrap();
    let names: BTreeSet<&str> = source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains('_') && !name.contains(' '))
        .collect();
    assert!(
        names.len() > 5,
        "gateway/src/telemetry/names.rs names no metrics"
    );
    let faults: Vec<String> = names
        .iter()
        .filter(|n| !reference.contains(**n))
        .map(|n| (*n).to_owned())
        .collect();
    report("gateway/METRICS.md names every metric", &faults);
}

/// Whether a path that begins with `place` stands in the line: one with something before it, as in
/// `/namespaces/work/pods`, does not.
fn begins_in(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().last());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}'))
    })
}

#[test]
fn nothing_of_one_machine_is_in_the_tree() {
    let mut faults = Vec::new();
    for extension in ["rs", "md", "toml", "sh", "yaml", "go", "py"] {
        for path in files(&root(), extension) {
            if path.ends_with("tidy.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for (n, line) in text.lines().enumerate() {
                if ["/root/", "/work/", "/home/"]
                    .iter()
                    .any(|place| begins_in(line, place))
                {
                    faults.push(format!("{}:{}: {}", shown(&path), n + 1, line.trim()));
                }
            }
        }
    }
    report("no path of one machine is written down", &faults);
}

#[test]
fn dependencies_are_single_and_of_one_provider() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let versions = |name: &str| {
        lock.split("[[package]]")
            .filter(|p| p.contains(&format!("\nname = \"{name}\"\n")))
            .count()
    };
    for name in [
        "hyper",
        "rustls",
        "h2",
        "http",
        "tokio",
        "dashmap",
        "mimalloc",
        "aws-lc-rs",
    ] {
        assert_eq!(versions(name), 1, "{name} must be there exactly once");
    }
    for name in ["openssl", "native-tls", "tikv-jemallocator"] {
        assert_eq!(versions(name), 0, "{name} must not be there");
    }
    // A lockfile keeps optional dependencies too: what is built is what counts.
    let output = std::process::Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--locked",
            "--offline",
            "--prefix",
            "none",
            "-e",
            "all",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        tree.lines().any(|l| l.starts_with("aws-lc-rs ")),
        "aws-lc-rs is not built"
    );
    assert!(
        !tree.lines().any(|l| l.starts_with("ring ")),
        "ring is built beside aws-lc-rs"
    );
}

#[test]
fn manifests_take_dependencies_and_lints_from_the_workspace() {
    let mut faults = Vec::new();
    for name in ["config", "ratelimit", "metastore", "gateway", "e2e"] {
        let text = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        if !text.contains("[lints]\nworkspace = true") {
            faults.push(format!("{name} does not take the workspace's lints"));
        }
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section.contains("dependencies")
                && line.contains('=')
                && !line.contains("workspace = true")
            {
                faults.push(format!("{name}: {line}"));
            }
        }
    }
    report("dependencies are declared once, in the workspace", &faults);
}
