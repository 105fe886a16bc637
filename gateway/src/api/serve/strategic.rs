//! Strategic merge patch: a merge patch that also merges lists, by the merge keys of the kind.
//!
//! Directives in the patch: `$patch` (`replace`, `delete`, `merge`) of an object or of a list's
//! element, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`.

use serde_json::{Map, Value};

use crate::api::merge::{Rule, Shape};

type Object = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
/// Shape of objects without rules.
const PLAIN: Shape = Shape { fields: &[] };

/// Merges `patch` into `target`.
///
/// # Errors
/// Says which directive or merge key is wrong; `target` is then half merged.
pub(crate) fn merge(target: &mut Object, patch: &Object, shape: &Shape) -> Result<(), String> {
    match patch.get(PATCH).and_then(Value::as_str) {
        None | Some("merge") => {}
        Some("replace") => {
            target.clear();
            target.extend(plain_fields(patch).map(|(k, v)| (k.clone(), v.clone())));
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(other) => return Err(format!("unknown $patch directive \"{other}\"")),
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix(DELETE_FROM) {
            remove_plain(target, list, value)?;
        }
    }
    for (field, value) in plain_fields(patch) {
        merge_field(target, field, value, shape)?;
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix(ORDER) {
            order(target, list, value, shape)?;
        }
    }
    if let Some(kept) = patch.get(RETAIN) {
        let kept = kept.as_array().ok_or("$retainKeys is not a list")?;
        target.retain(|field, _| kept.iter().any(|k| k.as_str() == Some(field)));
    }
    Ok(())
}

/// The fields of a patch that are no directives.
fn plain_fields(patch: &Object) -> impl Iterator<Item = (&String, &Value)> {
    patch.iter().filter(|(field, _)| {
        let field = field.as_str();
        !(field == PATCH
            || field == RETAIN
            || field.starts_with(DELETE_FROM)
            || field.starts_with(ORDER))
    })
}

fn merge_field(
    target: &mut Object,
    field: &str,
    value: &Value,
    shape: &Shape,
) -> Result<(), String> {
    match (value, shape.rule(field)) {
        (Value::Null, _) => {
            target.remove(field);
        }
        (Value::Object(patch), rule) => {
            let inner = match rule {
                Some(Rule::Object(inner)) => inner,
                _ => &PLAIN,
            };
            if patch.get(PATCH).and_then(Value::as_str) == Some("delete") {
                target.remove(field);
                return Ok(());
            }
            let mut merged = match target.remove(field) {
                Some(Value::Object(old)) => old,
                _ => Map::new(),
            };
            merge(&mut merged, patch, inner)?;
            target.insert(field.to_owned(), merged.into());
        }
        (Value::Array(patch), Some(Rule::Keyed(key, inner))) => {
            let mut list = take_list(target, field);
            merge_keyed(&mut list, patch, key, inner)?;
            target.insert(field.to_owned(), list.into());
        }
        (Value::Array(patch), Some(Rule::Set)) => {
            let mut list = take_list(target, field);
            for value in patch {
                if !list.contains(value) {
                    list.push(value.clone());
                }
            }
            target.insert(field.to_owned(), list.into());
        }
        (other, _) => {
            target.insert(field.to_owned(), other.clone());
        }
    }
    Ok(())
}

fn take_list(target: &mut Object, field: &str) -> Vec<Value> {
    match target.remove(field) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn merge_keyed(
    list: &mut Vec<Value>,
    patch: &[Value],
    key: &str,
    shape: &Shape,
) -> Result<(), String> {
    let directive = |element: &Value| {
        element
            .get(PATCH)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if patch.iter().any(|element| directive(element) == "replace") {
        let plain = patch.iter().filter(|element| directive(element).is_empty());
        *list = plain.cloned().collect();
        return Ok(());
    }
    for element in patch {
        let element = element
            .as_object()
            .ok_or("an element of a keyed list is no object")?;
        let id = element.get(key);
        let id = id.ok_or_else(|| format!("an element has no merge key \"{key}\""))?;
        let is_same = |other: &Value| other.get(key) == Some(id);
        match element.get(PATCH).and_then(Value::as_str) {
            Some("delete") => list.retain(|other| !is_same(other)),
            None | Some("merge") => {
                let at = list.iter().position(is_same);
                match at
                    .and_then(|at| list.get_mut(at))
                    .and_then(Value::as_object_mut)
                {
                    Some(old) => merge(old, element, shape)?,
                    None => {
                        let mut new = Map::new();
                        merge(&mut new, element, shape)?;
                        list.push(new.into());
                    }
                }
            }
            Some(other) => return Err(format!("unknown $patch directive \"{other}\"")),
        }
    }
    Ok(())
}

fn remove_plain(target: &mut Object, field: &str, values: &Value) -> Result<(), String> {
    let values = values
        .as_array()
        .ok_or("$deleteFromPrimitiveList is not a list")?;
    if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|value| !values.contains(value));
    }
    Ok(())
}

/// Brings a list's elements into the order given. Elements that the order does not name stay in
/// front of the named one that they were in front of.
fn order(target: &mut Object, field: &str, wanted: &Value, shape: &Shape) -> Result<(), String> {
    let wanted = wanted.as_array().ok_or("$setElementOrder is not a list")?;
    let key = match shape.rule(field) {
        Some(Rule::Keyed(key, _)) => Some(*key),
        _ => None,
    };
    let id = |element: &Value| match key {
        Some(key) => element.get(key).cloned(),
        None => Some(element.clone()),
    };
    let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) else {
        return Ok(());
    };
    let ranks: Vec<Option<Value>> = wanted.iter().map(id).collect();
    let rank = |element: &Value| {
        let own = id(element)?;
        ranks.iter().position(|r| r.as_ref() == Some(&own))
    };
    // From the back, so that each unnamed element knows which named one follows it.
    let mut follower = ranks.len();
    let mut placed: Vec<(usize, bool, usize, Value)> = Vec::with_capacity(list.len());
    for (index, element) in list.drain(..).enumerate().rev() {
        let own = rank(&element);
        if let Some(own) = own {
            follower = own;
        }
        placed.push((follower, own.is_some(), index, element));
    }
    placed.sort_by_key(|(rank, is_named, index, _)| (*rank, *is_named, *index));
    list.extend(placed.into_iter().map(|(_, _, _, element)| element));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::merge::{PLAIN as METADATA_ONLY, TEMPLATED};
    use serde_json::json;

    fn check(shape: &Shape, target: Value, patch: Value, expected: Value) {
        let mut merged = target.as_object().unwrap().clone();
        merge(&mut merged, patch.as_object().unwrap(), shape).unwrap();
        assert_eq!(Value::Object(merged), expected);
    }

    fn pods(containers: Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn containers_are_merged_by_name() {
        check(
            &TEMPLATED,
            pods(
                json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
                        {"name": "b", "image": "1"}]),
            ),
            pods(json!([{"name": "a", "env": [{"name": "Y", "value": "2"}]},
                        {"name": "c", "image": "3", "tty": null}])),
            pods(json!([{"name": "a", "image": "1", "env": [
                            {"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                        {"name": "b", "image": "1"},
                        {"name": "c", "image": "3"}])),
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        check(
            &TEMPLATED,
            pods(json!([{"name": "a"}, {"name": "b"}, {"name": "x"}, {"name": "c"}])),
            json!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"name": "b", "$patch": "delete"}, {"name": "a", "image": "2"}],
            }}}}),
            pods(json!([{"name": "x"}, {"name": "c"}, {"name": "a", "image": "2"}])),
        );
        check(
            &TEMPLATED,
            pods(json!([{"name": "a"}])),
            pods(json!([{"$patch": "replace"}, {"name": "b"}])),
            pods(json!([{"name": "b"}])),
        );
        check(
            &TEMPLATED,
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        );
    }

    #[test]
    fn plain_lists_merge_as_sets_only_where_the_shape_says_so() {
        check(
            &METADATA_ONLY,
            json!({"metadata": {"finalizers": ["a", "b"]}, "list": [1]}),
            json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
                   "list": [2]}),
            json!({"metadata": {"finalizers": ["b", "c"]}, "list": [2]}),
        );
    }

    #[test]
    fn missing_merge_key_is_an_error() {
        let mut target = Map::new();
        let patch = pods(json!([{"image": "x"}]));
        let merged = merge(&mut target, patch.as_object().unwrap(), &TEMPLATED);
        assert!(merged.unwrap_err().contains("merge key"));
    }
}
