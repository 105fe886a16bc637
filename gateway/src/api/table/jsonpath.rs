//! The part of JSONPath that printer columns and selectable fields use.
//!
//! Understood: `.a.b`, `['a']`, `.a\.b`, `[0]`, `[-1]`, `[*]`, `.*`, and filters of the form
//! `[?(@.a.b=="x")]` with `==` or `!=` and a string, number or boolean. A path that uses more is an
//! error when a definition is stored, not an empty column later.

use serde_json::Value;

/// A path, read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Filter {
        path: Vec<Step>,
        equal: bool,
        value: Value,
    },
}

/// Why a path cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unsupported JSONPath at={at}: {why}")]
pub struct PathError {
    /// Byte offset.
    pub at: usize,
    /// What was found.
    pub why: &'static str,
}

/// A definition's path is a line, not a program.
const LEN_MAX: usize = 1024;

impl JsonPath {
    /// Reads a path such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// [`PathError`] for a path that is malformed or uses more than is understood here.
    pub fn parse(text: &str) -> Result<JsonPath, PathError> {
        if text.len() > LEN_MAX {
            let why = "path is longer than 1024 bytes";
            return Err(PathError { at: LEN_MAX, why });
        }
        let mut reader = Reader { text, at: 0 };
        let steps = reader.steps(|_| false)?;
        Ok(JsonPath { steps })
    }

    /// Everything the path leads to.
    #[must_use]
    pub fn find<'v>(&self, object: &'v Value) -> Vec<&'v Value> {
        walk(&self.steps, object)
    }
}

fn walk<'v>(steps: &[Step], object: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|v| step.apply(v)).collect();
    }
    found
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Step::Index(index), Value::Array(list)) => {
                let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
                let at = if *index < 0 {
                    list.len().checked_sub(distance)
                } else {
                    Some(distance)
                };
                at.and_then(|at| list.get(at)).into_iter().collect()
            }
            (Step::All, Value::Array(list)) => list.iter().collect(),
            (Step::All, Value::Object(map)) => map.values().collect(),
            (Step::Filter { path, equal, value }, Value::Array(list)) => list
                .iter()
                .filter(|entry| walk(path, entry).iter().any(|v| (*v == value) == *equal))
                .collect(),
            _ => Vec::new(),
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fail<T>(&self, why: &'static str) -> Result<T, PathError> {
        Err(PathError { at: self.at, why })
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn steps(&mut self, ends: fn(&str) -> bool) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        while !self.rest().is_empty() && !ends(self.rest()) {
            if self.take("..") {
                return self.fail("recursive descent");
            } else if self.take("[") {
                steps.push(self.bracket()?);
            } else if self.take(".*") {
                steps.push(Step::All);
            } else if self.take(".") {
                // A lone dot is the object itself, and `.[0]` is the same as `[0]`.
                let rest = self.rest();
                if !rest.is_empty() && !rest.starts_with('[') && !ends(rest) {
                    steps.push(Step::Field(self.name()?));
                }
            } else if steps.is_empty() {
                steps.push(Step::Field(self.name()?));
            } else {
                return self.fail("a dot or a bracket was expected");
            }
        }
        Ok(steps)
    }

    /// A field's name up to the next dot or bracket; a backslash takes the next character as it is.
    fn name(&mut self) -> Result<String, PathError> {
        const ENDS: &str = ".[]=!) {}$";
        let mut name = String::new();
        let mut escaped = false;
        for c in self.rest().chars() {
            if !escaped && ENDS.contains(c) {
                break;
            }
            self.at += c.len_utf8();
            escaped = !escaped && c == '\\';
            if !escaped {
                name.push(c);
            }
        }
        if name.is_empty() {
            return self.fail("a field name was expected");
        }
        Ok(name)
    }

    fn bracket(&mut self) -> Result<Step, PathError> {
        let step = if self.take("*") {
            Step::All
        } else if self.take("?(") {
            self.filter()?
        } else if self.rest().starts_with(['\'', '"']) {
            Step::Field(self.quoted()?)
        } else {
            let end = self.rest().find(']').unwrap_or(self.rest().len());
            let Some(index) = self.rest().get(..end).and_then(|n| n.parse().ok()) else {
                return self.fail("an index, a quoted name, * or ?() was expected");
            };
            self.at += end;
            Step::Index(index)
        };
        if self.take("]") {
            Ok(step)
        } else {
            self.fail("a closing bracket was expected")
        }
    }

    fn filter(&mut self) -> Result<Step, PathError> {
        self.skip_spaces();
        if !self.take("@") {
            return self.fail("a filter must begin with @");
        }
        let path = self.steps(|rest| rest.starts_with([' ', '=', '!', ')', '<', '>']))?;
        self.skip_spaces();
        let equal = if self.take("==") {
            true
        } else if self.take("!=") {
            false
        } else {
            return self.fail("a filter must compare by == or !=");
        };
        self.skip_spaces();
        let value = if self.rest().starts_with(['\'', '"']) {
            Value::from(self.quoted()?)
        } else {
            let end = self.rest().find([')', ' ']).unwrap_or(self.rest().len());
            let literal = self.rest().get(..end).unwrap_or_default();
            let Ok(value) = serde_json::from_str(literal) else {
                return self.fail("a string, number or boolean was expected");
            };
            self.at += end;
            value
        };
        self.skip_spaces();
        if self.take(")") {
            Ok(Step::Filter { path, equal, value })
        } else {
            self.fail("a closing parenthesis was expected")
        }
    }

    fn quoted(&mut self) -> Result<String, PathError> {
        let Some(quote) = self.rest().chars().next() else {
            return self.fail("a quoted text was expected");
        };
        self.at += quote.len_utf8();
        match self.rest().find(quote) {
            Some(end) => {
                let text = self.rest().get(..end).unwrap_or_default().replace('\\', "");
                self.at += end + quote.len_utf8();
                Ok(text)
            }
            None => self.fail("a closing quote was expected"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_printer_columns_point() {
        let object = json!({
            "spec": {"replicas": 3, "list": [1, 2, 3]},
            "metadata": {"labels": {"app.io/x": "y"}},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"},
            ]},
        });
        let cases = [
            (".spec.replicas", json!([3])),
            (".spec.list[0]", json!([1])),
            (".spec.list[-1]", json!([3])),
            (".spec.list[*]", json!([1, 2, 3])),
            (".spec.list[9]", json!([])),
            (".metadata.labels.app\\.io/x", json!(["y"])),
            (".metadata.labels['app.io/x']", json!(["y"])),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?( @.type != 'Ready' )].status",
                json!(["False"]),
            ),
            (".nothing.here", json!([])),
        ];
        for (path, wanted) in cases {
            let found = JsonPath::parse(path).expect(path);
            assert_eq!(json!(found.find(&object)), wanted, "{path}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for path in [
            "..name",
            ".a[",
            ".a[x]",
            ".a[?(.b==1)]",
            ".a[?(@.b>1)]",
            ".a{",
            ".a['b",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
