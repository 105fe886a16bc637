//! The reference lists the keys that the types have, and no others.
//!
//! The keys are had by decoding each kind from a decoder that answers every question with something
//! acceptable and writes down which fields it was asked for.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::value::{Error, MapDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use sluice_config::{GatewayConfig, RateRules, UpstreamCluster};

type Seen = RefCell<BTreeSet<String>>;

/// A decoder for the value of one key.
#[derive(Clone)]
struct Tracer<'a> {
    path: String,
    seen: &'a Seen,
}

impl Tracer<'_> {
    fn below(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Tracer {
            path: format!("{}{dot}{name}", self.path),
            seen: self.seen,
        }
    }
}

/// What a scalar says it would like to be.
fn acceptable(visitor: &dyn Expected) -> String {
    let wish = visitor.to_string();
    let example = wish
        .split_once("such as ")
        .map_or("text", |(_, example)| example);
    example.split(' ').next().unwrap().to_owned()
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = acceptable(&visitor);
        visitor.visit_str(&text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(false)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(1)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(1)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        assert_eq!(name, "__yaml_spanned");
        visitor.visit_newtype_struct(Spanned(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.seen.borrow_mut().remove(&self.path);
        let path = format!("{}[]", self.path);
        self.seen.borrow_mut().insert(path.clone());
        visitor.visit_seq(One(Some(Tracer { path, ..self })))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields {
            fields: fields.iter(),
            tracer: self.clone(),
            next: self,
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum((*variants.first().unwrap()).into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map identifier ignored_any
    }
}

struct Fields<'a> {
    fields: std::slice::Iter<'static, &'static str>,
    tracer: Tracer<'a>,
    next: Tracer<'a>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(field) = self.fields.next() else {
            return Ok(None);
        };
        self.next = self.tracer.below(field);
        self.next.seen.borrow_mut().insert(self.next.path.clone());
        seed.deserialize((*field).into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.next.clone())
    }
}

struct One<'a>(Option<Tracer<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0
            .take()
            .map(|tracer| seed.deserialize(tracer))
            .transpose()
    }
}

/// Plays the YAML decoder's way of handing on a value with its place.
struct Spanned<'a>(Tracer<'a>);

impl<'de> Deserializer<'de> for Spanned<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(SpannedMap {
            tracer: self.0,
            keys: [
                "__serde_saphyr_private_spanned",
                "value",
                "referenced",
                "defined",
            ]
            .iter(),
            key: "",
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct SpannedMap<'a> {
    tracer: Tracer<'a>,
    keys: std::slice::Iter<'static, &'static str>,
    key: &'static str,
}

impl<'de> MapAccess<'de> for SpannedMap<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(key) = self.keys.next() else {
            return Ok(None);
        };
        self.key = key;
        seed.deserialize((*key).into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        match self.key {
            "value" => seed.deserialize(self.tracer.clone()),
            "referenced" | "defined" => {
                let place = [("line", 1_u64), ("column", 1)];
                seed.deserialize(MapDeserializer::new(place.into_iter()))
            }
            _ => seed.deserialize(().into_deserializer()),
        }
    }
}

fn keys<'de, T: Deserialize<'de>>() -> BTreeSet<String> {
    let seen = Seen::default();
    let tracer = Tracer {
        path: String::new(),
        seen: &seen,
    };
    if let Err(error) = T::deserialize(tracer) {
        panic!("the tracer said something unacceptable: {error}");
    }
    seen.into_inner()
}

/// The first column of a section's table.
fn listed(section: &str) -> BTreeSet<String> {
    let text = include_str!("../REFERENCE.md");
    let (_, rest) = text.split_once(&format!("\n## {section}\n")).unwrap();
    let body = rest.split_once("\n## ").map_or(rest, |(body, _)| body);
    body.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(key, _)| key.to_owned())
        .collect()
}

#[test]
fn reference_lists_every_key_and_no_other() {
    for (section, keys) in [
        ("GatewayConfig", keys::<GatewayConfig>()),
        ("UpstreamCluster", keys::<UpstreamCluster>()),
        ("RateRules", keys::<RateRules>()),
    ] {
        let listed = listed(section);
        let missing: Vec<_> = keys.difference(&listed).collect();
        let stray: Vec<_> = listed.difference(&keys).collect();
        assert!(
            missing.is_empty() && stray.is_empty(),
            "{section}: missing {missing:?}, stray {stray:?}"
        );
        assert!(keys.len() > 20, "{section}: {keys:?}");
    }
}
