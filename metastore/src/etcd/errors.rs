//! Every refusal as the wire says it: the one place where etcd's codes and texts are written.
//!
//! etcd's client library knows its errors by their exact text, and kube-apiserver compares those;
//! a right code under another text is not recognised. Texts that etcd does not have begin with
//! `sluice:` so that nobody takes them for etcd's.

use tonic::{Code, Status};

use crate::Error;
use crate::faults::{Fault, injected};

pub(crate) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const EMPTY_KEY: &str = "etcdserver: key is not provided";
const KEY_NOT_FOUND: &str = "etcdserver: key not found";
const VALUE_PROVIDED: &str = "etcdserver: value is provided";
const LEASE_PROVIDED: &str = "etcdserver: lease is provided";
const TOO_MANY_OPS: &str = "etcdserver: too many operations in txn request";
const DUPLICATE_KEY: &str = "etcdserver: duplicate key given in txn request";
const INVALID_SORT: &str = "etcdserver: invalid sort option";
const TOO_LARGE: &str = "etcdserver: request is too large";
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
const LEASE_EXISTS: &str = "etcdserver: lease already exists";
const LEASE_TTL_TOO_LARGE: &str = "etcdserver: too large lease TTL";
const TIMED_OUT: &str = "etcdserver: request timed out";
const STOPPED: &str = "etcdserver: server stopped";
const CORRUPT: &str = "etcdserver: corrupt cluster";
const AUTH_NOT_ENABLED: &str = "etcdserver: authentication is not enabled";
const MEMBER_NOT_FOUND: &str = "etcdserver: member not found";
const MEMBER_NOT_LEARNER: &str = "etcdserver: can only promote a learner member";
const MEMBER_BAD_URLS: &str = "etcdserver: given member URLs are invalid";
const MEMBERS_TOO_FEW: &str =
    "etcdserver: re-configuration failed due to not enough started members";
const BAD_TRANSFEREE: &str = "etcdserver: bad leader transferee";
const DOWNGRADE_FORMAT: &str = "etcdserver: wrong downgrade target version format";
const DOWNGRADE_TARGET: &str = "etcdserver: invalid downgrade target version";
const NOT_CAPABLE: &str = "etcdserver: not capable";
const NO_LEADER: &str = "etcdserver: no leader";
const CLIENT_VERSION: &str = "etcdserver: invalid client api version";
const PERMISSION_DENIED: &str = "etcdserver: permission denied";
const ROOT_USER_NOT_FOUND: &str = "etcdserver: root user does not exist";
const USER_EMPTY: &str = "etcdserver: user name is empty";
const USER_NOT_FOUND: &str = "etcdserver: user name not found";
const ROLE_EMPTY: &str = "etcdserver: role name is empty";
const ROLE_NOT_FOUND: &str = "etcdserver: role name not found";
/// Reasons of a refused watch; the library hands them to its caller as they are.
pub(crate) const WATCH_ID_TAKEN: &str = "mvcc: duplicate watch ID provided on the WatchStream";
/// See [`WATCH_ID_TAKEN`].
pub(crate) const WATCH_RANGE_EMPTY: &str = "mvcc: watcher range is empty";
/// See [`WATCH_ID_TAKEN`].
pub(crate) const WATCHES_TOO_MANY: &str =
    "sluice: too many watches on one stream: open another connection";

/// The status of a refusal by the store.
pub(crate) fn status(error: &Error) -> Status {
    let (code, text) = match error {
        Error::Compacted { .. } if injected(Fault::WrongText) => (Code::OutOfRange, "compacted"),
        Error::Compacted { .. } => (Code::OutOfRange, COMPACTED),
        Error::Future { .. } => (Code::OutOfRange, FUTURE),
        Error::EmptyKey => (Code::InvalidArgument, EMPTY_KEY),
        Error::DuplicateKey => (Code::InvalidArgument, DUPLICATE_KEY),
        Error::TooManyOps { .. } => (Code::InvalidArgument, TOO_MANY_OPS),
        Error::TooLarge { .. } => (Code::InvalidArgument, TOO_LARGE),
        Error::KeyNotFound => (Code::InvalidArgument, KEY_NOT_FOUND),
        Error::LeaseNotFound => (Code::NotFound, LEASE_NOT_FOUND),
        Error::LeaseExists => (Code::FailedPrecondition, LEASE_EXISTS),
        Error::LeaseTtlTooLarge => (Code::OutOfRange, LEASE_TTL_TOO_LARGE),
        Error::NoSpace => (Code::ResourceExhausted, NO_SPACE),
        Error::Overloaded => (Code::ResourceExhausted, TOO_MANY_REQUESTS),
        // The outcome is unknown: neither a success nor a clean failure, and clients know this text.
        Error::Uncertain { .. } => (Code::Unavailable, TIMED_OUT),
        // No request imports.
        Error::Stopped { .. } | Error::Io { .. } | Error::Import { .. } => {
            (Code::Unavailable, STOPPED)
        }
        Error::Corrupt { .. } => (Code::DataLoss, CORRUPT),
    };
    Status::new(code, text)
}

