//! Lists of wanted and excluded texts, compiled: exact ones sorted, those with `*` cut up.
//!
//! Exclusion always wins, and a list that only excludes wants everything else. (A peer reads
//! `[-a, -b]` as "not a, or not b", which is everything.)

/// A text with `*` in it, which stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    prefix: Box<str>,
    middles: Box<[Box<str>]>,
    suffix: Box<str>,
}

impl Glob {
    /// `None` when there is no `*` in it.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let (prefix, rest) = pattern.split_once('*')?;
        let mut middles: Vec<&str> = rest.split('*').collect();
        let suffix = middles.pop().unwrap_or_default();
        Some(Glob {
            prefix: prefix.into(),
            middles: middles.into_iter().map(Box::from).collect(),
            suffix: suffix.into(),
        })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let rest = text.strip_prefix(&*self.prefix);
        let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(&*self.suffix)) else {
            return false;
        };
        // The leftmost place of each middle leaves the most for those after it.
        for middle in &self.middles {
            match rest.split_once(&**middle) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        true
    }
}

/// Several texts and globs.
#[derive(Clone, Debug, Default)]
struct Set {
    exact: Vec<Box<str>>,
    globs: Vec<Glob>,
}

impl Set {
    fn add(&mut self, entry: &str) {
        match Glob::new(entry) {
            Some(glob) => self.globs.push(glob),
            None => self.exact.push(entry.into()),
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }

    fn cost(&self) -> usize {
        // Exact ones are found by halving.
        let halvings = usize::BITS - self.exact.len().leading_zeros();
        self.globs.len() + usize::try_from(halvings).unwrap_or(0)
    }

    fn contains(&self, text: &str) -> bool {
        self.exact
            .binary_search_by(|entry| (**entry).cmp(text))
            .is_ok()
            || self.globs.iter().any(|glob| glob.matches(text))
    }
}

/// One list of a match: what is wanted, and what is excluded.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    wanted: Set,
    excluded: Set,
}

impl Terms {
    /// Compiles a list; `None` for an empty one, which admits everything.
    ///
    /// # Errors
    /// The place and the fault of an entry that can admit nothing.
    pub(super) fn compile(entries: &[String]) -> Result<Option<Self>, (usize, String)> {
        if entries.is_empty() {
            return Ok(None);
        }
        let mut terms = Terms::default();
        for (place, entry) in entries.iter().enumerate() {
            match excluding(entry) {
                Some("") => return Err((place, "excludes nothing: name what to exclude".into())),
                Some("*") => return Err((place, "excludes everything: remove it".into())),
                Some(excluded) => terms.excluded.add(excluded),
                None => terms.wanted.add(entry),
            }
        }
        terms.wanted.exact.sort_unstable();
        terms.excluded.exact.sort_unstable();
        Ok(Some(terms))
    }

    /// About how many comparisons it takes to say no.
    pub(super) fn cost(&self) -> usize {
        self.wanted.cost() + self.excluded.cost()
    }

    pub(super) fn admits(&self, text: &str) -> bool {
        (self.wanted.is_empty() || self.wanted.contains(text)) && !self.excluded.contains(text)
    }

    /// For what has several values at once: one must be wanted, and none excluded.
    pub(super) fn admits_all(&self, texts: &[String]) -> bool {
        let is_wanted =
            self.wanted.is_empty() || texts.iter().any(|text| self.wanted.contains(text));
        is_wanted && !texts.iter().any(|text| self.excluded.contains(text))
    }
}

/// What an inverted entry excludes.
pub(super) fn excluding(entry: &str) -> Option<&str> {
    entry.strip_prefix(['-', '!'])
}
