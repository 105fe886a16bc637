//! `sluice metastore migrate` between real etcds, Sluices and data directories: what arrives is what
//! was there, though it is killed, overtaken by compaction, or the source is written to meanwhile.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod exact;
mod live;
mod moving;
mod plane;
mod valve;
mod wire;
