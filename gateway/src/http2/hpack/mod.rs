//! HPACK (RFC 7541): reading what a peer compressed, and writing heads.
//!
//! The reader follows the letter: static and dynamic table, Huffman, size updates. The writer uses
//! the static table alone and spells values out: a head is some two hundred bytes, and a table of
//! the writer's would cost each connection memory and each head a search. Bounds: the table, and
//! whoever takes the fields may have enough. Pure.

mod decoder;
pub(crate) mod encoder;
pub(crate) mod huffman;
mod table;

pub(crate) use decoder::{BadBlock, Decoder};
pub(crate) use encoder::Encoder;
pub(crate) use table::Field;

#[cfg(test)]
mod tests;
