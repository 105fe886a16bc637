//! An input read as a program: each decision takes the next byte, and an end of bytes decides for
//! the least. So any bytes are a program, and a shorter one does less.

/// What is left of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed<'a>(&'a [u8]);

impl<'a> Feed<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Feed(input)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`, which is at least one; of one byte where that is enough.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let mut number = usize::from(self.byte());
        if bound > 256 {
            number = number << 8 | usize::from(self.byte());
        }
        if bound > 65_536 {
            number = number << 8 | usize::from(self.byte());
        }
        number % bound
    }

    pub(crate) fn number(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(usize::try_from(bound).unwrap())).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A text of at most `most` of these pieces.
    pub(crate) fn text(&mut self, pieces: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count).map(|_| self.pick(pieces)).collect()
    }
}
