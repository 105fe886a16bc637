//! Requests of the wire to values of the store: no etcd convention survives past here.
//!
//! Empty and zero byte range ends, zero limits and zero revisions become enums and options; what
//! no value can express (an option that contradicts another) is refused with etcd's text.

use bytes::Bytes;
use tonic::Status;

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use super::proto::etcdserverpb::request_op::Request as Wire;
use crate::read::{At, Projection, Range, Sort, SortBy};
use crate::txn::{Compare, Delete, Op, Put, Relation, Target, Txn};
use crate::{KeyRange, LeaseId, Revision};

/// etcd's `--max-txn-ops`: operations of one branch, nesting included.
pub(crate) const TXN_OPS_MAX: usize = 128;

/// The keys that a key and a range end name. An end at or before the key names none.
pub(crate) fn key_range(key: &Bytes, end: &Bytes) -> KeyRange {
    match (key.as_ref(), end.as_ref()) {
        (_, []) => KeyRange::Key(key.clone()),
        ([0], [0]) => KeyRange::All,
        (_, [0]) => KeyRange::From(key.clone()),
        (start, end_bytes) if end_bytes <= start => KeyRange::Between(key.clone(), key.clone()),
        _ => KeyRange::Between(key.clone(), end.clone()),
    }
}

/// A read.
pub(crate) fn range(request: &pb::RangeRequest) -> Result<Range, Status> {
    if request.key.is_empty() {
        return Err(errors::empty_key());
    }
    let order = SortOrder::try_from(request.sort_order).map_err(|_| errors::invalid_sort())?;
    let target = SortTarget::try_from(request.sort_target).map_err(|_| errors::invalid_sort())?;
    let projection = match (request.count_only, request.keys_only) {
        (true, _) => Projection::CountOnly,
        (false, true) => Projection::KeysOnly,
        (false, false) => Projection::Full,
    };
    Ok(Range {
        range: key_range(&request.key, &request.range_end),
        at: Revision::from_wire(request.revision).map_or(At::Latest, At::Exactly),
        limit: usize::try_from(request.limit)
            .ok()
            .filter(|limit| *limit > 0),
        projection,
        sort: sort(order, target),
        mod_bounds: bounds(request.min_mod_revision, request.max_mod_revision),
        create_bounds: bounds(request.min_create_revision, request.max_create_revision),
    })
}

/// Ascending by key is what the store does anyway. A field without an order means ascending.
fn sort(order: SortOrder, target: SortTarget) -> Option<Sort> {
    let by = match target {
        SortTarget::Key => SortBy::Key,
        SortTarget::Version => SortBy::Version,
        SortTarget::Create => SortBy::Create,
        SortTarget::Mod => SortBy::Mod,
        SortTarget::Value => SortBy::Value,
    };
    let descending = order == SortOrder::Descend;
    (by != SortBy::Key || descending).then_some(Sort { by, descending })
}

/// Zero is no bound. A greatest one below zero is one that nothing keeps to.
fn bounds(least: i64, greatest: i64) -> (Option<Revision>, Option<Revision>) {
    let greatest = (greatest != 0).then(|| revision(greatest));
    (Revision::from_wire(least), greatest)
}

/// A write of one key.
pub(crate) fn put(request: &pb::PutRequest) -> Result<Put, Status> {
    if request.key.is_empty() {
        return Err(errors::empty_key());
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(errors::value_provided());
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(errors::lease_provided());
    }
    Ok(Put {
        key: request.key.clone(),
        value: (!request.ignore_value).then(|| request.value.clone()),
        lease: (!request.ignore_lease).then_some(LeaseId(request.lease)),
        want_previous: request.prev_kv,
    })
}

/// A delete.
pub(crate) fn delete(request: &pb::DeleteRangeRequest) -> Result<Delete, Status> {
    if request.key.is_empty() {
        return Err(errors::empty_key());
    }
    Ok(Delete {
        range: key_range(&request.key, &request.range_end),
        want_previous: request.prev_kv,
    })
}

