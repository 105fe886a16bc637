//! Who may do what: by the common name of the certificate shown at the handshake.
//!
//! ```text
//! certificate -> common name -> right          decided once a connection
//! right + method -> let in | permission denied  looked up once a request, without a lock
//! ```
//! Without an [`EtcdAccess`] every certificate of the client CA may write, as with etcd. With one,
//! a name that nobody wrote down may do nothing. A [`BreakGlass`] lets every certificate write for
//! a while; whoever comes in by it is told of to an [`AccessLog`], each connection by itself.
//!
//! It knows nothing of what is asked: [`super::methods`] says which calls write, and the two calls
//! that do both (transactions, alarms) look for the [`ReadOnly`] mark on their request.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::Extensions;
use rustls_pki_types::CertificateDer;
use tonic::Status;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::errors;
use super::methods::Effect;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::alarm_request::AlarmAction;
use super::proto::etcdserverpb::request_op::Request as Op;

/// Which names may do what. Exact text: no `*`, no negation; an empty list admits nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// Common names that may read and write.
    pub writers: BTreeSet<String>,
    /// Common names that may read, snapshots included.
    pub readers: BTreeSet<String>,
    /// Lets every certificate of the client CA write.
    pub break_glass: Option<BreakGlass>,
}

/// Everybody with a certificate may write, for a reason that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakGlass {
    /// Why, as the operator said; never empty.
    pub reason: String,
    /// Until when; `None` is until the process ends.
    pub until: Option<SystemTime>,
}

/// Told of what was let in by breaking the glass, and of the breaking itself.
pub trait AccessLog: Send + Sync + Debug {
    /// Must not block: it is called where connections are accepted.
    fn note(&self, event: &AccessEvent<'_>);
}

/// What an [`AccessLog`] hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessEvent<'a> {
    /// The listener serves with the glass broken.
    Broken {
        /// Why and until when.
        glass: &'a BreakGlass,
    },
    /// A connection may write only because the glass is broken.
    Admitted {
        /// Why and until when.
        glass: &'a BreakGlass,
        /// The certificate's common name; empty when it has none.
        name: &'a str,
        /// Where it came from.
        peer: SocketAddr,
    },
}

/// What a connection may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Write,
    Read,
    Nothing,
    /// All, while the glass is broken; then what is left.
    Glass(Arc<BreakGlass>, Box<Right>),
}

/// On requests of connections that may only read.
#[derive(Clone, Copy)]
pub(crate) struct ReadOnly;

impl Right {
    /// What a certificate's name may do.
    pub(crate) fn of(name: Option<&str>, access: Option<&EtcdAccess>) -> Right {
        let Some(access) = access else {
            return Right::Write;
        };
        let listed = match name {
            Some(name) if access.writers.contains(name) => return Right::Write,
            Some(name) if access.readers.contains(name) => Right::Read,
            _ => Right::Nothing,
        };
        match &access.break_glass {
            Some(glass) => Right::Glass(Arc::new(glass.clone()), Box::new(listed)),
            None => listed,
        }
    }

    /// Lets a call in, marked where the call itself must look, or refuses it.
    pub(crate) fn admit(&self, effect: Effect, marks: &mut Extensions) -> Result<(), Status> {
        match (self, effect) {
            (Right::Write, _) | (_, Effect::Open) | (Right::Read, Effect::Reads) => Ok(()),
            (Right::Read, Effect::ByContent) => {
                marks.insert(ReadOnly);
                Ok(())
            }
            (Right::Glass(glass, _), _) if glass.is_broken_at(SystemTime::now()) => Ok(()),
            (Right::Glass(_, listed), _) => listed.admit(effect, marks),
            (Right::Read, Effect::Writes) | (Right::Nothing, _) => Err(errors::permission_denied()),
        }
    }
}

impl BreakGlass {
    /// Whether it still lets everybody in.
    #[must_use]
    pub fn is_broken_at(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Refuses a transaction that could write to whoever may only read.
pub(crate) fn check_txn(marks: &Extensions, request: &pb::TxnRequest) -> Result<(), Status> {
    if marks.get::<ReadOnly>().is_some() && could_write(request) {
        return Err(errors::permission_denied());
    }
    Ok(())
}

/// Refuses a change of alarms to whoever may only read.
pub(crate) fn check_alarm(marks: &Extensions, request: &pb::AlarmRequest) -> Result<(), Status> {
    if marks.get::<ReadOnly>().is_some() && request.action() != AlarmAction::Get {
        return Err(errors::permission_denied());
    }
    Ok(())
}

fn could_write(request: &pb::TxnRequest) -> bool {
    let ops = request.success.iter().chain(&request.failure);
    ops.into_iter().any(|op| match &op.request {
        Some(Op::RequestRange(_)) | None => false,
        Some(Op::RequestTxn(inner)) => could_write(inner),
        Some(Op::RequestPut(_) | Op::RequestDeleteRange(_)) => true,
    })
}

/// The subject's common name, the last one if there are several, as etcd takes it.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().last()?;
    name.as_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn access(until: Option<SystemTime>, is_broken: bool) -> EtcdAccess {
        EtcdAccess {
            writers: BTreeSet::from(["writer".to_owned()]),
            readers: BTreeSet::from(["reader".to_owned()]),
            break_glass: is_broken.then(|| BreakGlass {
                reason: "why".to_owned(),
                until,
            }),
        }
    }

    /// Each effect by its letter where it is let in; `m` for one that is let in marked.
    fn allowed(right: &Right) -> String {
        let effects = [
            ('r', Effect::Reads),
            ('w', Effect::Writes),
            ('c', Effect::ByContent),
            ('o', Effect::Open),
        ];
        let letter = |(letter, effect)| {
            let mut marks = Extensions::new();
            right.admit(effect, &mut marks).ok()?;
            Some(if marks.get::<ReadOnly>().is_some() {
                'm'
            } else {
                letter
            })
        };
        effects.into_iter().filter_map(letter).collect()
    }

    #[test]
    fn a_name_may_what_was_written_down_for_it() {
        let names = [Some("writer"), Some("reader"), Some("other"), None];
        let of = |access: Option<&EtcdAccess>| {
            names
                .map(|name| allowed(&Right::of(name, access)))
                .join(" ")
        };
        assert_eq!(of(None), "rwco rwco rwco rwco");
        assert_eq!(of(Some(&access(None, false))), "rwco rmo o o");
        assert_eq!(of(Some(&access(None, true))), "rwco rwco rwco rwco");
        let later = SystemTime::now() + Duration::from_secs(3600);
        assert_eq!(of(Some(&access(Some(later), true))), "rwco rwco rwco rwco");
        // What the glass let in goes with it.
        let earlier = SystemTime::now() - Duration::from_secs(1);
        assert_eq!(of(Some(&access(Some(earlier), true))), "rwco rmo o o");
        assert_eq!(of(Some(&EtcdAccess::default())), "o o o o");
    }
}
