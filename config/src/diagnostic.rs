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
    /// The line at fault as written, empty when there is none.
    pub line: String,
}

impl Diagnostic {
    /// A fault of a whole file.
    pub(crate) fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Diagnostic {
            file: file.to_owned(),
            at: Position::default(),
            message: message.into(),
            help: None,
            line: String::new(),
        }
    }

    /// `file:line:column: message` and, on lines of their own, the excerpt and the advice.
    #[must_use]
    pub fn excerpt(&self) -> String {
        let mut out = self.to_string();
        if !self.line.is_empty() {
            let number = self.at.line.to_string();
            let gutter = " ".repeat(number.len());
            let before = usize::try_from(self.at.column)
                .unwrap_or(1)
                .saturating_sub(1);
            let pad = " ".repeat(before);
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
