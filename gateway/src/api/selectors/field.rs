//! Field selectors: `path=value` and `path!=value`, joined by commas; which paths there are
//! depends on the kind. A field that is not there reads as empty.

use super::super::resource::ResourceKind;
use super::super::seek;

/// A conjunction of terms; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    label: String,
    place: Place,
    value: String,
    is_negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Name,
    Namespace,
    Path(Vec<String>),
}

impl FieldSelector {
    /// Reads a selector for a kind.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(kind: &ResourceKind, text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for term in split_terms(text) {
            if !term.is_empty() {
                terms.push(read_term(kind, text, term)?);
            }
        }
        Ok(FieldSelector { terms })
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that a label must have, if the selector says so.
    #[must_use]
    pub fn required(&self, label: &str) -> Option<&str> {
        let mut found = self.terms.iter();
        let term = found.find(|t| t.label == label && !t.is_negated)?;
        Some(&term.value)
    }

    /// Whether a stored object is selected; `place` is its namespace and name.
    #[must_use]
    pub fn select(&self, place: (&str, &str), stored: &[u8]) -> bool {
        self.terms.iter().all(|term| {
            let equal = match &term.place {
                Place::Namespace => place.0 == term.value,
                Place::Name => place.1 == term.value,
                Place::Path(path) => seek::text(stored, path) == term.value,
            };
            equal != term.is_negated
        })
    }
}

/// Splits at commas that no backslash precedes.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |c| {
        let splits = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        splits
    })
}

fn read_term(kind: &ResourceKind, whole: &str, term: &str) -> Result<Term, String> {
    let invalid = || format!("invalid selector: '{whole}'; can't understand '{term}'");
    let at = term.find('=').ok_or_else(invalid)?;
    let (left, right) = term.split_at_checked(at).ok_or_else(invalid)?;
    let (label, value, is_negated) = match left.strip_suffix('!') {
        Some(label) => (label, right.strip_prefix('='), true),
        None => {
            let value = right.strip_prefix("==").or_else(|| right.strip_prefix('='));
            (left, value, false)
        }
    };
    let value = unescape(value.ok_or_else(invalid)?).ok_or_else(invalid)?;
    Ok(Term {
        label: label.to_owned(),
        place: place_of(kind, label)?,
        value,
        is_negated,
    })
}

fn place_of(kind: &ResourceKind, label: &str) -> Result<Place, String> {
    if label == "metadata.name" {
        return Ok(Place::Name);
    }
    if label == "metadata.namespace" && kind.is_namespaced() {
        return Ok(Place::Namespace);
    }
    let known = kind.field_labels.iter().find(|known| known.label == label);
    match known {
        Some(known) => Ok(Place::Path(seek::path(&known.path))),
        None if kind.is_custom => Err(format!("field label not supported: {label}")),
        None => Err(format!(
            "field label \"{label}\" not supported for {}",
            kind.kind
        )),
    }
}

fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::super::resource::Registry;
    use super::*;

    fn select(selector: &str, stored: &str) -> bool {
        let pods = Registry::new().resolve("", "v1", "pods").expect("built in");
        let parsed = FieldSelector::parse(&pods, selector).expect(selector);
        parsed.select(("ns", "a,b"), stored.as_bytes())
    }

    #[test]
    fn fields_are_compared_as_texts() {
        let pod = r#"{"kind":"Pod","spec":{"nodeName":"n1","hostNetwork":true}}"#;
        for yes in [
            "",
            ",,",
            "spec.nodeName=n1",
            "spec.nodeName==n1,",
            "status.phase=",
            "status.phase!=Running",
            r"metadata.name=a\,b",
            "metadata.namespace=ns",
            "spec.hostNetwork=true",
        ] {
            assert!(select(yes, pod), "{yes}");
        }
        for no in [
            "spec.nodeName=",
            "spec.nodeName!=n1",
            "metadata.name=a",
            "status.phase=x",
        ] {
            assert!(!select(no, pod), "{no}");
        }
    }

    #[test]
    fn unknown_labels_and_broken_terms_are_refused() {
        let registry = Registry::new();
        let pods = registry.resolve("", "v1", "pods").expect("built in");
        let nodes = registry.resolve("", "v1", "nodes").expect("built in");
        for bad in [
            "spec.other=1",
            "metadata.name",
            r"metadata.name=\x",
            "metadata.name=a=b",
        ] {
            assert!(FieldSelector::parse(&pods, bad).is_err(), "{bad}");
        }
        assert!(FieldSelector::parse(&nodes, "metadata.namespace=x").is_err());
    }
}
