//! Random inputs against what reads outside data, each with an oracle that can fail.
//!
//! `make fuzz SECONDS= SEED=` shares the seconds between the targets; without them each replays its
//! corpus and one second of random inputs. An input is a text of bytes and all that happens follows
//! from it, so a failure is told as one line to be put into `e2e/corpus/<target>/`, from where it
//! is replayed first. Input n of a seed is always the same one, as long as corpus and generator are.
//!
//! It knows only what is public of the crates; what a target proves stands at its head.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod bodies;
mod config;
mod corpus;
mod dice;
mod etcd;
mod feed;
mod fields;
mod harness;
mod keys;
mod labels;
mod limits;
mod mutate;
mod object;
mod protobuf;
mod recovery;
mod replay;
mod request;
mod rules;
mod snapshot;

/// How many tests share the seconds.
const TARGETS: u32 = 14;

#[test]
fn request() {
    harness::run(request::target);
}

#[test]
fn labels() {
    harness::run(labels::target);
}

#[test]
fn fields() {
    harness::run(fields::target);
}

#[test]
fn config() {
    harness::run(config::target);
}

#[test]
fn object() {
    harness::run(object::target);
}

#[test]
fn bodies() {
    harness::run(bodies::target);
}

#[test]
fn protobuf() {
    harness::run(protobuf::target);
}

#[test]
fn recovery() {
    harness::run(recovery::target);
}

#[test]
fn replay() {
    harness::run(replay::target);
}

#[test]
fn keys() {
    harness::run(keys::target);
}

#[test]
fn limits() {
    harness::run(limits::target);
}

#[test]
fn rules() {
    harness::run(rules::target);
}

#[test]
fn etcd() {
    harness::run(etcd::target);
}

#[test]
fn snapshot() {
    harness::run(snapshot::target);
}
