//! The Huffman code of HPACK (RFC 7541, appendix B). It is canonical: the lengths say it all, and
//! the tables are made of them at compile time.

/// Bits of each symbol's code; the last is the end, which never occurs in a text.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

const SYMBOLS: usize = 257;
const END: u16 = 256;
const LONGEST: usize = 30;

/// Codes by their length: the first one's value, and where its symbol stands in the order.
struct Tables {
    /// Symbols ordered by length, then by number.
    order: [u16; SYMBOLS],
    first_code: [u32; LONGEST + 2],
    first_place: [usize; LONGEST + 2],
    /// By the next eight bits: the symbol below and the length above; 0 for longer codes.
    quick: [u16; 256],
}

static TABLES: Tables = tables();

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "runs in the compiler alone, where a wrong index is an error"
)]
const fn tables() -> Tables {
    let mut made = Tables {
        order: [0; SYMBOLS],
        first_code: [0; LONGEST + 2],
        first_place: [0; LONGEST + 2],
        quick: [0; 256],
    };
    let (mut code, mut place, mut length) = (0_u32, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        made.first_code[length] = code;
        made.first_place[length] = place;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                made.order[place] = symbol as u16;
                if length <= 8 {
                    let mut rest = 0;
                    while rest < 1 << (8 - length) {
                        let at = ((code as usize) << (8 - length)) | rest;
                        made.quick[at] = ((length as u16) << 8) | symbol as u16;
                        rest += 1;
                    }
                }
                place += 1;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    made.first_place[LONGEST + 1] = place;
    made
}

/// No text was encoded like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadHuffman;

/// Appends the text that `coded` stands for.
pub(crate) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Result<(), BadHuffman> {
    // The shortest code has five bits.
    text.reserve(coded.len() * 8 / 5);
    let mut coded = coded.iter();
    // Bits at hand, from the top.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        while count <= 56 {
            let Some(&byte) = coded.next() else { break };
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        let [top, ..] = bits.to_be_bytes();
        let quick = TABLES.quick.get(usize::from(top)).copied().unwrap_or(0);
        let [length, symbol] = quick.to_be_bytes();
        let length = u32::from(length);
        if length != 0 && length <= count {
            text.push(symbol);
            bits <<= length;
            count -= length;
            continue;
        }
        match longer(bits, count) {
            Some((symbol, length)) => {
                text.push(u8::try_from(symbol).map_err(|_| BadHuffman)?);
                bits <<= length;
                count -= length;
            }
            // What fills the last byte up is the beginning of the end's code: ones.
            None if count < 8 && bits.leading_ones() >= count => return Ok(()),
            None => return Err(BadHuffman),
        }
    }
}

/// A code of more than eight bits; `None` when there is none whole.
fn longer(bits: u64, count: u32) -> Option<(u16, u32)> {
    for length in 9..=LONGEST {
        let width = u32::try_from(length).ok()?;
        if width > count {
            return None;
        }
        let code = u32::try_from(bits >> (64 - width)).ok()?;
        let first = TABLES.first_place.get(length)?;
        let next = TABLES.first_place.get(length + 1)?;
        let offset = code.checked_sub(*TABLES.first_code.get(length)?);
        let place = first + usize::try_from(offset.unwrap_or(u32::MAX)).ok()?;
        if place < *next {
            let symbol = TABLES.order.get(place).copied()?;
            return (symbol <= END).then_some((symbol, width));
        }
    }
    None
}

/// For tests: what a peer would send.
#[cfg(test)]
pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
    let mut codes = [(0_u64, 0_u32); SYMBOLS];
    for length in 1..=LONGEST {
        let range = TABLES.first_place[length]..TABLES.first_place[length + 1];
        for (offset, place) in range.enumerate() {
            let code = u64::from(TABLES.first_code[length]) + offset as u64;
            codes[usize::from(TABLES.order[place])] = (code, u32::try_from(length).unwrap());
        }
    }
    let (mut coded, mut bits, mut count) = (Vec::new(), 0_u64, 0_u32);
    for &byte in text {
        let (code, length) = codes[usize::from(byte)];
        bits = (bits << length) | code;
        count += length;
        while count >= 8 {
            count -= 8;
            coded.push(u8::try_from((bits >> count) & 0xff).unwrap());
        }
    }
    if count > 0 {
        let last = (bits << (8 - count)) | (0xff >> count);
        coded.push(u8::try_from(last & 0xff).unwrap());
    }
    coded
}
