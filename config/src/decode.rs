//! From YAML text to typed objects, strictly: unknown fields, repeated keys, wrong types and
//! booleans other than `true` and `false` are faults with a place.
//!
//! A file may hold several documents. Decoding stops at a document's first fault and goes on with
//! the next document, so that one mistake does not hide those of other objects.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, MergeKeyPolicy, Options};

use crate::cluster::UpstreamCluster;
use crate::diagnostic::Diagnostic;
use crate::kubegateway::{self, PEER_API_VERSION, Translation};
use crate::located::{Located, Position};
use crate::process::GatewayConfig;
use crate::rate::RateRules;
use crate::suggest::nearest;

/// The only version so far.
pub const API_VERSION: &str = "sluice.io/v1alpha1";

/// Kinds that may stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The process file.
    Process,
    /// A file of the rules folder.
    Rules,
}

impl Place {
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Place::Process => &["GatewayConfig"],
            Place::Rules => &["UpstreamCluster", "RateRules"],
        }
    }
}

/// One decoded object.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// One of a peer's, made into ours.
    Translated(Box<Translation>),
    Process(Box<GatewayConfig>),
    Cluster(Box<UpstreamCluster>),
    Rates(Box<RateRules>),
}

/// A file's text, for excerpts.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: std::path::PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn fault(
        &self,
        at: Position,
        message: impl Into<String>,
        help: Option<String>,
    ) -> Diagnostic {
        let index = usize::try_from(at.line).unwrap_or(0);
        let line = match index.checked_sub(1) {
            Some(index) => self.text.lines().nth(index).unwrap_or_default(),
            None => "",
        };
        let fault = Diagnostic {
            at,
            help,
            ..Diagnostic::of_file(&self.file, message)
        };
        fault.shown(line)
    }
}

/// What a document says it is; everything else is passed over.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: Option<Located<String>>,
    kind: Option<Located<String>>,
}

/// Decodes every document of a file.
pub(crate) fn objects(source: &Source, place: Place, faults: &mut Vec<Diagnostic>) -> Vec<Object> {
    let mut found = Vec::new();
    for document in documents(&source.text) {
        match object(source, &document, place) {
            Ok(object) => found.push(object),
            Err(mut of_object) => faults.append(&mut of_object),
        }
    }
    found
}

fn object(source: &Source, document: &str, place: Place) -> Result<Object, Vec<Diagnostic>> {
    let header: Header = typed(source, document).map_err(|fault| vec![*fault])?;
    let is_peers = |version: &Located<String>| version.as_str() == PEER_API_VERSION;
    if let (Some(_), Some(kind), Place::Rules) = (
        header.api_version.as_ref().filter(|it| is_peers(it)),
        &header.kind,
        place,
    ) {
        return kubegateway::decode(source, document, kind).map(Object::Translated);
    }
    own_object(source, document, header, place).map_err(|fault| vec![*fault])
}

fn own_object(
    source: &Source,
    document: &str,
    header: Header,
    place: Place,
) -> Result<Object, Box<Diagnostic>> {
    let start = Position {
        line: first_line(document),
        column: 1,
    };
    match header.api_version {
        Some(version) if *version == API_VERSION => {}
        Some(version) => {
            let message = format!("unknown apiVersion `{}`", *version);
            let help = Some(format!("write `apiVersion: {API_VERSION}`"));
            return Err(Box::new(source.fault(version.at, message, help)));
        }
        None => {
            let help = Some(format!("add `apiVersion: {API_VERSION}`"));
            return Err(Box::new(source.fault(start, "apiVersion is missing", help)));
        }
    }
    let Some(kind) = header.kind else {
        let help = Some(format!(
            "add `kind: {}`",
            place.kinds().join("` or `kind: ")
        ));
        return Err(Box::new(source.fault(start, "kind is missing", help)));
    };
    match (kind.as_str(), place) {
        ("GatewayConfig", Place::Process) => {
            typed(source, document).map(|object| Object::Process(Box::new(object)))
        }
        ("UpstreamCluster", Place::Rules) => {
            typed(source, document).map(|object| Object::Cluster(Box::new(object)))
        }
        ("RateRules", Place::Rules) => {
            typed(source, document).map(|object| Object::Rates(Box::new(object)))
        }
        _ => Err(Box::new(misplaced(source, &kind, place))),
    }
}

