//! Why a request over HTTP/2, or its answer, came to nothing.

use std::sync::Arc;

use crate::http2::frames::Reason;

/// See the module; what it says of the request's fate comes first.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The endpoint did not look at it: it said so, or nothing of it was written. `is_leaving` when
    /// that is true of all that would follow on the connection.
    #[error("refused unseen")]
    Unseen {
        /// By GOAWAY or the connection's end, not for this one stream.
        is_leaving: bool,
    },
    /// The endpoint reset it.
    #[error("the endpoint reset the stream: code {}", .0.0)]
    Reset(Reason),
    /// What the endpoint said on the stream is no answer.
    #[error("no answer by the rules: {0}")]
    Malformed(&'static str),
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Ended(Arc<str>),
    /// It was given up on our side.
    #[error("given up")]
    GivenUp,
    /// No head came within the time it was given.
    #[error("no answer in time")]
    TimedOut,
}
