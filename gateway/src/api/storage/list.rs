//! Lists: which revision, from which key, how many.
//!
//! | version asked | match | limit | what is read |
//! | --- | --- | --- | --- |
//! | none | - | any | the newest state; further pages exactly that one |
//! | 0 | - or not older | any | the newest state, whole: the limit is not looked at |
//! | N | - | none | the newest state, once it has reached N |
//! | N | - | some | exactly N |
//! | N | not older | any | the newest state, once it has reached N |
//! | N | exact | any | exactly N |
//! | continue token of N | - | any | exactly N; of -1 the newest state |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_metastore::read::{At, RangeAnswer};
use sluice_metastore::{Error, KeyRange, Record, Revision};

use super::Storage;
use crate::api::errors;
use crate::api::keys;
use crate::api::resource::ResourceKind;
use crate::api::selectors::Selectors;
use crate::status::Refusal;

/// Records looked at in one go while searching for matches: some milliseconds' work, after which
/// others on the same thread have their turn.
const CHUNK: usize = 2000;

/// How a list's resource version is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionMatch {
    /// Not said: exact with a limit, else not older.
    #[default]
    Unset,
    /// The state at that version.
    Exact,
    /// That state or any later one.
    NotOlderThan,
}

/// What a client asks of a list, validated.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// The version asked for: none, 0 for any, or a number.
    pub version: Option<Revision>,
    /// How it is meant.
    pub version_match: VersionMatch,
    /// The most objects in one page.
    pub limit: Option<usize>,
    /// The token of the page before, empty for the first.
    pub token: String,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The objects, in key order.
    pub records: Vec<Record>,
    /// The revision at which the list is true.
    pub revision: Revision,
    /// For the next page; empty after the last.
    pub token: String,
    /// How many objects are left, where that is known.
    pub remaining: Option<u64>,
}

/// A continue token's content: the same form and key layout as a kube-apiserver's.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// What is left to read.
struct Cursor {
    range: KeyRange,
    at: At,
    /// A page's limit, if it is to be looked at.
    limit: Option<usize>,
}

impl Storage {
    /// Reads one page of the objects of a kind; of all namespaces when `namespace` is empty.
    ///
    /// # Errors
    /// 400 for a bad token, 410 for a version or token whose history is gone, 504 for a version
    /// that the store does not reach in time.
    pub async fn list(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        selectors: &Selectors,
        options: &ListOptions,
    ) -> Result<Listed, Refusal> {
        // Tokens are laid out from the path's scope, whatever the selectors narrow it to.
        let prefix = keys::prefix_in(kind, namespace);
        let range = selectors.range(kind, namespace);
        let cursor = self.cursor(range, &prefix, options).await?;
        let token = &options.token;
        self.page(kind, &prefix, selectors, cursor)
            .await
            .map_err(|error| refuse(token, &error))
    }

    async fn cursor(
        &self,
        range: KeyRange,
        prefix: &str,
        options: &ListOptions,
    ) -> Result<Cursor, Refusal> {
        let mut cursor = Cursor {
            range,
            at: At::Latest,
            limit: options.limit,
        };
        if !options.token.is_empty() {
            let token = read_token(&options.token)?;
            if options.version.is_some_and(|v| v != Revision::ZERO) {
                let message = "specifying resource version is not allowed when using continue";
                return Err(errors::bad_request(message));
            }
            let start = Bytes::from(format!("{prefix}{}", token.start));
            cursor.range = keys::from(cursor.range, start);
            if let Some(revision) = Revision::from_wire(token.rv) {
                cursor.at = At::Exactly(revision);
            }
            return Ok(cursor);
        }
        match options.version {
            None => {}
            Some(Revision::ZERO) => cursor.limit = None,
            Some(version) => {
                self.reach(version).await?;
                let is_exact = match options.version_match {
                    VersionMatch::Unset => options.limit.is_some(),
                    VersionMatch::Exact => true,
                    VersionMatch::NotOlderThan => false,
                };
                if is_exact {
                    cursor.at = At::Exactly(version);
                }
            }
        }
        Ok(cursor)
    }

