//! Sends a request, asks the model the same, and holds the answers against each other.

use bytes::Bytes;
use prost::Message;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use tonic::{Code, Status};

use pb::response_op::Response as Done;

use super::ask::{Ask, Sent};
use super::model::{self, Model, Refusal};
use super::wire::Wire;

/// Which code belongs to which text.
fn code(text: &str) -> Code {
    match text {
        model::COMPACTED | model::FUTURE | model::TTL_TOO_LARGE => Code::OutOfRange,
        model::NO_LEASE => Code::NotFound,
        model::LEASE_EXISTS => Code::FailedPrecondition,
        _ => Code::InvalidArgument,
    }
}

impl Ask {
    /// Whether it was done, as the model says too.
    pub(crate) async fn answered(self, wire: &Wire, model: &mut Model) -> Result<bool, String> {
        let bytes = self.bytes();
        Sent { bytes, ask: self }.answered(wire, model).await
    }
}

impl Sent {
    pub(crate) async fn answered(self, wire: &Wire, model: &mut Model) -> Result<bool, String> {
        let path = self.ask.path();
        let answer = match &self.ask {
            Ask::Stream(_) => wire.stream(path, self.bytes.clone()).await,
            _ => wire.call(path, self.bytes.clone()).await,
        };
        let is_done = answer.is_ok();
        let before = model.revision();
        let held = match &self.ask {
            Ask::Range(ask) => same(answer, model.range(ask), model),
            Ask::Stream(ask) => streamed(answer, ask, model),
            Ask::Put(ask) => same(answer, model.put(ask), model),
            Ask::Delete(ask) => same(answer, model.delete(ask), model),
            Ask::Txn(ask) => same(answer, model.txn(ask), model),
            Ask::Compact(ask) => {
                let done = model.compact(ask.revision);
                same(
                    answer,
                    done.map(|()| pb::CompactionResponse::default()),
                    model,
                )
            }
            Ask::Grant(ask) => granted(answer, ask, model),
            Ask::Revoke(ask) => {
                let done = model.revoke(ask.id);
                same(
                    answer,
                    done.map(|()| pb::LeaseRevokeResponse::default()),
                    model,
                )
            }
            Ask::Left(ask) => left(answer, ask, model),
            Ask::Leases(_) => leases(answer, model),
            Ask::Broken(..) if is_done => Err("bytes that are no message were taken".to_owned()),
            Ask::Broken(..) => Ok(()),
        };
        held.map_err(|why| {
            format!(
                "{:?} at revision {before}, floor {}: {why}",
                self.ask, model.floor
            )
        })?;
        Ok(is_done)
    }
}

/// A message with a header of its own.
trait Answer: Message + Default + PartialEq + std::fmt::Debug {
    /// Takes the revision out of the header, and the headers within away.
    fn plain(&mut self) -> i64;
}

fn take(header: &mut Option<pb::ResponseHeader>) -> i64 {
    header.take().map_or(-1, |header| header.revision)
}

macro_rules! answer {
    ($($kind:ty),+) => {$(
        impl Answer for $kind {
            fn plain(&mut self) -> i64 {
                take(&mut self.header)
            }
        }
    )+};
}

answer!(
    pb::RangeResponse,
    pb::PutResponse,
    pb::DeleteRangeResponse,
    pb::CompactionResponse,
    pb::LeaseGrantResponse,
    pb::LeaseRevokeResponse,
    pb::LeaseTimeToLiveResponse,
    pb::LeaseLeasesResponse
);

impl Answer for pb::TxnResponse {
    fn plain(&mut self) -> i64 {
        for done in &mut self.responses {
            match &mut done.response {
                Some(Done::ResponseRange(done)) => drop(done.plain()),
                Some(Done::ResponsePut(done)) => drop(done.plain()),
                Some(Done::ResponseDeleteRange(done)) => drop(done.plain()),
                Some(Done::ResponseTxn(done)) => drop(done.plain()),
                None => {}
            }
        }
        take(&mut self.header)
    }
}

fn refused(status: &Status, Refusal(texts): &Refusal) -> Result<(), String> {
    let text = status.message();
    if texts.contains(&text) && status.code() == code(text) {
        return Ok(());
    }
    Err(format!(
        "refused by {:?} {text:?} in place of {texts:?}",
        status.code()
    ))
}

