//! Free ports, for processes that must be told theirs before they start.

use std::net::{Ipv4Addr, TcpListener};

/// A port of 127.0.0.1 that nobody listened on a moment ago.
///
/// # Panics
/// When the system has none left.
#[must_use]
pub fn free() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener
        .local_addr()
        .expect("a bound listener has an address")
        .port()
}
