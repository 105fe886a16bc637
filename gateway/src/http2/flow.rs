//! Windows (RFC 9113, section 5.2): what may still be sent, and what may still come. Pure numbers,
//! of a stream or of a connection.

use super::frames::MAX_31;

/// What may still be sent. It can be negative: a peer may take back what it granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credit(i64);

/// A window beyond what the protocol has numbers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Credit {
    pub(crate) fn new(bytes: u32) -> Self {
        Credit(i64::from(bytes))
    }

    pub(crate) fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    pub(crate) fn spend(&mut self, bytes: usize) {
        self.0 -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// More is granted, or with a negative number less.
    pub(crate) fn grant(&mut self, bytes: i64) -> Result<(), TooLarge> {
        let sum = self.0 + bytes;
        if sum > i64::from(MAX_31) {
            return Err(TooLarge);
        }
        self.0 = sum;
        Ok(())
    }
}

/// What may still come, and what was taken of it without the sender knowing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    left: u32,
    /// Taken since the sender was told last.
    taken: u32,
}

/// More came than was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Allowance {
    pub(crate) fn new(whole: u32) -> Self {
        Allowance {
            left: whole,
            taken: 0,
        }
    }

    pub(crate) fn come(&mut self, bytes: u32) -> Result<(), Overrun> {
        self.left = self.left.checked_sub(bytes).ok_or(Overrun)?;
        Ok(())
    }

    /// Notes what was taken; answers what the sender has to be told, once it is worth a frame: when
    /// it is half of what the sender has left. Half of the whole would never come where others
    /// hold most of a connection's window and do not read.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<u32> {
        self.taken = self.taken.saturating_add(bytes);
        (self.taken > 0 && self.taken >= self.left / 2).then(|| {
            let told = std::mem::take(&mut self.taken);
            self.left = self.left.saturating_add(told);
            told
        })
    }
}
