//! Lists that select requests.
//!
//! One meaning for every list: a field that is absent is not looked at; an entry that begins with
//! `-` (or `!`) excludes; a value is selected when no entry excludes it and, if there are entries
//! that include, one of them includes it. Exclusion wins whatever the order. A user has several
//! groups: one excluded group excludes the user. A list that can select nothing is an error.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::Deserializer;

use crate::located::Located;
use crate::suggest::nearest;
use crate::units::from_text;

/// A list of one selector field.
pub type Terms<T> = Vec<Located<Term<T>>>;

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term<T> {
    /// Whether what it matches is left out.
    pub excludes: bool,
    /// What it matches. A [`Glob`] is text in which each `*` stands for any run of characters.
    pub pattern: T,
}

impl<T: FromStr<Err = String>> FromStr for Term<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix(['-', '!']);
        if bare == Some("") {
            return Err(format!("`{text}` excludes nothing; name what to exclude"));
        }
        Ok(Term {
            excludes: bare.is_some(),
            pattern: bare.unwrap_or(text).parse()?,
        })
    }
}

impl<T: fmt::Display> fmt::Display for Term<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.excludes { "-" } else { "" };
        write!(f, "{sign}{}", self.pattern)
    }
}

/// Text with `*`; empty text is that of requests which lack what is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(String);

impl Glob {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Glob(text.to_owned()))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A verb of Kubernetes' request attributes, or `*` for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VerbName(&'static str);

/// Verbs of resources, of other paths, and of both, in this order.
const VERBS: [(&str, bool, bool); 13] = [
    ("*", true, true),
    ("get", true, true),
    ("list", true, false),
    ("watch", true, false),
    ("create", true, false),
    ("update", true, false),
    ("patch", true, true),
    ("delete", true, true),
    ("deletecollection", true, false),
    ("head", false, true),
    ("options", false, true),
    ("post", false, true),
    ("put", false, true),
];

impl VerbName {
    /// The word, `*` included.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.0
    }

    /// Whether requests for resources can have it.
    #[must_use]
    pub fn is_for_resources(&self) -> bool {
        VERBS
            .iter()
            .any(|(verb, resource, _)| *verb == self.0 && *resource)
    }

    /// Whether requests for other paths can have it.
    #[must_use]
    pub fn is_for_paths(&self) -> bool {
        VERBS.iter().any(|(verb, _, path)| *verb == self.0 && *path)
    }
}

impl FromStr for VerbName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = || VERBS.iter().map(|(verb, _, _)| *verb);
        if let Some(verb) = words().find(|verb| *verb == text) {
            return Ok(VerbName(verb));
        }
        let advice = nearest(text, words()).map_or_else(
            || "the verbs are those of RBAC".to_owned(),
            |verb| format!("did you mean `{verb}`?"),
        );
        Err(format!("`{text}` is not a verb; {advice}"))
    }
}

impl fmt::Display for VerbName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One part of a resource's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Anything, the empty text included.
    Any,
    /// This text; empty for the core group, and for no subresource.
    Is(String),
}

impl Part {
    /// Whether everything that `other` matches is matched by this.
    pub(crate) fn covers(&self, other: &Part) -> bool {
        *self == Part::Any || self == other
    }
}

/// A resource as `resource[.group][/subresource]`.
///
/// `pods` is a resource of that name in any group, and not its subresources; `deployments.apps` is
/// of a named group, `pods.` of the core group; `pods/log` is one subresource, `*/scale` that of
/// every resource; `*.apps` is everything of a group and `*` everything, subresources included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceName {
    /// The plural name.
    pub resource: Part,
    /// The API group.
    pub group: Part,
    /// The subresource.
    pub subresource: Part,
}

