//! Reads single values out of JSON by path, skipping everything else unparsed.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Splits a dotted path.
#[must_use]
pub fn path(dotted: &str) -> Vec<String> {
    dotted
        .split('.')
        .filter(|part| !part.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

/// The plain value at a path as text: booleans and numbers in their JSON form; empty for what is
/// absent, null, an object or a list.
#[must_use]
pub fn text(json: &[u8], path: &[String]) -> String {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let found = Seek { path }.deserialize(&mut reader);
    found.ok().flatten().unwrap_or_default()
}

/// The value at a path of an object at hand.
#[must_use]
pub fn value<'o>(object: &'o Map<String, Value>, dotted: &str) -> Option<&'o Value> {
    let mut parts = dotted.split('.').filter(|part| !part.is_empty());
    let mut value = object.get(parts.next()?)?;
    for part in parts {
        value = value.get(part)?;
    }
    Some(value)
}

/// Puts a value at a path, making the objects on the way; `false` when something else is in it.
pub fn put(object: &mut Map<String, Value>, dotted: &str, value: Value) -> bool {
    let Some((parents, last)) = dotted.rsplit_once('.') else {
        object.insert(dotted.to_owned(), value);
        return true;
    };
    let mut map = object;
    for part in parents.split('.') {
        let entry = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
        match entry.as_object_mut() {
            Some(inner) => map = inner,
            None => return false,
        }
    }
    map.insert(last.to_owned(), value);
    true
}

struct Seek<'p> {
    path: &'p [String],
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl Seek<'_> {
    fn plain(&self, value: impl fmt::Display) -> Option<String> {
        self.path.is_empty().then(|| value.to_string())
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.plain(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.plain(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.plain(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        // As it is written: "1e9" is stored as "1000000000.0", which is no integer.
        Ok(self.plain(Value::from(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(self.plain(value))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.path.split_first() {
                Some((first, rest)) if *first == key => {
                    found = map.next_value_seed(Seek { path: rest })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_path() {
        let json = br#"{"a":{"x":[1,{"b":2}],"b":"t\"x","n":3,"t":true,"z":null},"b":"no"}"#;
        for (at, expected) in [
            ("a.b", "t\"x"),
            ("a.n", "3"),
            ("a.t", "true"),
            ("a.z", ""),
            ("a", ""),
            ("a.x", ""),
            ("a.b.c", ""),
            ("c", ""),
        ] {
            assert_eq!(text(json, &path(at)), expected, "{at}");
        }
    }

    #[test]
    fn put_makes_the_way() {
        let mut object = Map::new();
        assert!(put(&mut object, "a.b.c", 1.into()));
        assert_eq!(value(&object, "a.b.c"), Some(&1.into()));
        assert!(!put(&mut object, "a.b.c.d", 1.into()));
    }
}
