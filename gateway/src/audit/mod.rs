//! One event a request, in the `audit.k8s.io/v1` format, with the gateway's facts as annotations.
//!
//! A request hands a value over when its last byte is gone; formatting and writing happen on a
//! thread of their own. The queue is bounded: a disk that cannot keep up costs events, which are
//! counted and said, and never a request. It knows requests and users, and neither limits nor
//! upstreams: those are facts it is told.

mod digits;
mod event;
mod file;
mod format;
mod recorder;

pub use event::{AdminChange, Event, EventStage, Facts};
pub use file::{FileOptions, FileSink};
pub use recorder::{Recorder, Sink, spawn};

#[cfg(test)]
mod tests;
