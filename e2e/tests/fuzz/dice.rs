//! Random numbers from a seed: splitmix64, whose every seed is a good one.

/// A stream of numbers that its seed says.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of one input of a seed.
    pub(crate) fn of(seed: u64, input: u64) -> Self {
        let mut outer = Dice(seed);
        Dice(outer.next() ^ input.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, zero where that is none.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap().max(1);
        usize::try_from(self.next() % bound).unwrap()
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