/// A transaction; `ops_max` is what its branches may still hold.
pub(crate) fn txn(request: &pb::TxnRequest, ops_max: usize) -> Result<Txn, Status> {
    let widest = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    let Some(ops_left) = ops_max.checked_sub(widest) else {
        return Err(errors::too_many_ops());
    };
    let branch = |ops: &[pb::RequestOp]| {
        ops.iter()
            .map(|one| op(one, ops_left))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut compares = Vec::with_capacity(request.compare.len());
    for one in &request.compare {
        compares.extend(compare(one)?);
    }
    Ok(Txn {
        compares,
        success: branch(&request.success)?,
        failure: branch(&request.failure)?,
    })
}

fn op(request: &pb::RequestOp, ops_max: usize) -> Result<Op, Status> {
    Ok(match &request.request {
        Some(Wire::RequestRange(wire)) => Op::Range(range(wire)?),
        Some(Wire::RequestPut(wire)) => Op::Put(put(wire)?),
        Some(Wire::RequestDeleteRange(wire)) => Op::Delete(delete(wire)?),
        Some(Wire::RequestTxn(wire)) => Op::Txn(txn(wire, ops_max)?),
        None => return Err(errors::key_not_found()),
    })
}

/// A condition, or `None` when it always holds.
fn compare(request: &pb::Compare) -> Result<Option<Compare>, Status> {
    if request.key.is_empty() {
        return Err(errors::empty_key());
    }
    let relation = match CompareResult::try_from(request.result) {
        Ok(CompareResult::Equal) => Relation::Equal,
        Ok(CompareResult::Greater) => Relation::Greater,
        Ok(CompareResult::Less) => Relation::Less,
        Ok(CompareResult::NotEqual) => Relation::NotEqual,
        // etcd lets an unknown relation hold, but no value of a key that is not there.
        Err(_) if request.target == i32::from(CompareTarget::Value) => {
            return Ok(Some(versions(request, Relation::Greater)));
        }
        Err(_) => return Ok(None),
    };
    let union = request.target_union.as_ref();
    let (target, number) = match CompareTarget::try_from(request.target) {
        Ok(CompareTarget::Version) => {
            let number = union.map_or(0, |one| {
                if let TargetUnion::Version(n) = one {
                    *n
                } else {
                    0
                }
            });
            (Target::Version(number.try_into().unwrap_or(0)), number)
        }
        Ok(CompareTarget::Create) => {
            let number = union.map_or(0, |one| {
                if let TargetUnion::CreateRevision(n) = one {
                    *n
                } else {
                    0
                }
            });
            (Target::Create(revision(number)), number)
        }
        Ok(CompareTarget::Mod) => {
            let number = union.map_or(0, |one| {
                if let TargetUnion::ModRevision(n) = one {
                    *n
                } else {
                    0
                }
            });
            (Target::Mod(revision(number)), number)
        }
        Ok(CompareTarget::Value) => match union {
            Some(TargetUnion::Value(value)) => (Target::Value(value.clone()), 0),
            _ => (Target::Value(Bytes::new()), 0),
        },
        Ok(CompareTarget::Lease) => match union {
            Some(TargetUnion::Lease(id)) => (Target::Lease(LeaseId(*id)), 0),
            _ => (Target::Lease(LeaseId::NONE), 0),
        },
        // etcd compares nothing then, and finds it equal.
        Err(_) if relation == Relation::Equal => return Ok(None),
        Err(_) => return Ok(Some(versions(request, Relation::Less))),
    };
    let range = key_range(&request.key, &request.range_end);
    if number >= 0 {
        return Ok(Some(Compare {
            range,
            relation,
            target,
        }));
    }
    // Every count and revision is greater than a negative number, whatever the key.
    Ok(match relation {
        Relation::Greater | Relation::NotEqual => None,
        Relation::Less | Relation::Equal => Some(versions(request, Relation::Less)),
    })
}

/// How versions stand to zero: none is less, and those of keys that are there are greater.
fn versions(request: &pb::Compare, relation: Relation) -> Compare {
    Compare {
        range: key_range(&request.key, &request.range_end),
        relation,
        target: Target::Version(0),
    }
}

fn revision(number: i64) -> Revision {
    Revision::from_wire(number).unwrap_or(Revision::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn range_ends_lose_their_magic() {
        assert_eq!(
            key_range(&bytes("a"), &bytes("")),
            KeyRange::Key(bytes("a"))
        );
        assert_eq!(
            key_range(&bytes("a"), &bytes("\0")),
            KeyRange::From(bytes("a"))
        );
        assert_eq!(key_range(&bytes("\0"), &bytes("\0")), KeyRange::All);
        assert_eq!(
            key_range(&bytes("b"), &bytes("a")),
            KeyRange::Between(bytes("b"), bytes("b"))
        );
        assert_eq!(
            key_range(&bytes("a"), &bytes("b")),
            KeyRange::Between(bytes("a"), bytes("b"))
        );
    }

    #[test]
    fn nested_transactions_share_the_limit_of_operations() {
        let put = pb::RequestOp {
            request: Some(Wire::RequestPut(pb::PutRequest {
                key: bytes("k"),
                ..Default::default()
            })),
        };
        let inner = pb::TxnRequest {
            success: vec![put.clone(); 100],
            ..Default::default()
        };
        let nested = pb::RequestOp {
            request: Some(Wire::RequestTxn(inner)),
        };
        let fits = pb::TxnRequest {
            success: vec![nested.clone(); 28],
            ..Default::default()
        };
        assert!(txn(&fits, TXN_OPS_MAX).is_ok());
        let over = pb::TxnRequest {
            success: vec![nested; 29],
            ..Default::default()
        };
        let refused = txn(&over, TXN_OPS_MAX).expect_err("29 and 100 are more than 128");
        assert_eq!(
            refused.message(),
            "etcdserver: too many operations in txn request"
        );
    }

    #[test]
    fn nothing_keeps_to_a_greatest_revision_below_zero() {
        assert_eq!(bounds(0, 0), (None, None));
        assert_eq!(bounds(-1, 7), (None, Some(Revision::new(7))));
        assert_eq!(
            bounds(3, -1),
            (Some(Revision::new(3)), Some(Revision::ZERO))
        );
    }

    #[test]
    fn an_unknown_target_is_equal_and_nothing_else() {
        let with = |result: CompareResult| {
            let compared = compare(&pb::Compare {
                key: bytes("k"),
                result: result.into(),
                target: 5,
                ..Default::default()
            });
            compared.expect("valid").is_none()
        };
        assert!(with(CompareResult::Equal));
        assert!(!with(CompareResult::NotEqual));
        assert!(!with(CompareResult::Less));
        let value = compare(&pb::Compare {
            key: bytes("k"),
            result: 9,
            target: CompareTarget::Value.into(),
            ..Default::default()
        });
        let there = value.expect("valid").expect("a condition");
        assert_eq!(
            (there.relation, there.target),
            (Relation::Greater, Target::Version(0))
        );
    }

    #[test]
    fn a_negative_number_is_below_every_key() {
        let with = |result: CompareResult| pb::Compare {
            key: bytes("k"),
            result: result.into(),
            target: CompareTarget::Mod.into(),
            target_union: Some(TargetUnion::ModRevision(-1)),
            ..Default::default()
        };
        assert_eq!(compare(&with(CompareResult::Greater)).expect("valid"), None);
        let never = compare(&with(CompareResult::Equal))
            .expect("valid")
            .expect("a condition");
        assert_eq!(
            (never.relation, never.target),
            (Relation::Less, Target::Version(0))
        );
    }
}
