//! How a move says where it is; the command line decides how that looks.

/// Who is told. Calls come often and must be cheap.
pub trait Report: Send + Sync {
    /// One sentence that an operator should read.
    fn say(&self, text: &str);
    /// A phase begins; `total` is in `unit`s and may be an estimate.
    fn begin(&self, phase: &str, unit: &'static str, total: Option<u64>);
    /// So many units of the phase are done, and so many bytes went with them.
    fn at(&self, done: u64, bytes: u64);
    /// The phase is over.
    fn end(&self);
}
