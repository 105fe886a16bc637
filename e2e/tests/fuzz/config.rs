//! Configuration files: whatever is wrong with one is told with its place, and a remark put before
//! the first line of one that is not empty moves every place down by a line and changes nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_config::{Diagnostic, Diagnostics, load, load_rules};
use sluice_gateway::control;

use crate::corpus::repository;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

const SHAPE: Shape = Shape {
    cuts: b"\n:",
    words: &[
        "apiVersion: sluice.io/v1alpha1",
        "kind: GatewayConfig",
        "kind: RateRules",
        "---",
        "spec:",
        "  rules:",
        "  - name: a",
        "    mode: observe",
        "    rate: { perSecond: 10, burst: 20 }",
        "listen:",
        "  address: 127.0.0.1:0",
        "default: true",
        " 30s",
        " 0",
        " -1",
        " 1e9",
        " 8GiB",
        " true",
        " null",
        " \"*\"",
        " [a, -b, \"!c\"]",
        " {}",
        " []",
        " &a",
        " *a",
        " !!str 1",
        " |",
        "\t",
        "# x",
        " https://[::1]:6443",
        " 2562047h",
        " 99999999999999999999",
    ],
    bytes_max: 4000,
};

pub(crate) fn target() -> Target {
    let dir = tempfile::tempdir().unwrap();
    let examples = repository("config/examples");
    let mut seeds = Vec::new();
    prepare(&examples, dir.path(), &mut seeds);
    Target {
        name: "config",
        shape: SHAPE,
        seeds,
        check: Box::new(move |input| check(dir.path(), input)),
    }
}

/// Reads every example file, and makes the files of certificates that they name.
fn prepare(from: &Path, dir: &Path, seeds: &mut Vec<Vec<u8>>) {
    fs::create_dir_all(dir.join("rules")).unwrap();
    fs::create_dir_all(dir.join("tls")).unwrap();
    let mut places: Vec<PathBuf> = fs::read_dir(from)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    places.sort();
    for place in places {
        if place.is_dir() {
            prepare(&place, dir, seeds);
            continue;
        }
        let text = fs::read_to_string(place).unwrap();
        for word in text.split([' ', ',', '}', '\n']) {
            let file = word.trim_start_matches("../");
            if file.starts_with("tls/") {
                fs::write(dir.join(file), "").unwrap();
            }
        }
        seeds.push(text.into_bytes());
    }
}

fn check(dir: &Path, input: &[u8]) -> Result<Verdict, String> {
    let is_process = input.windows(13).any(|window| window == b"GatewayConfig");
    let file = match is_process {
        true => dir.join("gateway.yaml"),
        false => dir.join("rules/rules.yaml"),
    };
    let first = read(dir, &file, is_process, input)?;
    let is_text = std::str::from_utf8(input);
    let is_empty = is_text.is_ok_and(|text| text.trim().is_empty());
    if is_empty && first.is_ok() {
        return Err("an empty file is taken".to_owned());
    }
    let remarked = [b"# a remark\n", input].concat();
    // A mark of the byte order is one at the beginning only; and a remark is not nothing.
    if is_text.is_ok() && !is_empty && !input.starts_with(b"\xef\xbb\xbf") {
        let moved = read(dir, &file, is_process, &remarked)?;
        let moved_back = moved.map_err(|faults| {
            let back = |mut fault: Diagnostic| {
                fault.at.line = fault.at.line.saturating_sub(1);
                fault
            };
            faults.into_iter().map(back).collect::<Vec<_>>()
        });
        if moved_back != first {
            return Err(format!("{first:#?}\n and behind a remark {moved_back:#?}"));
        }
    }
    fs::remove_file(&file).unwrap();
    Ok(match first {
        Ok(()) => Verdict::Accepted,
        Err(_) => Verdict::Refused,
    })
}

/// Loads one text, and checks each fault's place against it.
fn read(
    dir: &Path,
    file: &Path,
    is_process: bool,
    text: &[u8],
) -> Result<Result<(), Vec<Diagnostic>>, String> {
    fs::write(file, text).unwrap();
    let faults = match is_process {
        true => match load(file) {
            Ok(loaded) => {
                // Certificates are empty files, so there are complaints.
                let complaints = control::unusable(&loaded.process, &loaded.rules);
                if complaints.iter().any(String::is_empty) {
                    return Err(format!("a complaint says nothing: {complaints:?}"));
                }
                Ok(())
            }
            Err(faults) => Err(faults),
        },
        false => load_rules(&dir.join("rules")).map(drop),
    };
    let Err(faults) = faults else {
        return Ok(Ok(()));
    };
    check_places(file, text, &faults)?;
    Ok(Err(faults.iter().cloned().collect()))
}

fn check_places(file: &Path, text: &[u8], faults: &Diagnostics) -> Result<(), String> {
    if faults.len() == 0 {
        return Err("refused without a fault".to_owned());
    }
    let text = String::from_utf8_lossy(text);
    // To YAML a carriage return alone ends a line; editors, and the excerpts, count line feeds.
    let is_counted_otherwise = text.replace("\r\n", "").contains('\r');
    for fault in faults.iter() {
        let shown = fault.to_string();
        if fault.message.is_empty() || !fault.file.is_absolute() {
            return Err(format!("a fault says too little: {shown:?}"));
        }
        // Others are named by what the text says, such as a folder of rules.
        if fault.file != file || fault.at.line == 0 || is_counted_otherwise {
            continue;
        }
        let index = usize::try_from(fault.at.line - 1).unwrap();
        let line = text.lines().nth(index).unwrap_or_default();
        let is_inside = index <= text.lines().count();
        let is_line = fault.line.is_empty() || fault.line.trim_end() == line.trim_end();
        let column = usize::try_from(fault.at.column).unwrap();
        if !is_inside || !is_line || column == 0 || column > line.chars().count() + 1 {
            return Err(format!("a fault is misplaced: {shown:?} in {line:?}"));
        }
    }
    Ok(())
}
