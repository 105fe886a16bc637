//! Faults in what operators wrote: place, what is wrong, what to do instead.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::located::Position;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file.
    pub file: PathBuf,
    /// The place in it; line zero when the fault is about the file as a whole.
    pub at: Position,
    /// What is wrong, with the value.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// The line at fault as written, or the part of a long one around the place; empty when there is
    /// none.
    pub line: String,
    /// Characters of `line` before the place.
    pub before: usize,
}

/// Characters of a line that are shown: what a terminal shows in two lines or less. A file may be one
/// line of megabytes, and have thousands of faults.
const SHOWN_MAX: usize = 160;

/// Those of them before the place.
const SHOWN_BEFORE: usize = 60;

/// Stands for what is left out.
const LEFT_OUT: &str = "...";

impl Diagnostic {
    /// A fault of a whole file.
    pub(crate) fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Diagnostic {
            file: file.to_owned(),
            at: Position::default(),
            message: message.into(),
            help: None,
            line: String::new(),
            before: 0,
        }
    }

    /// Shows `line`, or the part of it around the place.
    pub(crate) fn shown(mut self, line: &str) -> Self {
        let column = usize::try_from(self.at.column).unwrap_or(1);
        let before = column.saturating_sub(1);
        if line.chars().nth(SHOWN_MAX).is_none() {
            self.line = line.to_owned();
            self.before = before;
            return self;
        }
        let skipped = before.saturating_sub(SHOWN_BEFORE);
        let mut rest = line.chars().skip(skipped);
        let part: String = rest.by_ref().take(SHOWN_MAX).collect();
        let opening = if skipped > 0 { LEFT_OUT } else { "" };
        let ending = if rest.next().is_some() { LEFT_OUT } else { "" };
        self.line = format!("{opening}{part}{ending}");
        self.before = before - skipped + opening.len();
        self
    }

    /// `file:line:column: message` and, on lines of their own, the excerpt and the advice.
    #[must_use]
    pub fn excerpt(&self) -> String {
        let mut out = self.to_string();
        if !self.line.is_empty() {
            let number = self.at.line.to_string();
            let gutter = " ".repeat(number.len());
            let pad = " ".repeat(self.before);
            out += &format!("\n  {number} | {}\n  {gutter} | {pad}^", self.line);
        }
        if let Some(help) = &self.help {
            out += &format!("\n  help: {help}");
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.at.line > 0 {
            write!(f, ":{}:{}", self.at.line, self.at.column)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Every fault that was found; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// `Ok` when there is no fault.
    pub(crate) fn settle(mut faults: Vec<Diagnostic>) -> Result<(), Diagnostics> {
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort_by(|a, b| (&a.file, a.at).cmp(&(&b.file, b.at)));
        Err(Diagnostics(faults))
    }

    /// Faults that are known to be at least one.
    pub(crate) fn of(faults: Vec<Diagnostic>) -> Self {
        match Diagnostics::settle(faults) {
            Err(faults) => faults,
            Ok(()) => Diagnostics(Vec::new()),
        }
    }

    /// The faults, by file and place.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them with excerpts, for a terminal.
    #[must_use]
    pub fn render(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(Diagnostic::excerpt).collect();
        parts.join("\n\n")
    }

    pub(crate) fn into_vec(self) -> Vec<Diagnostic> {
        self.0
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{fault}")?;
            if let Some(help) = &fault.help {
                write!(f, " ({help})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(line: &str, column: u64) -> String {
        let mut fault = Diagnostic::of_file(Path::new("f"), "bad");
        fault.at = Position { line: 7, column };
        fault.shown(line).excerpt()
    }

    #[test]
    fn lines_are_shown_around_the_place() {
        assert_eq!(excerpt("a: b", 4), "f:7:4: bad\n  7 | a: b\n    |    ^");
        let digits = |from: usize, to: usize| -> String {
            let digits = "0123456789".chars().cycle();
            digits.skip(from).take(to - from).collect()
        };
        let long = digits(0, 1_000_000);
        let shown = |column| excerpt(&long, column);
        let begin = format!("f:7:1: bad\n  7 | {}...\n    | ^", digits(0, 160));
        assert_eq!(shown(1), begin);
        let pad = " ".repeat(63);
        let middle = format!(
            "f:7:101: bad\n  7 | ...{}...\n    | {pad}^",
            digits(40, 200)
        );
        assert_eq!(shown(101), middle);
        let end = format!(
            "f:7:1000000: bad\n  7 | ...{}\n    | {pad}^",
            digits(999_939, 1_000_000)
        );
        assert_eq!(shown(1_000_000), end);
        // A column beyond the line, as decoders give for its end.
        assert!(shown(2_000_000).starts_with("f:7:2000000: bad\n  7 | "));
    }

    #[test]
    fn characters_and_not_bytes_are_counted() {
        let long = "\u{e4}".repeat(500);
        assert!(excerpt(&long, 250).contains(&"\u{e4}".repeat(160)));
    }
}
