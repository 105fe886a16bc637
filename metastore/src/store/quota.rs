//! The quota: what puts may still add, and when a store says that it is full.
//!
//! A put is refused when it is larger than the room left; smaller ones go on, and so does all that
//! makes room. What was refused is remembered until there is room for it: so an alarm tells of a put
//! that found no room although others still do, and ends without an operator.
//!
//! What is being synced counts once it is synced. The quota may be overrun by that much, which is
//! bounded, and by deletes and compaction, which have to be written before they make room.

use std::sync::atomic::Ordering;

use super::Shared;

/// The part of the quota that is left when a store counts as nearly full: a segment of the log, and
/// time to compact before it is used up.
const NEAR_SHARE: u64 = 8;

impl Shared {
    /// Bytes that puts may still add; none when the disk has no room.
    pub(crate) fn room(&self) -> u64 {
        if self.engine.is_short() {
            return 0;
        }
        self.options.quota_bytes.saturating_sub(self.engine.size())
    }

    /// The room, for the next requests. What was refused is forgotten if it would fit now.
    pub(crate) fn room_again(&self) -> u64 {
        let room = self.room();
        if self.refused_bytes.load(Ordering::Relaxed) < room {
            // Only the sequencer raises it, and it is who asks.
            self.refused_bytes.store(0, Ordering::Relaxed);
        }
        room
    }

    /// Whether so many bytes go into the room; remembers them if not. What is larger than the whole
    /// quota is not remembered, since nothing that is let go would make room for it.
    pub(crate) fn fits(&self, bytes: usize, room: u64) -> bool {
        let bytes = bytes as u64;
        let fits = bytes == 0 || bytes < room;
        if !fits && bytes < self.options.quota_bytes {
            self.refused_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Whether there is no room: for any put, or for the largest that was refused.
    pub(crate) fn is_full(&self) -> bool {
        self.room() <= self.refused_bytes.load(Ordering::Relaxed)
    }

    /// Whether it soon will be so: what can be let go had better be.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let near = self.options.quota_bytes / NEAR_SHARE;
        self.room() < near || self.is_full()
    }

    /// Forgets what was refused; whether the store counted as full for that alone.
    pub(crate) fn forget_refused(&self) -> bool {
        let room = self.room();
        self.refused_bytes.swap(0, Ordering::Relaxed) >= room && room > 0
    }
}
