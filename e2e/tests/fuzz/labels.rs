//! Label selectors: one that is plain means what a second reader makes of it, and any that is
//! accepted means the same with another requirement joined to it.

use std::collections::BTreeMap;

use sluice_gateway::api::selectors::LabelSelector;

use crate::dice::Dice;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

const SHAPE: Shape = Shape {
    cuts: b" ,()=!<>",
    words: &[
        "a",
        "b",
        "app",
        "in",
        "notin",
        "==",
        "!=",
        "web",
        "1",
        "-5",
        "99999999999999999999",
        "k8s.io/x",
        "a/b/c",
        "A",
        "a_b",
        "-",
        "(a,b)",
        "a in (b)",
        "!a",
        "a>1",
    ],
    bytes_max: 300,
};

pub(crate) fn target() -> Target {
    Target {
        name: "labels",
        shape: SHAPE,
        seeds: Vec::new(),
        check: Box::new(check),
    }
}

type Labels = BTreeMap<String, String>;

fn check(input: &[u8]) -> Result<Verdict, String> {
    let Ok(text) = std::str::from_utf8(input) else {
        return Ok(Verdict::Refused);
    };
    let plain = plain(text);
    let selector = match (LabelSelector::parse(text), &plain) {
        (Ok(selector), _) => selector,
        (Err(_), None) => return Ok(Verdict::Refused),
        (Err(why), Some(_)) => return Err(format!("refused: {why}")),
    };
    let joined = match selector.is_empty() {
        true => "zz".to_owned(),
        false => format!(" {text},zz"),
    };
    let joined = LabelSelector::parse(&joined).map_err(|why| format!("{joined:?}: {why}"))?;
    for labels in samples(text) {
        let label = |key: &str| labels.get(key).map(String::as_str);
        let selects = selector.select(label);
        if let Some(plain) = &plain
            && plain.iter().all(|term| holds(term, &labels)) != selects
        {
            return Err(format!(
                "selects={selects} of {labels:?}, a second reader differs"
            ));
        }
        if joined.select(label) != (selects && labels.contains_key("zz")) {
            return Err(format!(
                "selects={selects} of {labels:?}, but not so with ,zz"
            ));
        }
    }
    Ok(Verdict::Accepted)
}

/// Labels made of the selector's own words.
fn samples(text: &str) -> Vec<Labels> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut words: Vec<&str> = text.split(|c| !is_word(c)).collect();
    words.extend(["zz", "0", "7"]);
    let mut dice = Dice::of(0, u64::try_from(text.len()).unwrap());
    let mut sample = || {
        let mut labels = Labels::new();
        for word in &words {
            if dice.once_in(2) {
                labels.insert((*word).to_owned(), (*dice.pick(&words)).to_owned());
            }
        }
        labels
    };
    (0..8).map(|_| sample()).collect()
}

/// A requirement of plain words.
struct Term {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// Reads a selector of lower-case words, without blanks but around `in` and behind commas.
fn plain(text: &str) -> Option<Vec<Term>> {
    let mut terms = Vec::new();
    let (mut depth, mut start) = (0, 0);
    let mut pieces = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    for piece in pieces {
        terms.push(plain_term(piece.trim_matches(' '))?);
    }
    Some(terms)
}

fn plain_term(piece: &str) -> Option<Term> {
    let term = |key: &str, operator: &str, values: Vec<&str>| {
        let is_key = is_plain(key) && key.starts_with(|c: char| c.is_ascii_lowercase());
        // Words that are operators in another place are left to the unit tests.
        (is_key && key != "in" && key != "notin").then(|| Term {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.into_iter().map(str::to_owned).collect(),
        })
    };
    if let Some(key) = piece.strip_prefix('!') {
        return term(key, "!", Vec::new());
    }
    for operator in [" notin ", " in "] {
        if let Some((key, list)) = piece.split_once(operator) {
            let list = list.strip_prefix('(')?.strip_suffix(')')?;
            let values: Vec<&str> = list.split(',').map(|v| v.trim_matches(' ')).collect();
            let are_plain = values.iter().all(|v| v.is_empty() || is_plain(v));
            return are_plain.then(|| term(key, operator.trim(), values))?;
        }
    }
    for operator in ["!=", "==", "="] {
        if let Some((key, value)) = piece.split_once(operator) {
            let is_fit = value.is_empty() || is_plain(value);
            return is_fit.then(|| term(key, operator, vec![value]))?;
        }
    }
    for operator in [">", "<"] {
        if let Some((key, value)) = piece.split_once(operator) {
            let is_number = value.bytes().all(|b| b.is_ascii_digit()) && is_plain(value);
            return (is_number && value.len() < 10).then(|| term(key, operator, vec![value]))?;
        }
    }
    term(piece, "", Vec::new())
}

fn is_plain(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=20).contains(&text.len()) && text.bytes().all(fits)
}

fn holds(term: &Term, labels: &Labels) -> bool {
    let value = labels.get(&term.key);
    let number = |text: &String| text.parse::<i64>().ok();
    match term.operator.as_str() {
        "" => value.is_some(),
        "!" => value.is_none(),
        "=" | "==" | "in" => value.is_some_and(|v| term.values.contains(v)),
        "!=" | "notin" => value.is_none_or(|v| !term.values.contains(v)),
        ">" => value.and_then(number) > number(&term.values[0]),
        "<" => value
            .and_then(number)
            .is_some_and(|n| Some(n) < number(&term.values[0])),
        other => panic!("{other} is no operator"),
    }
}
