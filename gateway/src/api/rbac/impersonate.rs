//! `--as`: whom a request is made as, once the caller may be that user.
//!
//! Each part of the wanted identity is authorised by itself, with the verb `impersonate`: the user
//! (or service account), every group, the uid, every value of every extra. One part refused is the
//! whole refused. The caller of this module deletes the headers afterwards; nothing here goes on to
//! anybody.

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::{Attributes, Authorizer, message};
use crate::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};
use crate::status::{Refusal, Stage};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const ACCOUNT: &str = "system:serviceaccount:";
/// Each group and extra value costs an evaluation; client-go sends a handful. A request with more
/// than this is a mistake or an attack.
const PARTS_MAX: usize = 256;

/// The identity the headers ask for, before it is authorised.
#[derive(Debug, Default)]
struct Wanted {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
}

impl Authorizer {
    /// Whom the request is to be made as, if its headers ask for anybody and `user` may be them.
    ///
    /// # Errors
    /// 400 when a group, uid or extra comes without a user name, when a header is unknown or no
    /// text; 403 when a part of the identity may not be taken on.
    pub fn impersonate(
        &self,
        user: &UserInfo,
        headers: &HeaderMap,
    ) -> Result<Option<UserInfo>, Refusal> {
        let wanted = read(headers)?;
        if wanted.user.is_empty() {
            let others = !wanted.groups.is_empty() || !wanted.extra.is_empty();
            if others || !wanted.uid.is_empty() {
                return Err(Refusal::bad_request(
                    Stage::Authz,
                    "requested an impersonated group, uid or extra without impersonating a user: \
                     set Impersonate-User too",
                ));
            }
            return Ok(None);
        }
        self.may_be(user, &wanted)?;
        Ok(Some(become_user(wanted)))
    }

    fn may_be(&self, user: &UserInfo, wanted: &Wanted) -> Result<(), Refusal> {
        let account = account_of(&wanted.user);
        self.may_take(
            user,
            &match account {
                Some((namespace, name)) => part("", "serviceaccounts", namespace, name),
                None => part("", "users", "", &wanted.user),
            },
        )?;
        for group in &wanted.groups {
            self.may_take(user, &part("", "groups", "", group))?;
        }
        if !wanted.uid.is_empty() {
            self.may_take(
                user,
                &part("authentication.k8s.io", "uids", "", &wanted.uid),
            )?;
        }
        for (key, values) in &wanted.extra {
            for value in values {
                let mut asked = part("authentication.k8s.io", "userextras", "", value);
                asked.subresource = key;
                self.may_take(user, &asked)?;
            }
        }
        Ok(())
    }

    fn may_take(&self, user: &UserInfo, asked: &Attributes<'_>) -> Result<(), Refusal> {
        let decision = self.authorize(user, asked);
        if decision.allowed {
            Ok(())
        } else {
            Err(message::forbidden(user, asked, &decision.reason))
        }
    }
}

fn part<'a>(
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    Attributes {
        verb: "impersonate",
        group,
        resource,
        namespace,
        name,
        ..Attributes::default()
    }
}

/// Namespace and name of a service account's user name.
fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT)?.split_once(':')?;
    let plain = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    plain.then_some((namespace, name))
}

fn become_user(wanted: Wanted) -> UserInfo {
    let Wanted {
        user,
        uid,
        mut groups,
        extra,
    } = wanted;
    if groups.is_empty()
        && let Some((namespace, _)) = account_of(&user)
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    let standing = if user == ANONYMOUS {
        UNAUTHENTICATED
    } else {
        AUTHENTICATED
    };
    if !groups
        .iter()
        .any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED)
    {
        groups.push(standing.to_owned());
    }
    UserInfo {
        name: user,
        uid,
        groups,
        extra,
    }
}

/// Reads the four families of headers. An empty user name counts as absent, and so do empty groups.
fn read(headers: &HeaderMap) -> Result<Wanted, Refusal> {
    let mut wanted = Wanted::default();
    let mut parts = 0;
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with(PREFIX) {
            continue;
        }
        parts += 1;
        if parts > PARTS_MAX {
            let text = format!("too many impersonation headers limit={PARTS_MAX}");
            return Err(Refusal::bad_request(Stage::Authz, text));
        }
        let Ok(value) = std::str::from_utf8(value.as_bytes()) else {
            let text = format!("header {name} is not valid UTF-8");
            return Err(Refusal::bad_request(Stage::Authz, text));
        };
        let value = value.to_owned();
        match name {
            USER => once(&mut wanted.user, value, name)?,
            UID => once(&mut wanted.uid, value, name)?,
            GROUP => wanted.groups.push(value),
            _ => match name.strip_prefix(EXTRA) {
                Some(key) if !key.is_empty() => push_extra(&mut wanted.extra, key, value),
                _ => {
                    let text = format!("unknown impersonation header {name}");
                    return Err(Refusal::bad_request(Stage::Authz, text));
                }
            },
        }
    }
    wanted.groups.retain(|group| !group.is_empty());
    Ok(wanted)
}

/// Two different user names in one request can be read two ways.
fn once(slot: &mut String, value: String, name: &str) -> Result<(), Refusal> {
    if !slot.is_empty() && *slot != value {
        let text = format!("header {name} is given more than once");
        return Err(Refusal::bad_request(Stage::Authz, text));
    }
    *slot = value;
    Ok(())
}

/// The key is lower case on the wire and percent-decoded; a bad escape leaves it as it is.
fn push_extra(extra: &mut Vec<(String, Vec<String>)>, key: &str, value: String) {
    let key = percent_decode_str(key)
        .decode_utf8()
        .map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned);
    match extra.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) => values.push(value),
        None => extra.push((key, vec![value])),
    }
}
