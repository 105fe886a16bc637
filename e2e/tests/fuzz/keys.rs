//! Ranges of keys, against comparing prefixes; and the places of objects, which must be told apart.

use bytes::Bytes;
use sluice_gateway::api::keys;
use sluice_gateway::api::resource::Registry;
use sluice_metastore::KeyRange;

use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

pub(crate) fn target() -> Target {
    Target {
        name: "keys",
        shape: Shape::program(64),
        seeds: vec![Vec::new()],
        check: Box::new(check),
    }
}

/// Bytes at which carrying and ending go wrong.
const EDGES: [u8; 6] = [0, 1, b'/', b'a', 0xfe, 0xff];

fn key(feed: &mut Feed<'_>) -> Vec<u8> {
    (0..feed.below(6)).map(|_| feed.pick(&EDGES)).collect()
}

fn check(input: &[u8]) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    let prefix = key(&mut feed);
    let range = KeyRange::prefix(&prefix);
    while !feed.is_empty() {
        let mut key = key(&mut feed);
        if feed.below(2) == 0 {
            key = [prefix.clone(), key].concat();
        }
        let contains = range.contains(&key);
        if contains != key.starts_with(&prefix) {
            return Err(format!("{prefix:x?} contains={contains} {key:x?}"));
        }
        let is_between = range.start() <= &key[..] && range.end().is_none_or(|end| &key[..] < end);
        if contains != is_between {
            return Err(format!(
                "{range:?} contains={contains} {key:x?}, by its ends not"
            ));
        }
        check_after(&range, &key)?;
    }
    check_places(&mut Feed::new(input))?;
    Ok(Verdict::Accepted)
}

/// A list goes on behind a key: exactly the later ones are left.
fn check_after(range: &KeyRange, last: &[u8]) -> Result<(), String> {
    let KeyRange::Between(..) = range else {
        return Ok(());
    };
    let rest = keys::after(range.clone(), &Bytes::copy_from_slice(last));
    for tail in [&[][..], &[0], &[0xff]] {
        let key = [last, tail].concat();
        let expected = range.contains(&key) && key.as_slice() > last;
        if rest.contains(&key) != expected {
            return Err(format!(
                "{range:?} behind {last:x?} is {rest:?}, with {key:x?}"
            ));
        }
    }
    Ok(())
}

/// No object lies in the range of another namespace, and each is found again by its key.
fn check_places(feed: &mut Feed<'_>) -> Result<(), String> {
    let pods = Registry::new().resolve("", "v1", "pods").unwrap();
    let mut name = || {
        let text = feed.text(&["a", "b", "-", ".", "0"], 4);
        format!("a{text}z")
    };
    let (namespace, other, name) = (name(), name(), name());
    let key = keys::object(&pods, &namespace, &name);
    let found = keys::parse(&pods, &keys::prefix(&pods), &key);
    if found != Some((&namespace, &name)) {
        return Err(format!("{namespace}/{name} is found as {found:?}"));
    }
    let range = keys::range(&keys::prefix_in(&pods, &other));
    if range.contains(&key) != (namespace == other) {
        return Err(format!("{namespace}/{name} lies in the range of {other}"));
    }
    Ok(())
}
