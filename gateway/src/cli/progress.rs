//! How far a long command is: a bar that moves on a terminal, and else a line now and then.
//!
//! All of it goes to standard error, so that what a command answers can be kept apart.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::migrate::Report;

/// A bar is redrawn no more often than an eye can follow.
const REDRAW: Duration = Duration::from_millis(100);
/// A log is read by people too.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Cells of the bar.
const CELLS: u64 = 30;

/// Prints to standard error.
pub(super) struct Progress {
    is_terminal: bool,
    now: Mutex<Option<Phase>>,
}

struct Phase {
    name: String,
    unit: &'static str,
    total: Option<u64>,
    begun: Instant,
    shown: Option<Instant>,
    done: u64,
    bytes: u64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Progress {
            is_terminal: std::io::stderr().is_terminal(),
            now: Mutex::new(None),
        }
    }

    fn print(&self, line: &str, is_last: bool) {
        let mut out = std::io::stderr().lock();
        // A terminal that went away must not end the work.
        let _ = match (self.is_terminal, is_last) {
            (false, _) => writeln!(out, "{line}"),
            (true, true) => writeln!(out, "\r\x1b[K{line}"),
            (true, false) => write!(out, "\r\x1b[K{line}"),
        };
        let _ = out.flush();
    }
}

impl Report for Progress {
    fn say(&self, text: &str) {
        let now = self.now.lock();
        self.print(text, true);
        if let Some(phase) = now.as_ref().filter(|_| self.is_terminal) {
            self.print(&phase.line(true), false);
        }
    }

    fn begin(&self, phase: &str, unit: &'static str, total: Option<u64>) {
        *self.now.lock() = Some(Phase {
            name: phase.to_owned(),
            unit,
            total,
            begun: Instant::now(),
            shown: None,
            done: 0,
            bytes: 0,
        });
    }

    fn at(&self, done: u64, bytes: u64) {
        let mut now = self.now.lock();
        let Some(phase) = now.as_mut() else {
            return;
        };
        (phase.done, phase.bytes) = (done, bytes);
        let every = if self.is_terminal { REDRAW } else { LINE_EVERY };
        if phase.shown.unwrap_or(phase.begun).elapsed() < every {
            return;
        }
        phase.shown = Some(Instant::now());
        let line = phase.line(self.is_terminal);
        self.print(&line, false);
    }

    fn end(&self) {
        if let Some(phase) = self.now.lock().take() {
            self.print(&phase.line(false), true);
        }
    }
}

impl Phase {
    fn line(&self, has_bar: bool) -> String {
        let mut line = format!("{}: ", self.name);
        let part = self.total.filter(|total| *total > 0);
        // Writing into a String cannot fail.
        if let Some(total) = part.filter(|_| has_bar) {
            let cells = usize::try_from((self.done * CELLS / total).min(CELLS)).unwrap_or(0);
            let rest = usize::try_from(CELLS).unwrap_or(cells) - cells;
            let _ = write!(line, "[{}{}] ", "#".repeat(cells), " ".repeat(rest));
        }
        if let Some(total) = part {
            let percent = (self.done.min(total)) * 100 / total;
            let _ = write!(line, "{percent} %, {} of {total} {}", self.done, self.unit);
        } else {
            let _ = write!(line, "{} {}", self.done, self.unit);
        }
        if self.bytes > 0 {
            let _ = write!(line, ", {}", size(self.bytes));
        }
        let took = self.begun.elapsed();
        if let Some(left) = part
            .and_then(|total| left(self.done, total, took))
            .filter(|_| has_bar)
        {
            let _ = write!(line, ", {} s left", left.as_secs());
        } else if took.as_secs() > 0 {
            let _ = write!(line, ", {} s", took.as_secs());
        }
        line
    }
}

/// How long the rest takes at the pace so far.
fn left(done: u64, total: u64, took: Duration) -> Option<Duration> {
    let rest = u32::try_from(total.saturating_sub(done)).ok()?;
    let done = u32::try_from(done).ok().filter(|done| *done > 0)?;
    took.checked_div(done)?.checked_mul(rest)
}

fn size(bytes: u64) -> String {
    match bytes {
        few if few < 1 << 20 => format!("{} KiB", few >> 10),
        many => format!("{} MiB", many >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(total: Option<u64>, done: u64) -> Phase {
        Phase {
            name: "reading".to_owned(),
            unit: "keys",
            total,
            begun: Instant::now(),
            shown: None,
            done,
            bytes: 3 << 20,
        }
    }

    #[test]
    fn a_line_says_how_far_it_is() {
        let half = phase(Some(10), 5).line(true);
        assert!(
            half.starts_with("reading: [###############               ] 50 %, 5 of 10 keys, 3 MiB")
        );
        assert_eq!(phase(None, 7).line(true), "reading: 7 keys, 3 MiB");
        assert_eq!(phase(Some(0), 0).line(false), "reading: 0 keys, 3 MiB");
        let more = phase(Some(10), 12).line(false);
        assert!(more.contains("100 %, 12 of 10"), "{more}");
        assert_eq!(
            left(1, 3, Duration::from_secs(4)),
            Some(Duration::from_secs(8))
        );
        assert_eq!(left(0, 3, Duration::from_secs(4)), None);
    }
}
