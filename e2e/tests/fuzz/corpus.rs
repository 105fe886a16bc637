//! Inputs that are kept: `e2e/corpus/<target>/`, in the order of the files' names.
//!
//! A `.txt` file holds one input a line, bytes beyond printable ASCII written as in Rust (`\n`,
//! `\xff`, `\\`); blank lines and lines that begin with `#` are passed over. Any other file is one
//! input as it stands.

use std::fs;
use std::path::{Path, PathBuf};

/// A place of the repository.
pub(crate) fn repository(place: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().join(place)
}

/// The inputs of a target.
pub(crate) fn of(target: &str) -> Vec<Vec<u8>> {
    let dir = repository("e2e/corpus").join(target);
    let mut files: Vec<PathBuf> = match fs::read_dir(&dir) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    let mut inputs = Vec::new();
    for file in files {
        if file.extension().is_some_and(|it| it == "txt") {
            let text = fs::read_to_string(&file).unwrap();
            let lines = text
                .lines()
                .filter(|l| !l.is_empty() && !l.starts_with('#'));
            inputs.extend(lines.map(|line| unescape(line, &file)));
        } else {
            inputs.push(fs::read(&file).unwrap());
        }
    }
    inputs
}

/// An input as one line of a corpus file.
pub(crate) fn escape(input: &[u8]) -> String {
    let line = input.escape_ascii().to_string();
    // Would be passed over as a remark.
    match line.strip_prefix('#') {
        Some(rest) => format!("\\x23{rest}"),
        None => line,
    }
}

fn unescape(line: &str, file: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'x') => {
                let digits = [rest.next(), rest.next()].map(|it| it.unwrap_or_default());
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                u8::from_str_radix(digits, 16)
                    .unwrap_or_else(|_| panic!("{}: \\x{digits} in {line}", file.display()))
            }
            Some(plain @ (b'\\' | b'\'' | b'"')) => plain,
            other => panic!("{}: escape {other:?} in {line}", file.display()),
        });
    }
    out
}

#[test]
fn escaped_inputs_come_back() {
    let all: Vec<u8> = (0..=255).collect();
    for input in [&all[..], b"#\\x'\"", b""] {
        assert_eq!(unescape(&escape(input), Path::new("none")), input);
    }
}
