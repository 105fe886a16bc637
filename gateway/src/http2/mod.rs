//! The bytes of HTTP/2, for both sides of the gateway: frames, settings, windows and HPACK.
//!
//! Pure: no socket, no stream, no clock. Who serves clients and who speaks to endpoints share it;
//! it knows of neither.

pub(crate) mod flow;
pub(crate) mod frames;
pub(crate) mod hpack;
pub(crate) mod pieces;
pub(crate) mod settings;