/// Reads an answer; its revision must be the model's, and none when it was refused.
fn read<T: Answer>(
    answer: Result<Bytes, Status>,
    refusal: Option<&Refusal>,
    revision: i64,
) -> Result<Option<T>, String> {
    match (answer, refusal) {
        (Err(status), Some(refusal)) => refused(&status, refusal).map(|()| None),
        (Err(status), None) => Err(format!("refused: {:?} {}", status.code(), status.message())),
        (Ok(_), Some(Refusal(texts))) => Err(format!("done in place of refused: {texts:?}")),
        (Ok(bytes), None) => {
            let mut read = T::decode(bytes).map_err(|e| format!("an answer that is none: {e}"))?;
            let said = read.plain();
            if said != revision {
                return Err(format!("says revision {said} in place of {revision}"));
            }
            Ok(Some(read))
        }
    }
}

fn same<T: Answer>(
    answer: Result<Bytes, Status>,
    expected: Result<T, Refusal>,
    model: &Model,
) -> Result<(), String> {
    let read = read::<T>(answer, expected.as_ref().err(), model.revision())?;
    match (read, expected) {
        (Some(read), Ok(expected)) if read != expected => {
            Err(format!("answered {read:?} in place of {expected:?}"))
        }
        _ => Ok(()),
    }
}

/// A list in several messages says what a single one does, or that it cannot.
fn streamed(
    answer: Result<Bytes, Status>,
    ask: &pb::RangeRequest,
    model: &Model,
) -> Result<(), String> {
    match answer {
        Err(status) if status.code() == Code::Unimplemented => {
            let bounds = [
                ask.min_mod_revision,
                ask.max_mod_revision,
                ask.min_create_revision,
                ask.max_create_revision,
            ];
            let is_plain = ask.sort_order == 0 && bounds == [0; 4];
            if is_plain {
                return Err(format!("refused: {}", status.message()));
            }
            Ok(())
        }
        answer => same(answer, model.range(ask), model),
    }
}

fn granted(
    answer: Result<Bytes, Status>,
    ask: &pb::LeaseGrantRequest,
    model: &mut Model,
) -> Result<(), String> {
    let expected = model.grant(ask);
    let refusal = expected.as_ref().err();
    let read = read::<pb::LeaseGrantResponse>(answer, refusal, model.revision())?;
    let (Some(read), Ok(ttl)) = (read, expected) else {
        return Ok(());
    };
    let is_id = if ask.id == 0 {
        read.id > 0 && !model.leases.contains_key(&read.id)
    } else {
        read.id == ask.id
    };
    if !is_id || read.ttl != ttl || !read.error.is_empty() {
        return Err(format!(
            "granted {read:?}, with a time to live of {ttl} expected"
        ));
    }
    model.leases.insert(read.id, ttl);
    Ok(())
}

fn left(
    answer: Result<Bytes, Status>,
    ask: &pb::LeaseTimeToLiveRequest,
    model: &Model,
) -> Result<(), String> {
    let mut read =
        read::<pb::LeaseTimeToLiveResponse>(answer, None, model.revision())?.unwrap_or_default();
    read.keys.sort();
    let mut expected = pb::LeaseTimeToLiveResponse {
        id: ask.id,
        ttl: -1,
        ..Default::default()
    };
    if let Some(ttl) = model.leases.get(&ask.id) {
        expected.granted_ttl = *ttl;
        // A real clock goes on.
        let is_close = (ttl - 3..=*ttl).contains(&read.ttl);
        expected.ttl = if is_close { read.ttl } else { *ttl };
        let held = model
            .now()
            .values()
            .filter(|kv| kv.lease == ask.id && ask.keys);
        expected.keys = held.map(|kv| kv.key.clone()).collect();
    }
    if read != expected {
        return Err(format!("answered {read:?} in place of {expected:?}"));
    }
    Ok(())
}

fn leases(answer: Result<Bytes, Status>, model: &Model) -> Result<(), String> {
    let read = read::<pb::LeaseLeasesResponse>(answer, None, model.revision())?;
    let mut ids: Vec<i64> = read
        .unwrap_or_default()
        .leases
        .iter()
        .map(|l| l.id)
        .collect();
    ids.sort_unstable();
    let expected: Vec<i64> = model.leases.keys().copied().collect();
    if ids != expected {
        return Err(format!("leases {ids:?} in place of {expected:?}"));
    }
    Ok(())
}
