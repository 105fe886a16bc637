//! Label selectors: `a`, `!a`, `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a>1`, `a<1`, joined by
//! commas that mean "and".

use crate::api::names;

/// A conjunction of requirements; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also true of objects without the key.
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { rest: text };
        let mut requirements = Vec::new();
        if tokens.peek().is_none() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                None => return Ok(LabelSelector { requirements }),
                Some(",") => {}
                Some(other) => return Err(format!("found '{other}', expected: ','")),
            }
        }
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object is selected whose labels `label` looks up.
    #[must_use]
    pub fn select<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = label(&requirement.key);
            let number = || value.and_then(|v| v.parse::<i64>().ok());
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
                Test::NotIn(values) => !value.is_some_and(|v| values.iter().any(|w| w == v)),
                Test::Above(bound) => number().is_some_and(|n| n > *bound),
                Test::Below(bound) => number().is_some_and(|n| n < *bound),
            }
        })
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let mut key = tokens.next();
    let negated = key == Some("!");
    if negated {
        key = tokens.next();
    }
    let key = word(key, "a label key")?.to_owned();
    if !names::is_qualified(&key.to_ascii_lowercase()) {
        return Err(format!("'{key}' is not a label key"));
    }
    let test = match tokens.peek() {
        _ if negated => Test::Absent,
        None | Some(",") => Test::Exists,
        Some(operator) => {
            tokens.next();
            operation(operator, tokens)?
        }
    };
    Ok(Requirement { key, test })
}

fn operation(operator: &str, tokens: &mut Tokens<'_>) -> Result<Test, String> {
    Ok(match operator {
        "=" | "==" => Test::In(vec![value(tokens)?]),
        "!=" => Test::NotIn(vec![value(tokens)?]),
        "in" => Test::In(values(tokens)?),
        "notin" => Test::NotIn(values(tokens)?),
        ">" => Test::Above(number(tokens)?),
        "<" => Test::Below(number(tokens)?),
        other => {
            let expected = "in, notin, =, ==, !=, >, <";
            return Err(format!("found '{other}', expected: {expected}"));
        }
    })
}

/// A value, which is empty when a comma, a bracket or the end comes instead.
fn value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    let text = match tokens.peek() {
        None | Some("," | ")") => "",
        Some(_) => word(tokens.next(), "a value")?,
    };
    if names::is_label_value(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is not a label value"))
    }
}

fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        Some("(") => {}
        other => {
            return Err(format!(
                "found '{}', expected: '('",
                other.unwrap_or_default()
            ));
        }
    }
    let mut values = Vec::new();
    loop {
        values.push(value(tokens)?);
        match tokens.next() {
            Some(",") => {}
            Some(")") => return Ok(values),
            other => {
                let found = other.unwrap_or_default();
                return Err(format!("found '{found}', expected: ',' or ')'"));
            }
        }
    }
}

fn number(tokens: &mut Tokens<'_>) -> Result<i64, String> {
    let text = word(tokens.next(), "a number")?;
    text.parse()
        .map_err(|_| format!("'{text}' is not a number"))
}

fn word<'t>(token: Option<&'t str>, what: &str) -> Result<&'t str, String> {
    match token {
        Some(text) if !text.starts_with(is_special) => Ok(text),
        other => Err(format!(
            "found '{}', expected: {what}",
            other.unwrap_or_default()
        )),
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Words and operators; blanks between them mean nothing.
struct Tokens<'t> {
    rest: &'t str,
}

impl<'t> Tokens<'t> {
    fn next(&mut self) -> Option<&'t str> {
        self.rest = self.rest.trim_start_matches(is_space);
        let len = self.token_len()?;
        let (token, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(token)
    }

    fn peek(&self) -> Option<&'t str> {
        Tokens { rest: self.rest }.next()
    }

    fn token_len(&self) -> Option<usize> {
        let first = self.rest.chars().next()?;
        if !is_special(first) {
            let end = self.rest.find(|c| is_special(c) || is_space(c));
            return Some(end.unwrap_or(self.rest.len()));
        }
        let double = self.rest.starts_with("==") || self.rest.starts_with("!=");
        Some(if double { 2 } else { 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(selector: &str, labels: &[(&str, &'static str)]) -> bool {
        let parsed = LabelSelector::parse(selector).expect(selector);
        parsed.select(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn requirements_mean_what_kubernetes_says() {
        let web = [("app", "web"), ("n", "5"), ("empty", "")];
        for yes in [
            "",
            " ",
            "app",
            "!x",
            "app=web",
            "app == web",
            "x!=1",
            "app in (a, web)",
            "x notin (a)",
            "n>4",
            "n<6,app",
            "empty=",
            "empty in (,a)",
            "in!=a",
            "k8s.io/x!=y",
        ] {
            assert!(select(yes, &web), "{yes}");
        }
        for no in [
            "!app",
            "x",
            "app=x",
            "app!=web",
            "app notin (web)",
            "x in (a)",
            "n>5",
            "x>1",
            "app>1",
            "!empty",
        ] {
            assert!(!select(no, &web), "{no}");
        }
    }

    #[test]
    fn broken_selectors_are_refused() {
        for bad in [
            "a,", ",a", "a=b=c", "a in b", "a in (b", "=a", "a b", "a>x", "a=-", "!",
        ] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
