//! Query parameters into validated options (kubernetes-semantics 4.1, 4.2, 4.7).

use std::num::NonZeroU64;
use std::time::Duration;

use sluice_metastore::Revision;

use super::Call;
use crate::api::errors::{self, Cause};
use crate::api::selectors::Selectors;
use crate::api::storage::{ListOptions, VersionMatch};
use crate::request::RequestInfo;
use crate::status::Refusal;

/// The longest a watch is asked to last: far beyond any connection's life, and near enough for a
/// clock to add. A client may name any number of seconds.
const LAST_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a client asks of a watch, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchOptions {
    /// Events after this one; none is the present.
    pub(crate) version: Option<Revision>,
    /// Whether the present objects come first.
    pub(crate) initial: bool,
    /// Whether their end is marked.
    pub(crate) marks_end: bool,
    /// Whether bookmarks are wanted.
    pub(crate) bookmarks: bool,
    /// When it ends, if the client says so.
    pub(crate) timeout: Option<Duration>,
}

/// Both selectors.
pub(crate) fn selectors(call: &Call<'_>) -> Result<Selectors, Refusal> {
    let (labels, fields) = (call.query("labelSelector"), call.query("fieldSelector"));
    Selectors::parse(call.kind, &labels, &fields)
}

/// `dryRun`: nothing or `All`.
pub(crate) fn dry_run(value: &str) -> Result<bool, Refusal> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(errors::bad_request(format!(
            "invalid dryRun \"{other}\": use All"
        ))),
    }
}

/// A single object's version: none and 0 are the present.
pub(crate) fn get_version(info: &RequestInfo) -> Result<Option<Revision>, Refusal> {
    let version = number(info.resource_version())?;
    Ok(version.filter(|v| *v != Revision::ZERO))
}

/// A list's options.
pub(crate) fn list(info: &RequestInfo) -> Result<ListOptions, Refusal> {
    if let Some(fault) = info.query_fault() {
        return Err(errors::bad_request(fault));
    }
    let version = info.resource_version();
    let token = info.continue_token();
    let matching = info.resource_version_match();
    let mut causes = Vec::new();
    if info.send_initial_events().is_some() {
        let why = "sendInitialEvents is forbidden for list";
        causes.push(Cause::forbidden("sendInitialEvents", why));
    }
    let field = "resourceVersionMatch";
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(field, why));
        }
        if !token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden(field, why));
        }
        match matching {
            "Exact" if version == "0" => {
                let why = "resourceVersionMatch Exact is forbidden for resourceVersion 0";
                causes.push(Cause::forbidden(field, why));
            }
            "Exact" | "NotOlderThan" => {}
            other => causes.push(unsupported_match(other, "\"Exact\", \"NotOlderThan\"")),
        }
    }
    refuse(&causes)?;
    Ok(ListOptions {
        version: number(version)?,
        version_match: match matching {
            "Exact" => VersionMatch::Exact,
            "NotOlderThan" => VersionMatch::NotOlderThan,
            _ => VersionMatch::Unset,
        },
        limit: info
            .limit()
            .map(NonZeroU64::get)
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        token: token.to_owned(),
    })
}

/// A watch's options.
pub(crate) fn watch(info: &RequestInfo) -> Result<WatchOptions, Refusal> {
    if let Some(fault) = info.query_fault() {
        return Err(errors::bad_request(fault));
    }
    let matching = info.resource_version_match();
    let asked = info.send_initial_events();
    let mut causes = Vec::new();
    match (asked, matching) {
        (None, "") | (Some(_), "NotOlderThan") => {}
        (None, _) => {
            let why =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", why));
        }
        (Some(_), "") => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden("resourceVersionMatch", why));
        }
        (Some(_), other) => causes.push(unsupported_match(other, "\"NotOlderThan\"")),
    }
    if asked.is_some() && !info.continue_token().is_empty() {
        let why = "continue is forbidden when sendInitialEvents is provided";
        causes.push(Cause::forbidden("continue", why));
    }
    let text = info.resource_version();
    let Ok(version) = number(text) else {
        causes.push(Cause::invalid("resourceVersion", text, "must be a number"));
        return Err(errors::invalid_as(
            "meta.k8s.io",
            "ListOptions",
            "",
            &causes,
        ));
    };
    refuse(&causes)?;
    let version = version.filter(|v| *v != Revision::ZERO);
    Ok(WatchOptions {
        version,
        initial: asked.unwrap_or(version.is_none()),
        marks_end: asked == Some(true) && info.allow_watch_bookmarks(),
        bookmarks: info.allow_watch_bookmarks(),
        timeout: info
            .timeout_seconds()
            .filter(|s| *s > 0)
            .map(|s| Duration::from_secs(s).min(LAST_MAX)),
    })
}

fn number(text: &str) -> Result<Option<Revision>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_plain => Ok(Some(Revision::new(number))),
        _ => {
            let message = format!("invalid resourceVersion \"{text}\": must be a number");
            Err(errors::bad_request(message))
        }
    }
}

fn unsupported_match(given: &str, supported: &str) -> Cause {
    Cause {
        reason: "FieldValueNotSupported",
        message: format!("Unsupported value: \"{given}\": supported values: {supported}"),
        field: "resourceVersionMatch".into(),
    }
}

fn refuse(causes: &[Cause]) -> Result<(), Refusal> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(errors::invalid_as("meta.k8s.io", "ListOptions", "", causes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method};

    fn info(query: &str) -> RequestInfo {
        let uri = format!("/api/v1/pods?{query}").parse().unwrap();
        RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()).unwrap()
    }

    #[test]
    fn list_options_are_refused_as_a_kube_apiserver_refuses_them() {
        for (query, code) in [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=5&resourceVersionMatch=Some", 422),
            (
                "resourceVersion=0&resourceVersionMatch=NotOlderThan&continue=x",
                422,
            ),
            ("sendInitialEvents=true", 422),
            ("resourceVersion=x", 400),
            ("resourceVersion=%2B5", 400),
            ("limit=x", 400),
        ] {
            assert_eq!(list(&info(query)).unwrap_err().code, code, "{query}");
        }
        let ok = list(&info(
            "resourceVersion=5&resourceVersionMatch=Exact&limit=2",
        ))
        .unwrap();
        assert_eq!(ok.version, Some(Revision::new(5)));
        assert_eq!((ok.version_match, ok.limit), (VersionMatch::Exact, Some(2)));
    }

    #[test]
    fn watch_options_follow_the_matrix() {
        for query in [
            "watch=1&sendInitialEvents=true",
            "watch=1&resourceVersionMatch=NotOlderThan",
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
            "watch=1&resourceVersion=x",
        ] {
            assert_eq!(watch(&info(query)).unwrap_err().code, 422, "{query}");
        }
        let of = |query: &str| {
            let options = watch(&info(query)).unwrap();
            (
                options.version.map(Revision::get),
                options.initial,
                options.marks_end,
            )
        };
        let stream = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(of("watch=1"), (None, true, false));
        assert_eq!(of("watch=1&resourceVersion=0"), (None, true, false));
        assert_eq!(of("watch=1&resourceVersion=7"), (Some(7), false, false));
        assert_eq!(of(stream), (None, true, false));
        assert_eq!(
            of(&format!("{stream}&allowWatchBookmarks=true")),
            (None, true, true)
        );
        let live = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        assert_eq!(of(live), (None, false, false));
    }
}
