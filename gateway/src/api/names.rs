//! What names may look like, and how one is made from `generateName`.

use super::errors::Cause;
use super::resource::ResourceKind;

/// DNS names.
const SUBDOMAIN_MAX: usize = 253;
/// DNS labels, label values and the name part of a label's key.
const LABEL_MAX: usize = 63;
/// Letters and digits that spell no words and are not mistaken for one another.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters added to `generateName`.
const SUFFIX_LEN: usize = 5;

/// Which rule a kind's names follow.
#[derive(Clone, Copy)]
enum Rule {
    Subdomain,
    Label,
    ServiceLabel,
    PathSegment,
}

fn rule_of(kind: &ResourceKind) -> Rule {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => Rule::Label,
        ("", "services") => Rule::ServiceLabel,
        ("rbac.authorization.k8s.io", _) => Rule::PathSegment,
        _ => Rule::Subdomain,
    }
}

/// Why a name will not do for a kind, if so.
#[must_use]
pub fn check(kind: &ResourceKind, name: &str) -> Option<Cause> {
    let why = match rule_of(kind) {
        Rule::Subdomain if !is_subdomain(name) => {
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        }
        Rule::Label if !is_label(name) => {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
        }
        Rule::ServiceLabel
            if !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) =>
        {
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"
        }
        Rule::PathSegment if !is_path_segment(name) => {
            "must be a path segment: not '.' or '..', and without '/' or '%'"
        }
        _ => return None,
    };
    Some(Cause::invalid("metadata.name", name, why))
}

/// Whether a name can stand in a path and in a key; true for every valid name of every kind.
#[must_use]
pub fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%', '\0'])
}

/// RFC 1123 subdomain.
#[must_use]
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_MAX && name.split('.').all(|part| is_label_of(part, usize::MAX))
}

/// RFC 1123 label.
#[must_use]
pub fn is_label(name: &str) -> bool {
    is_label_of(name, LABEL_MAX)
}

fn is_label_of(name: &str, max: usize) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= max
        && name.bytes().all(|b| alnum(b) || b == b'-')
        && name.bytes().next().is_some_and(alnum)
        && name.bytes().last().is_some_and(alnum)
}

/// A label's or annotation's key: an optional DNS prefix and a slash, then a name.
#[must_use]
pub fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_word(name),
        None => is_word(key),
    }
}

/// A label's value: empty, or a word.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_word(value)
}

fn is_word(word: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_alphanumeric();
    word.len() <= LABEL_MAX
        && word
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'))
        && word.bytes().next().is_some_and(alnum)
        && word.bytes().last().is_some_and(alnum)
}

/// A name from a base and 64 random bits; the base is cut so that the whole stays a DNS label.
#[must_use]
pub fn generate(base: &str, mut random: u64) -> String {
    let mut end = base.len().min(LABEL_MAX - SUFFIX_LEN);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base.get(..end).unwrap_or_default().to_owned();
    for _ in 0..SUFFIX_LEN {
        let letters = SUFFIX_ALPHABET.len() as u64;
        let at = usize::try_from(random % letters).unwrap_or(0);
        random /= letters;
        name.push(SUFFIX_ALPHABET.get(at).map_or('x', |b| char::from(*b)));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_names_are_told_from_others() {
        for good in ["a", "a-b.c", "0", "a.0.b"] {
            assert!(is_subdomain(good), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "a/b"] {
            assert!(!is_subdomain(bad), "{bad}");
        }
        assert!(!is_label("a.b"));
        assert!(!is_label(&"a".repeat(64)));
        assert!(is_qualified("k8s.io/x_Y") && is_qualified("x.y") && !is_qualified("a/b/c"));
        assert!(is_label_value("") && !is_label_value("-x") && !is_label_value("x y"));
    }

    #[test]
    fn generated_name_stays_a_label() {
        assert_eq!(generate("web-", 0), "web-bbbbb");
        let long = generate(&"a".repeat(300), u64::MAX);
        assert_eq!(long.len(), LABEL_MAX);
        assert!(is_label(&long));
    }
}
