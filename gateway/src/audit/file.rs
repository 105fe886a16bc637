//! The audit file: appended to, rotated by size, old ones removed.
//!
//! Rotated files carry the time of their rotation in their name, like a kube-apiserver's:
//! `audit.log` becomes `audit-2026-01-31T13-00-00.000.log`. A disk that refuses does not stop the
//! process: the refusal is logged once, what was lost is counted, and writing is tried again with
//! each event.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::event::{AdminChange, Event};
use super::format;
use super::recorder::Sink;

/// Where, and how much is kept.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The file.
    pub path: PathBuf,
    /// Its size at which it is rotated.
    pub bytes_max: u64,
    /// Rotated files that are kept.
    pub backups_max: usize,
}

/// Writes events to a file.
pub struct FileSink {
    options: FileOptions,
    file: Option<BufWriter<File>>,
    written: u64,
    failing: bool,
    /// The line being written; kept for its room.
    text: Vec<u8>,
    /// Lines that are in the buffer, or may be.
    unflushed: u64,
    lost: u64,
}

impl FileSink {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// When it cannot be opened; a wrong path is then known at start and not at the first request.
    pub fn open(options: FileOptions) -> std::io::Result<Self> {
        let (file, written) = open(&options.path)?;
        Ok(FileSink {
            options,
            file: Some(file),
            written,
            failing: false,
            text: Vec::new(),
            unflushed: 0,
            lost: 0,
        })
    }

    fn line(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.text.clear();
        write(&mut self.text);
        match self.append() {
            Ok(()) => self.failing = false,
            Err(e) => {
                self.lost += 1;
                self.fail(&e);
            }
        }
    }

    /// What is in the buffer goes with the file.
    fn fail(&mut self, error: &std::io::Error) {
        if !self.failing {
            let path = self.options.path.display();
            tracing::error!(%path, %error, "audit events cannot be written");
        }
        self.failing = true;
        self.file = None;
        self.lost += std::mem::take(&mut self.unflushed);
    }

    fn append(&mut self) -> std::io::Result<()> {
        let length = self.text.len() as u64;
        if self.written > 0 && self.written + length > self.options.bytes_max {
            self.rotate()?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let (file, written) = open(&self.options.path)?;
                self.written = written;
                self.file.insert(file)
            }
        };
        file.write_all(&self.text)?;
        self.written += length;
        self.unflushed += 1;
        Ok(())
    }

    /// Begins a new file. One that cannot be moved is written on, and one that cannot be removed
    /// stays: neither costs an event.
    fn rotate(&mut self) -> std::io::Result<()> {
        if let Some(file) = &mut self.file {
            file.flush()?;
            self.unflushed = 0;
        }
        // Also where it fails: it is tried again when as much has been written once more.
        self.written = 0;
        let path = &self.options.path;
        if let Err(error) = std::fs::rename(path, rotated_name(path)) {
            tracing::error!(path = %path.display(), %error, "the audit file cannot be rotated");
            return Ok(());
        }
        self.file = None;
        if let Err(error) = self.remove_surplus() {
            tracing::warn!(path = %path.display(), %error, "an old audit file cannot be removed");
        }
        Ok(())
    }

    fn remove_surplus(&self) -> std::io::Result<()> {
        let mut old = rotated(&self.options.path)?;
        // Names sort by time.
        old.sort();
        let surplus = old.len().saturating_sub(self.options.backups_max);
        let removed = old.iter().take(surplus).map(std::fs::remove_file);
        // One that stays does not keep the others.
        removed.fold(Ok(()), std::io::Result::and)
    }
}

impl Sink for FileSink {
    fn event(&mut self, event: &Event) {
        self.line(|out| format::line(out, event));
    }

    fn admin(&mut self, change: &AdminChange) {
        self.line(|out| format::admin_line(out, change));
    }

    fn flush(&mut self) {
        match self.file.as_mut().map(std::io::Write::flush) {
            Some(Err(e)) => self.fail(&e),
            Some(Ok(())) => self.unflushed = 0,
            None => {}
        }
    }

    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

fn open(path: &Path) -> std::io::Result<(BufWriter<File>, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((BufWriter::with_capacity(64 * 1024, file), length))
}

fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|p| p.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let extension = match text(path.extension()) {
        empty if empty.is_empty() => empty,
        extension => format!(".{extension}"),
    };
    (format!("{}-", text(path.file_stem())), extension)
}

fn rotated_name(path: &Path) -> PathBuf {
    let (stem, extension) = parts(path);
    let micros = i64::try_from(crate::clock::wall().as_micros()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    path.with_file_name(format!(
        "{stem}{}{extension}",
        time.strftime("%Y-%m-%dT%H-%M-%S.%6f")
    ))
}

fn rotated(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (stem, extension) = parts(path);
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let middle = name
            .strip_prefix(&stem)
            .and_then(|n| n.strip_suffix(&extension));
        if middle.is_some_and(|m| m.starts_with("20") && m.contains('T')) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