pub(crate) fn empty_key() -> Status {
    Status::invalid_argument(EMPTY_KEY)
}

/// Also what etcd answers to an operation of a transaction that names no request.
pub(crate) fn key_not_found() -> Status {
    Status::invalid_argument(KEY_NOT_FOUND)
}

pub(crate) fn value_provided() -> Status {
    Status::invalid_argument(VALUE_PROVIDED)
}

pub(crate) fn lease_provided() -> Status {
    Status::invalid_argument(LEASE_PROVIDED)
}

pub(crate) fn too_many_ops() -> Status {
    Status::invalid_argument(TOO_MANY_OPS)
}

pub(crate) fn invalid_sort() -> Status {
    Status::invalid_argument(INVALID_SORT)
}

pub(crate) fn too_large() -> Status {
    Status::invalid_argument(TOO_LARGE)
}

/// As etcd's gRPC library words it: a message that is not even read.
pub(crate) fn message_too_large(bytes: u32, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "grpc: received message larger than max ({bytes} vs. {limit})"
    ))
}

pub(crate) fn too_many_requests() -> Status {
    Status::resource_exhausted(TOO_MANY_REQUESTS)
}

/// In the words of Go's own library.
pub(crate) fn answer_too_large(bytes: usize, bytes_max: usize) -> Status {
    Status::resource_exhausted(format!(
        "grpc: trying to send message larger than max ({bytes} vs. {bytes_max})"
    ))
}

pub(crate) fn timed_out() -> Status {
    Status::unavailable(TIMED_OUT)
}

pub(crate) fn stopped() -> Status {
    Status::unavailable(STOPPED)
}

pub(crate) fn auth_not_enabled() -> Status {
    Status::failed_precondition(AUTH_NOT_ENABLED)
}

pub(crate) fn member_not_found() -> Status {
    Status::not_found(MEMBER_NOT_FOUND)
}

pub(crate) fn bad_transferee() -> Status {
    Status::failed_precondition(BAD_TRANSFEREE)
}

pub(crate) fn member_not_learner() -> Status {
    Status::failed_precondition(MEMBER_NOT_LEARNER)
}

pub(crate) fn member_bad_urls() -> Status {
    Status::invalid_argument(MEMBER_BAD_URLS)
}

/// What etcd answers where a change of membership would cost the cluster its quorum; its code is
/// lost on the way there.
pub(crate) fn members_too_few() -> Status {
    Status::unknown(MEMBERS_TOO_FEW)
}

pub(crate) fn downgrade_format() -> Status {
    Status::invalid_argument(DOWNGRADE_FORMAT)
}

pub(crate) fn downgrade_target() -> Status {
    Status::invalid_argument(DOWNGRADE_TARGET)
}

pub(crate) fn no_leader() -> Status {
    Status::unavailable(NO_LEADER)
}

pub(crate) fn corrupt() -> Status {
    Status::data_loss(CORRUPT)
}

pub(crate) fn invalid_client_version() -> Status {
    Status::invalid_argument(CLIENT_VERSION)
}

pub(crate) fn permission_denied() -> Status {
    Status::permission_denied(PERMISSION_DENIED)
}

pub(crate) fn root_user_not_found() -> Status {
    Status::failed_precondition(ROOT_USER_NOT_FOUND)
}

pub(crate) fn user_empty() -> Status {
    Status::invalid_argument(USER_EMPTY)
}

pub(crate) fn user_not_found() -> Status {
    Status::failed_precondition(USER_NOT_FOUND)
}

pub(crate) fn role_empty() -> Status {
    Status::invalid_argument(ROLE_EMPTY)
}

pub(crate) fn role_not_found() -> Status {
    Status::failed_precondition(ROLE_NOT_FOUND)
}

/// A call that etcd has and this store does not: etcd's own text for that, and in the log the
/// reason and what to do instead, since the text is all that clients know by sight.
pub(crate) fn not_capable(why: &str) -> Status {
    tracing::info!(why, "refused a call that this store does not have");
    Status::failed_precondition(NOT_CAPABLE)
}

/// The same refusals as etcd words them for streamed lists.
pub(crate) fn stream_sort_unsupported() -> Status {
    Status::unimplemented("RangeStream does not support custom sort orders")
}

/// See [`stream_sort_unsupported`].
pub(crate) fn stream_bounds_unsupported() -> Status {
    Status::unimplemented("RangeStream does not support revision filters")
}
