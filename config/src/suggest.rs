//! The nearest known word to a misspelt one.

/// The one of `known` that `word` most likely was meant to be, if any is near.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Farther than a third of the word is another word, not a slip.
    let bound = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out, changed or swapped, ignoring case.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_ascii_lowercase().chars().collect();
    let right: Vec<char> = right.to_ascii_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, r) in right.iter().enumerate() {
            let at =
                |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&last, j) + usize::from(l != r))
                .min(at(&last, j + 1) + 1)
                .min(at(&row, j) + 1);
            let is_swap =
                i > 0 && j > 0 && left.get(i - 1) == Some(r) && right.get(j - 1) == Some(l);
            if is_swap {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["perSecond", "burst", "key", "clientCAFile", "endpoints"];
        for (word, expected) in [
            ("perSecnd", Some("perSecond")),
            ("per_second", Some("perSecond")),
            ("brust", Some("burst")),
            ("clientCaFile", Some("clientCAFile")),
            ("keys", Some("key")),
            ("elephants", None),
            ("namespace", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
