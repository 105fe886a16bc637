//! The faults of the project's list that happen to a gateway, under their numbers, at the real binary:
//! in the gate each once, and as long as the list wants by `make faults`.
//!
//! | number | fault | test |
//! | --- | --- | --- |
//! | 9 | descriptors run out | `fault_09_fd_exhaustion` |
//! | 10 | endpoints flap | `fault_10_endpoint_flap` |
//! | 11 | slow readers, heads and contents | `fault_11_slow_clients` |
//! | 12 | half-open connections | `fault_12_half_open` |
//! | 13 | a flood of handshakes | `fault_13_handshake_flood` |
//! | 14 | rapid reset and its kind | `fault_14_rapid_reset`; `front/listening.rs`, `resets_in_a_hurry_close_the_connection` |
//! | 15 | floods of frames, header bombs | `front/floods.rs`, `floods_are_cut_off_and_neighbours_notice_nothing`; `fault_15_header_bomb` |
//! | 16 | half-written files | `fault_16_config_half_written`; `control/tests.rs` for each way in which files come |
//! | 19 | a storm of lists | `fault_19_relist_storm` |
//! | 20 | memory has an end | `fault_20_memory_cap` |
//! | 21 | a storm of 5xx | `fault_21_upstream_5xx_storm` |
//! | 23 | reloads under load | `life/reloads.rs`, `a_hundred_reloads_are_noticed_by_nobody`; tunnels in `exec` |
//! | 24 | apiservers restarted in turn | `fault_24_rolling_restart` |
//! | 25 | upgrade and drain | `life/handover.rs` and `life/ending.rs`; tunnels in `exec` |
//! | 30 | identities change | `fault_30_identity_churn`; keys of tokens in `authn/jwt/tests/rotation.rs` |
//!
//! Bounds are counts and shares, or many times what a machine of its own needs; what was measured is
//! printed.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod clients;
mod files;
mod frames;
mod inputs;
mod lines;
mod rig;
mod rolling;
mod storms;
mod upstreams;
mod valve;
