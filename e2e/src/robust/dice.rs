//! A small generator whose draws depend on the seed alone.

/// Draws numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Of a seed; different streams of one seed are unlike.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        Dice(seed ^ stream.wrapping_mul(0xD605_1B5F_11F7_9C4D))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is taken for at least one.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// Whether a draw of a hundred is below `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them; `None` of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let place = usize::try_from(self.below(of.len() as u64)).ok()?;
        of.get(place)
    }
}
