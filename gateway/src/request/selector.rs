//! The one thing of a field selector that is a request attribute: the object name it requires.

/// The name that `selector` requires of `metadata.name`, if it is a selector at all and requires
/// one that could stand in a path.
///
/// Terms are taken in byte order, as the server sorts them before it looks; the first one counts.
pub(super) fn required_name(selector: &str) -> Option<String> {
    let mut first: Option<(&str, String)> = None;
    for term in terms(selector) {
        if term.is_empty() {
            continue;
        }
        let (field, is_equal, value) = split_term(term)?;
        let value = unescape(value)?;
        if field == "metadata.name"
            && is_equal
            && first.as_ref().is_none_or(|(lowest, _)| term < *lowest)
        {
            first = Some((term, value));
        }
    }
    let (_, name) = first?;
    let fits = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '%']);
    fits.then_some(name)
}

/// Splits at commas that no backslash precedes.
fn terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    selector.split(move |c| {
        let splits = !escaped && c == ',';
        escaped = !escaped && c == '\\';
        splits
    })
}

/// Field, whether the operator asks for equality, and the value as written.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let equals = term.find('=')?;
    let (field, rest) = term.split_at_checked(equals)?;
    if let Some(field) = field.strip_suffix('!') {
        return Some((field, false, rest.strip_prefix('=')?));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                escaped @ ('\\' | ',' | '=') => out.push(escaped),
                _ => return None,
            },
            ',' | '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}