fn misplaced(source: &Source, kind: &Located<String>, place: Place) -> Diagnostic {
    let (message, help) = match kind.as_str() {
        "GatewayConfig" => (
            "kind GatewayConfig does not belong in the rules folder".to_owned(),
            "the process file is named on the command line; move it out".to_owned(),
        ),
        rules @ ("UpstreamCluster" | "RateRules") => (
            format!("kind {rules} does not belong in the process file"),
            "move it to a file in rulesDir".to_owned(),
        ),
        other => {
            let known = place.kinds();
            let advice = nearest(other, known.iter().copied()).map_or_else(
                || format!("known kinds here: {}", known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            (format!("unknown kind `{other}`"), advice)
        }
    };
    source.fault(kind.at, message, Some(help))
}

pub(crate) fn typed<T: DeserializeOwned>(
    source: &Source,
    document: &str,
) -> Result<T, Box<Diagnostic>> {
    serde_saphyr::from_str_with_options(document, options())
        .map_err(|error| Box::new(diagnose(source, &error)))
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        no_schema: false,
        with_snippet: false,
    }
}

/// Cuts a file at its document markers. Each document keeps its lines' numbers by empty lines
/// before it; documents of nothing but comments are left out.
fn documents(text: &str) -> Vec<String> {
    let mut documents = Vec::new();
    let mut current = String::new();
    let mut blank = true;
    let mut finish = |current: &mut String, blank: &mut bool| {
        let document = std::mem::take(current);
        if !std::mem::replace(blank, true) {
            documents.push(document);
        }
    };
    for (index, line) in text.lines().enumerate() {
        let is_start = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        let is_end = line == "..." || line.starts_with("... ");
        if is_start || is_end {
            finish(&mut current, &mut blank);
            current = "\n".repeat(index);
        }
        let content = line.trim_start_matches("---").trim_start();
        if !is_end {
            blank &= content.is_empty() || content.starts_with('#');
            current.push_str(line);
        }
        current.push('\n');
    }
    finish(&mut current, &mut blank);
    documents
}

/// The number of a document's first line with content.
fn first_line(document: &str) -> u64 {
    let index = document.lines().position(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && line != "---"
    });
    index.map_or(1, |index| index as u64 + 1)
}

/// Puts a decoding error into words. Columns count characters, as the decoder does.
fn diagnose(source: &Source, error: &Error) -> Diagnostic {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let at = Position::from(location);
    let written = || scalar_at(source, at);
    let (message, help) = match error {
        Error::AliasError { error, .. } => return diagnose(source, error),
        Error::SerdeUnknownField {
            field, expected, ..
        } => (
            format!("unknown field `{field}`"),
            Some(advise(field, expected)),
        ),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => (
            format!("unknown value `{variant}`"),
            Some(advise(variant, expected)),
        ),
        Error::SerdeMissingField { field, .. } => (
            format!("field `{field}` is missing"),
            Some(format!("add `{field}:` beside the fields here")),
        ),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.clone().unwrap_or_else(written);
            let help = "keep one of the two; the gateway will not choose".to_owned();
            (format!("key `{key}` is given twice"), Some(help))
        }
        Error::InvalidBooleanStrict { .. } => (
            format!("`{}` is not a boolean", written()),
            Some("write true or false".to_owned()),
        ),
        Error::InvalidScalar { .. } => (
            format!("`{}` is not a number that fits here", written()),
            Some("write a whole number without unit".to_owned()),
        ),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => (
            format!("`{}` will not do", written()),
            Some(format!("expected {expected}")),
        ),
        Error::Unexpected { expected, .. } => (
            format!("`{}` will not do", written()),
            Some(format!("expected {}", shape(expected))),
        ),
        Error::Message { msg, .. } => match msg.split_once("; ") {
            Some((message, help)) => (message.to_owned(), Some(help.to_owned())),
            None => (msg.clone(), None),
        },
        Error::MergeKeyNotAllowed { .. } => (
            "merge keys are not supported".to_owned(),
            Some("write the fields out".to_owned()),
        ),
        other => (plain(other), None),
    };
    source.fault(at, message, help)
}

/// The decoder's own words, without the place it appends.
fn plain(error: &Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text.get(..end).unwrap_or(&text).to_owned(),
        None => text,
    }
}

/// What the decoder waited for, in words that people who write YAML use.
fn shape(expected: &str) -> &str {
    match expected {
        "sequence start" => "a list",
        "mapping start" => "a mapping of fields",
        "string scalar" => "text",
        other => other,
    }
}

fn advise(word: &str, known: &[&'static str]) -> String {
    let all = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? known: {all}"),
        None => format!("known: {all}"),
    }
}

/// The value that begins at a place, as far as one line tells.
fn scalar_at(source: &Source, at: Position) -> String {
    let index = |number: u64| usize::try_from(number).unwrap_or(0).saturating_sub(1);
    let line = source.text.lines().nth(index(at.line)).unwrap_or_default();
    let rest: String = line.chars().skip(index(at.column)).collect();
    let value = rest.split(" #").next().unwrap_or_default();
    let end = match value.chars().next() {
        Some('[') => value.find(']').map(|end| end + 1),
        Some('{') => value.find('}').map(|end| end + 1),
        Some('"' | '\'') => None,
        _ => value.find([',', ']', '}']),
    };
    value
        .get(..end.unwrap_or(value.len()))
        .unwrap_or_default()
        .trim()
        .to_owned()
}
