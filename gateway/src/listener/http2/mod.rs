//! The HTTP/2 of clients: one task a connection, no library between the bytes and the handler.
//!
//! ```text
//!            TLS -> receive -> hpack, head -> events -> driver -> handler
//!            TLS <- out <- core <- frames of content <- driver <- body
//! ```
//! A gateway's requests are small and many, and on a general library each costs a task, several
//! wake-ups, a lock a frame and a system call an answer. Here all streams of a connection are
//! polled by its own task, answers that are ready together leave in one write, and a connection at
//! rest holds no buffers. The state ([`core`], [`receive`](self)) is pure and held to RFC 9113 and
//! RFC 7541 by tables of cases; the [`driver`] alone knows sockets and futures.
//!
//! Bounds: streams, windows, a header block, a frame, what waits to be written, frames that carry
//! nothing ([`floods`]), resets in a hurry. It must not know what is asked.

mod core;
mod date;
mod driver;
mod floods;
mod head;
mod orders;
mod receive;
mod streams;
mod upload;
mod wakes;

pub(super) use self::core::Limits;
pub(super) use driver::{Driver, Ended};
pub(super) use orders::{Orders, Patience};

#[cfg(test)]
mod tests;
