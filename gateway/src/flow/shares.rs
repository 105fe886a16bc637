//! Where a rule sends its requests: subsets of the cluster's endpoints, each with a share.

use std::sync::Arc;

use super::spec::SendSpec;

/// See the module; empty for a rule that sends nobody anywhere.
#[derive(Debug)]
pub(super) struct Shares {
    /// Each with the sum of the weights up to and with its own.
    ends: Box<[(u64, Arc<str>)]>,
}

impl Shares {
    pub(super) fn new(spec: &[SendSpec]) -> Self {
        let mut end = 0;
        let ends = spec.iter().map(|send| {
            end += u64::from(send.weight.get());
            (end, Arc::from(send.subset.as_str()))
        });
        Shares {
            ends: ends.collect(),
        }
    }

    /// One of the subsets, by random bits.
    pub(super) fn draw(&self, noise: u64) -> Option<&Arc<str>> {
        let (all, last) = self.ends.last()?;
        if self.ends.len() == 1 {
            return Some(last);
        }
        // The low bits jitter waits already.
        let at = (noise >> 16) % all;
        let found = self.ends.iter().find(|(end, _)| at < *end);
        found.map(|(_, subset)| subset)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn subsets_are_drawn_by_weight() {
        let send = |subset: &str, weight| SendSpec {
            subset: subset.to_owned(),
            weight: NonZeroU32::new(weight).unwrap(),
        };
        assert_eq!(Shares::new(&[]).draw(7), None);
        let shares = Shares::new(&[send("old", 9), send("new", 1)]);
        let drawn = (0..1_000u64).filter(|n| &**shares.draw(n << 16).unwrap() == "new");
        assert_eq!(drawn.count(), 100);
    }
}
