//! Field selectors: a plain one means what a second reader makes of it. And whatever name a request
//! is authorised for because its selector requires it, no object of another name is selected.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use sluice_gateway::api::resource::{Registry, ResourceKind};
use sluice_gateway::api::selectors::FieldSelector;
use sluice_gateway::request::RequestInfo;

use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

const SHAPE: Shape = Shape {
    cuts: b",=!\\",
    words: &[
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "status.phase",
        "metadata.name=a",
        "metadata.name=b",
        "metadata.name!=a",
        "spec.nodeName=n1",
        "==",
        "a",
        "b",
        "n1",
        "\\,",
        "\\=",
        "\\\\",
        "..",
        "a/b",
        "%",
        " ",
    ],
    bytes_max: 300,
};

pub(crate) fn target() -> Target {
    let pods = Registry::new().resolve("", "v1", "pods").unwrap();
    Target {
        name: "fields",
        shape: SHAPE,
        seeds: Vec::new(),
        check: Box::new(move |input| check(&pods, input)),
    }
}

const FIELDS: [&str; 4] = [
    "metadata.namespace",
    "metadata.name",
    "spec.nodeName",
    "status.phase",
];

fn check(pods: &Arc<ResourceKind>, input: &[u8]) -> Result<Verdict, String> {
    let Ok(text) = std::str::from_utf8(input) else {
        return Ok(Verdict::Refused);
    };
    let plain = plain(text);
    let selector = match (FieldSelector::parse(pods, text), &plain) {
        (Ok(selector), _) => selector,
        (Err(_), None) => return Ok(Verdict::Refused),
        (Err(why), Some(_)) => return Err(format!("refused: {why}")),
    };
    let authorised = authorised_name(text)?;
    let mut words: Vec<String> = text.split([',', '=', '!']).map(str::to_owned).collect();
    words.push("other".to_owned());
    // As a selector writes them, and as they are.
    words.extend(words.clone().iter().map(|word| word.replace('\\', "")));
    for (n, name) in words.iter().enumerate() {
        let word = |distance: usize| words[(n + distance) % words.len()].as_str();
        let pod = [word(1), name, word(2), word(3)];
        let stored = serde_json::json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": pod[1], "namespace": pod[0]},
            "spec": {"nodeName": pod[2]}, "status": {"phase": pod[3]},
        });
        let selects = selector.select((pod[0], pod[1]), stored.to_string().as_bytes());
        if selects && authorised.as_ref().is_some_and(|only| only != name) {
            return Err(format!("authorised for {authorised:?}, selects {name:?}"));
        }
        let holds = |(field, is_negated, value): &(usize, bool, String)| {
            (pod[*field] == value) != *is_negated
        };
        if let Some(plain) = &plain
            && plain.iter().all(holds) != selects
        {
            return Err(format!(
                "selects={selects} of {pod:?}, a second reader differs"
            ));
        }
    }
    Ok(Verdict::Accepted)
}

/// The name that a list with this selector is authorised for.
fn authorised_name(text: &str) -> Result<Option<String>, String> {
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let uri = format!("/api/v1/namespaces/ns/pods?fieldSelector={encoded}");
    let uri: Uri = uri.parse().unwrap();
    let info = RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new())
        .map_err(|refusal| format!("the list is refused: {}", refusal.message))?;
    Ok(Some(info.name().to_owned()).filter(|name| !name.is_empty()))
}

/// Terms of plain words: which field, whether it is negated, the value.
fn plain(text: &str) -> Option<Vec<(usize, bool, String)>> {
    let mut terms = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (left, right) = term.split_once('=')?;
        let (field, is_negated) = match left.strip_suffix('!') {
            Some(field) => (field, true),
            None => (left, false),
        };
        let value = match is_negated {
            true => right,
            false => right.strip_prefix('=').unwrap_or(right),
        };
        let is_plain = value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let place = FIELDS.iter().position(|known| *known == field)?;
        terms.push(is_plain.then(|| (place, is_negated, value.to_owned()))?);
    }
    Some(terms)
}