    async fn page(
        &self,
        kind: &ResourceKind,
        prefix: &str,
        selectors: &Selectors,
        mut cursor: Cursor,
    ) -> Result<Listed, Error> {
        // Without selectors every record counts, and handles to them are cheap.
        let chunk = if selectors.is_empty() {
            cursor.limit
        } else {
            Some(CHUNK)
        };
        let whole = keys::prefix(kind);
        let is_selected = |record: &Record| {
            let place = keys::parse(kind, &whole, record.key());
            place.is_some_and(|place| selectors.select(place, record.value()))
        };
        let mut records = Vec::new();
        loop {
            let range = self.range(cursor.range.clone(), cursor.at, chunk);
            let answer = self.store.read(&range).await?;
            let revision = match cursor.at {
                At::Latest => answer.revision,
                At::Exactly(revision) => revision,
            };
            let wanted = cursor.limit.map(|limit| limit - records.len());
            let mut unseen = remaining(&answer);
            let last_read = answer.records.last().map(Record::key_bytes);
            if selectors.is_empty() {
                records = answer.records;
            } else {
                unseen += take(&mut records, answer.records, wanted, is_selected);
            }
            let is_full = cursor.limit.is_some_and(|limit| records.len() >= limit);
            let Some(last_read) = last_read.filter(|_| unseen > 0 && !is_full) else {
                return Ok(listed(prefix, records, revision, unseen, selectors));
            };
            cursor.range = keys::after(cursor.range, &last_read);
            cursor.at = At::Exactly(revision);
            tokio::task::yield_now().await;
        }
    }
}

/// Moves selected records over until there are `wanted` more; answers how many were not looked at.
fn take(
    records: &mut Vec<Record>,
    read: Vec<Record>,
    wanted: Option<usize>,
    is_selected: impl Fn(&Record) -> bool,
) -> u64 {
    let full_at = wanted.map(|wanted| records.len() + wanted);
    let mut rest = read.into_iter();
    while full_at.is_none_or(|full| records.len() < full) {
        match rest.next() {
            Some(record) if is_selected(&record) => records.push(record),
            Some(_) => {}
            None => return 0,
        }
    }
    rest.len() as u64
}

fn listed(
    prefix: &str,
    records: Vec<Record>,
    revision: Revision,
    unseen: u64,
    selectors: &Selectors,
) -> Listed {
    let last = records.last().filter(|_| unseen > 0);
    Listed {
        token: last.map_or_else(String::new, |last| {
            token_after(prefix, last.key(), revision)
        }),
        remaining: last.filter(|_| selectors.is_empty()).map(|_| unseen),
        revision,
        records,
    }
}

fn remaining(answer: &RangeAnswer) -> u64 {
    if answer.more {
        answer.count.saturating_sub(answer.records.len() as u64)
    } else {
        0
    }
}

fn refuse(token: &str, error: &Error) -> Refusal {
    let mut refusal = errors::from_store(error);
    if let (Error::Compacted { .. }, Ok(old)) = (error, read_token(token)) {
        refusal.message = "the continue token's version is no longer kept: start the list anew, or go on with the token in this answer, which reads the newest state and may miss or repeat what changed in between".into();
        let token = write_token(-1, old.start);
        refusal.metadata = Some(Box::new(json!({"continue": token})));
    }
    refusal
}

fn token_after(prefix: &str, last: &[u8], revision: Revision) -> String {
    let rest = last.get(prefix.len()..).unwrap_or_default();
    let start = format!("{}\0", String::from_utf8_lossy(rest));
    write_token(revision.to_wire(), start)
}

fn write_token(rv: i64, start: String) -> String {
    let v = "meta.k8s.io/v1".to_owned();
    let json = serde_json::to_vec(&Token { v, rv, start }).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(json)
}

fn read_token(text: &str) -> Result<Token, Refusal> {
    let bad = |why: &str| errors::bad_request(format!("continue key is not valid: {why}"));
    let json = URL_SAFE_NO_PAD
        .decode(text.trim_end_matches('='))
        .map_err(|_| bad("not base64"))?;
    let mut token: Token = serde_json::from_slice(&json).map_err(|_| bad("not a token"))?;
    if token.v != "meta.k8s.io/v1" {
        return Err(bad("unknown version"));
    }
    if token.rv == 0 {
        return Err(bad("no resource version"));
    }
    let start = token
        .start
        .strip_prefix('/')
        .unwrap_or(&token.start)
        .to_owned();
    let is_clean = !start.is_empty() && start.split('/').all(|p| !matches!(p, "" | "." | ".."));
    if !is_clean {
        return Err(bad("start key is not a plain path"));
    }
    token.start = start;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_a_kube_apiservers() {
        let token = token_after(
            "/registry/core/pods/",
            &Bytes::from("/registry/core/pods/a/b"),
            Revision::new(7),
        );
        let json = URL_SAFE_NO_PAD.decode(&token).unwrap();
        assert_eq!(
            json,
            br#"{"v":"meta.k8s.io/v1","rv":7,"start":"a/b\u0000"}"#
        );
        assert_eq!(read_token(&token).unwrap().start, "a/b\0");
        for bad in [
            "!",
            "",
            &write_token(0, "a".into()),
            &write_token(3, String::new()),
            &write_token(3, "../x".into()),
        ] {
            assert!(read_token(bad).is_err(), "{bad}");
        }
    }
}