impl FromStr for ResourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("`{text}` is not a resource; write resource[.group][/subresource]");
        let (base, subresource) = match text.split_once('/') {
            Some((_, "*")) => {
                return Err(format!(
                    "`{text}` is no one subresource; list each, or use `*`"
                ));
            }
            Some((base, word)) if is_word(word) => (base, Some(Part::Is(word.to_owned()))),
            Some(_) => return Err(fault()),
            None => (text, None),
        };
        let (resource, group) = match base.split_once('.') {
            Some((resource, group)) if group.is_empty() || crate::address::is_dns_name(group) => {
                (resource, Part::Is(group.to_owned()))
            }
            Some(_) => return Err(fault()),
            None => (base, Part::Any),
        };
        let resource = match resource {
            "*" => Part::Any,
            word if is_word(word) => Part::Is(word.to_owned()),
            _ => return Err(fault()),
        };
        Ok(ResourceName {
            subresource: match (subresource, &resource) {
                (Some(subresource), _) => subresource,
                (None, Part::Any) => Part::Any,
                (None, Part::Is(_)) => Part::Is(String::new()),
            },
            resource,
            group,
        })
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.resource {
            Part::Any => f.write_str("*")?,
            Part::Is(resource) => f.write_str(resource)?,
        }
        if let Part::Is(group) = &self.group {
            write!(f, ".{group}")?;
        }
        match &self.subresource {
            Part::Is(subresource) if !subresource.is_empty() => write!(f, "/{subresource}"),
            Part::Any | Part::Is(_) => Ok(()),
        }
    }
}

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Term<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(
            deserializer,
            "an entry of a selector list, such as * or -get",
        )
    }
}

/// What can be said of two patterns without looking at a request.
pub(crate) trait Covers {
    /// Whether this certainly matches all that `other` matches; `false` when that is not known.
    fn covers(&self, other: &Self) -> bool;
    /// Whether this matches one value only.
    fn is_exact(&self) -> bool;
}

impl Covers for Glob {
    fn covers(&self, other: &Self) -> bool {
        // A star of `other` is met by a star of this only, hence a letter no pattern has.
        glob_matches(&self.0, &other.0.replace('*', "\u{0}"))
    }

    fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }
}

impl Covers for VerbName {
    fn covers(&self, other: &Self) -> bool {
        self.0 == "*" || self.0 == other.0
    }

    fn is_exact(&self) -> bool {
        self.0 != "*"
    }
}

impl Covers for ResourceName {
    fn covers(&self, other: &Self) -> bool {
        self.resource.covers(&other.resource)
            && self.group.covers(&other.group)
            && self.subresource.covers(&other.subresource)
    }

    fn is_exact(&self) -> bool {
        [&self.resource, &self.group, &self.subresource]
            .iter()
            .all(|part| matches!(part, Part::Is(_)))
    }
}

/// Whether `text` is `pattern` with each `*` replaced by some run of characters.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_name_group_and_subresource() {
        for text in [
            "*",
            "pods",
            "pods.",
            "pods/log",
            "pods./log",
            "deployments.apps",
            "deployments.apps/scale",
            "*.apps",
            "*/scale",
            "crontabs.stable.example.com",
        ] {
            assert_eq!(text.parse::<ResourceName>().unwrap().to_string(), text);
        }
        for text in [
            "", "Pods", "pods/", "/log", "pods/a/b", "pods/*", ".apps", "*/", "po*", "a.*",
        ] {
            assert!(text.parse::<ResourceName>().is_err(), "{text}");
        }
    }

    #[test]
    fn covering_is_certain_or_denied() {
        let glob = |text: &str| text.parse::<Glob>().unwrap();
        for (wide, narrow, expected) in [
            ("*", "system:node:*", true),
            ("system:*", "system:node:*", true),
            ("system:node:*", "system:*", false),
            ("*-controller", "a-controller", true),
            ("a*c", "abc", true),
            ("a*c", "a*b*c", true),
            ("a*b*c", "a*c", false),
            ("abc", "abc", true),
            ("abc", "ab*", false),
            ("ab*b", "ab", false),
        ] {
            assert_eq!(
                glob(wide).covers(&glob(narrow)),
                expected,
                "{wide} {narrow}"
            );
        }
        let resource = |text: &str| text.parse::<ResourceName>().unwrap();
        for (wide, narrow, expected) in [
            ("*", "pods/log", true),
            ("*", "pods", true),
            ("pods", "pods.", true),
            ("pods.", "pods", false),
            ("pods", "pods/log", false),
            ("*/log", "pods/log", true),
            ("*.apps", "deployments.apps", true),
            ("*.apps", "deployments.apps/scale", true),
            ("*.apps", "deployments", false),
        ] {
            assert_eq!(
                resource(wide).covers(&resource(narrow)),
                expected,
                "{wide} {narrow}"
            );
        }
    }
}
