//! SETTINGS (RFC 9113, section 6.5): what a peer may say, and what we do. Pure.

use super::frames::{self, Fatal, MAX_31, Reason};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// The window of a stream before anybody has said another.
pub(crate) const WINDOW: u32 = 65_535;

/// Of what a peer says, what concerns us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) header_table: Option<u32>,
    pub(crate) stream_window: Option<u32>,
    pub(crate) streams: Option<u32>,
}

/// Reads the content of a SETTINGS frame; the last word on a matter counts.
pub(crate) fn read(content: &[u8]) -> Result<Said, Fatal> {
    if !content.len().is_multiple_of(6) {
        return Err(Fatal::size("settings cut short"));
    }
    let mut said = Said::default();
    let mut rest = content;
    while let Some(([a, b, c, d, e, f], more)) = rest.split_first_chunk() {
        rest = more;
        let value = u32::from_be_bytes([*c, *d, *e, *f]);
        match u16::from_be_bytes([*a, *b]) {
            HEADER_TABLE_SIZE => {
                // The smallest on the way counts, too: it emptied the table.
                let before = said.header_table.unwrap_or(u32::MAX);
                said.header_table = Some(before.min(value));
            }
            ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL if value > 1 => {
                return Err(Fatal::protocol("a setting that is neither on nor off"));
            }
            INITIAL_WINDOW_SIZE if value > MAX_31 => {
                return Err(Fatal::new(
                    Reason::FLOW_CONTROL_ERROR,
                    "a window that is too large",
                ));
            }
            MAX_CONCURRENT_STREAMS => said.streams = Some(value),
            INITIAL_WINDOW_SIZE => said.stream_window = Some(value),
            MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                return Err(Fatal::protocol("a size of frames that is none"));
            }
            _ => {}
        }
    }
    Ok(said)
}

/// Writes ours as a server.
pub(crate) fn write(out: &mut Vec<u8>, streams: u32, stream_window: u32, header_bytes: u32) {
    say(
        out,
        [
            (MAX_CONCURRENT_STREAMS, streams),
            (INITIAL_WINDOW_SIZE, stream_window),
            (MAX_HEADER_LIST_SIZE, header_bytes),
        ],
    );
}

/// Writes ours as a client, which takes nothing that it has not asked for.
pub(crate) fn write_clients(out: &mut Vec<u8>, stream_window: u32, header_bytes: u32) {
    say(
        out,
        [
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW_SIZE, stream_window),
            (MAX_HEADER_LIST_SIZE, header_bytes),
        ],
    );
}

fn say<const N: usize>(out: &mut Vec<u8>, ours: [(u16, u32); N]) {
    frames::begin(out, 6 * ours.len(), frames::SETTINGS, 0, 0);
    for (name, value) in ours {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}
