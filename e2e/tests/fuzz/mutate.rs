//! New inputs out of old ones: pieces are moved, bytes are broken.
//!
//! An input is cut where its language cuts it, so that most of what comes out still means something
//! and gets past the first check of what reads it.

use crate::dice::Dice;

/// What the inputs of a target look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes at which it falls into pieces; without any, it is bytes alone.
    pub(crate) cuts: &'static [u8],
    /// Pieces worth putting in.
    pub(crate) words: &'static [&'static str],
    /// The most bytes.
    pub(crate) bytes_max: usize,
}

impl Shape {
    /// A program for [`crate::feed::Feed`].
    pub(crate) const fn program(bytes_max: usize) -> Self {
        Shape {
            cuts: b"",
            words: &[],
            bytes_max,
        }
    }
}

/// Bytes on which readers stumble.
const ODD: &[u8] = b"\0\x01\t\n\r \"#%&'(),./:;<=>?[\\]{|}~\x7f\x80\xbf\xc0\xe2\xed\xfe\xff";

/// The next input.
pub(crate) fn next(dice: &mut Dice, shape: Shape, corpus: &[Vec<u8>]) -> Vec<u8> {
    // Any bytes are a program; a text that is thrown together is hardly ever one that is read.
    let is_fresh = match shape.words {
        [] => !dice.once_in(4),
        _ => dice.once_in(16),
    };
    let mut input = if corpus.is_empty() || is_fresh {
        fresh(dice, shape)
    } else {
        dice.pick(corpus).clone()
    };
    // Mostly one change, so that the rest of what reads it is reached.
    let more = if dice.once_in(2) { dice.below(5) } else { 0 };
    for _ in 0..=more {
        if shape.cuts.is_empty() || dice.once_in(4) {
            break_bytes(dice, &mut input);
        } else {
            move_pieces(dice, shape, corpus, &mut input);
        }
    }
    input.truncate(shape.bytes_max);
    input
}

fn fresh(dice: &mut Dice, shape: Shape) -> Vec<u8> {
    if shape.words.is_empty() {
        let length = dice.below(shape.bytes_max.min(256));
        return (0..length).map(|_| dice.byte()).collect();
    }
    let mut input = Vec::new();
    for _ in 0..dice.below(12) {
        input.extend_from_slice(dice.pick(shape.words).as_bytes());
        if !shape.cuts.is_empty() && !dice.once_in(4) {
            input.push(*dice.pick(shape.cuts));
        }
    }
    input
}

fn break_bytes(dice: &mut Dice, input: &mut Vec<u8>) {
    let at = dice.below(input.len() + 1);
    let until = (at + 1 + dice.below(8)).min(input.len());
    match dice.below(6) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        1 => input.insert(at, *dice.pick(ODD)),
        2 => input.insert(at, dice.byte()),
        3 if at < until => drop(input.drain(at..until)),
        4 if at < until => {
            let copy = input[at..until].to_vec();
            let to = dice.below(input.len() + 1);
            input.splice(to..to, copy);
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte = dice.byte();
            }
        }
    }
}

fn move_pieces(dice: &mut Dice, shape: Shape, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let mut pieces = pieces(input, shape.cuts);
    let at = dice.below(pieces.len() + 1);
    let word = || shape.words.iter().map(|word| word.as_bytes().to_vec());
    let words: Vec<Vec<u8>> = word().collect();
    match dice.below(7) {
        0 if at < pieces.len() => drop(pieces.remove(at)),
        1 if at < pieces.len() => {
            let times = 1 + dice.below(3);
            let copy = pieces[at].clone();
            pieces.splice(at..at, std::iter::repeat_n(copy, times));
        }
        2 if at < pieces.len() => {
            let other = dice.below(pieces.len());
            pieces.swap(at, other);
        }
        3 if at < pieces.len() && !words.is_empty() => pieces[at].clone_from(dice.pick(&words)),
        4 if !shape.cuts.is_empty() => pieces.insert(at, vec![*dice.pick(shape.cuts)]),
        5 if !corpus.is_empty() => {
            let other = dice.pick(corpus).clone();
            let tail = self::pieces(&other, shape.cuts);
            let from = dice.below(tail.len() + 1);
            pieces.truncate(at);
            pieces.extend_from_slice(&tail[from..]);
        }
        _ if !words.is_empty() => pieces.insert(at, dice.pick(&words).clone()),
        _ => {}
    }
    *input = pieces.concat();
}

/// What lies between cuts, and the cuts themselves.
fn pieces(input: &[u8], cuts: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut is_open = false;
    for byte in input {
        let is_cut = cuts.contains(byte);
        match pieces.last_mut() {
            Some(last) if is_open && !is_cut => last.push(*byte),
            _ => pieces.push(vec![*byte]),
        }
        is_open = !is_cut;
    }
    pieces
}

/// A failing input with as much taken out of it as lets it fail still.
pub(crate) fn shrink(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    /// Enough for an input of some hundred bytes; a failure that is slow to show is shown longer.
    const TRIES_MAX: usize = 2000;
    let mut least = input.to_vec();
    let mut tries = 0;
    let mut size = least.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < least.len() && tries < TRIES_MAX {
            let mut less = least.clone();
            less.drain(at..(at + size).min(least.len()));
            tries += 1;
            if fails(&less) {
                least = less;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    least
}

#[test]
fn a_failing_input_is_cut_to_what_fails() {
    let least = shrink(b"some a, some b and the rest of it", |input| {
        input.contains(&b'b') && input.contains(&b',')
    });
    assert_eq!(least, b",b");
}

#[test]
fn a_seed_says_all_inputs() {
    let shape = Shape {
        cuts: b"/",
        words: &["api", "v1"],
        bytes_max: 100,
    };
    let corpus = vec![b"/api/v1/pods".to_vec(), b"/".to_vec()];
    let all = |seed| -> Vec<Vec<u8>> {
        (0..100)
            .map(|n| next(&mut Dice::of(seed, n), shape, &corpus))
            .collect()
    };
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
}
