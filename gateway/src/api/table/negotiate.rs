//! Which form of an answer the client asks for, from `Accept`.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::api::errors;
use crate::status::Refusal;

/// What is to be answered: one object, a list, or the frames of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events with an object in each.
    Watch,
}

/// Which version of `meta.k8s.io` a form is labelled with; they are alike but for the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`
    V1,
    /// `meta.k8s.io/v1beta1`
    V1beta1,
}

impl MetaVersion {
    /// The `apiVersion`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The form to answer in; the encoding is JSON in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The objects themselves.
    Json,
    /// Rows for people.
    Table(MetaVersion),
    /// Bare metadata: `PartialObjectMetadata`, or its list for a list.
    PartialMetadata(MetaVersion),
    /// Nothing the client accepts can be made: 406.
    NotAcceptable,
}

/// The types a 406 names.
pub const ACCEPTED: &str = "application/json";

/// Clauses looked at; a client that names more has its last ones ignored.
const CLAUSES_MAX: usize = 64;

#[derive(Debug)]
struct Clause<'a> {
    media: &'a str,
    quality: f32,
    transform: &'a str,
    group: &'a str,
    version: &'a str,
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Clause {
            media: parts.next().unwrap_or_default(),
            quality: 1.0,
            transform: "",
            group: "",
            version: "",
        };
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let slot = match name.trim() {
                "q" => {
                    clause.quality = value.trim().parse().unwrap_or(0.0);
                    continue;
                }
                "as" => &mut clause.transform,
                "g" => &mut clause.group,
                "v" => &mut clause.version,
                _ => continue,
            };
            *slot = value.trim();
        }
        clause
    }

    fn output(&self, shape: Shape) -> Option<Output> {
        if !matches!(self.media, "application/json" | "application/*" | "*/*") {
            return None;
        }
        if self.transform.is_empty() {
            return Some(Output::Json);
        }
        let version = match self.version {
            "v1" => MetaVersion::V1,
            "v1beta1" => MetaVersion::V1beta1,
            _ => return None,
        };
        let partial = match shape {
            Shape::List => "PartialObjectMetadataList",
            Shape::Object | Shape::Watch => "PartialObjectMetadata",
        };
        match self.transform {
            _ if self.group != "meta.k8s.io" => None,
            "Table" => Some(Output::Table(version)),
            asked if asked == partial => Some(Output::PartialMetadata(version)),
            _ => None,
        }
    }
}

/// The first form among those the client names, best liked first, that can be made. Without an
/// `Accept` it is JSON.
#[must_use]
pub fn negotiate(headers: &HeaderMap, shape: Shape) -> Output {
    let lines = headers.get_all(ACCEPT);
    let texts = lines.iter().filter_map(|value| value.to_str().ok());
    let mut clauses: Vec<Clause<'_>> = texts
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .take(CLAUSES_MAX)
        .map(Clause::read)
        .collect();
    if clauses.is_empty() {
        return Output::Json;
    }
    // Stable: clauses liked alike stay in the client's order.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
        .iter()
        .find_map(|clause| clause.output(shape))
        .unwrap_or(Output::NotAcceptable)
}

/// What a table's rows carry beside their cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Reads the `includeObject` parameter; empty is the default.
///
/// # Errors
/// 400 for any other word.
pub fn include_object(parameter: &str) -> Result<Include, Refusal> {
    match parameter {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::None),
        "Object" => Ok(Include::Object),
        other => Err(errors::bad_request(format!(
            "invalid includeObject value=\"{other}\": use None, Metadata or Object"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn asks(accept: &str, shape: Shape) -> Output {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(accept).expect("a header"));
        negotiate(&headers, shape)
    }

    #[test]
    fn forms_are_read_as_clients_write_them() {
        use Output as O;
        use Shape as S;
        let (v1, beta) = (MetaVersion::V1, MetaVersion::V1beta1);
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;\
                       v=v1beta1;g=meta.k8s.io,application/json";
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;\
                        g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;\
                        g=meta.k8s.io;v=v1,application/json";
        let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let late = "application/json;q=0.1,application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        let cases = [
            (kubectl, S::List, O::Table(v1)),
            (kubectl, S::Watch, O::Table(v1)),
            (metadata, S::List, O::PartialMetadata(v1)),
            // The list form of one object is skipped, the plain clause holds.
            (metadata, S::Object, O::Json),
            (one, S::Watch, O::PartialMetadata(v1)),
            (one, S::List, O::NotAcceptable),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                S::List,
                O::Json,
            ),
            (
                "application/vnd.kubernetes.protobuf",
                S::List,
                O::NotAcceptable,
            ),
            ("text/html,*/*;q=0.1", S::List, O::Json),
            (
                "application/json;as=Table;v=v1;g=other",
                S::List,
                O::NotAcceptable,
            ),
            (late, S::List, O::Table(beta)),
        ];
        for (accept, shape, wanted) in cases {
            assert_eq!(asks(accept, shape), wanted, "{accept}");
        }
        assert_eq!(negotiate(&HeaderMap::new(), S::List), O::Json);
    }
}
