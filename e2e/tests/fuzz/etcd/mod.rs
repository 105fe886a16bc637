//! The etcd wire, through the real listener and store, against the plainest model there is.
//!
//! A program is requests of every kind, some of them with bytes changed after they were encoded;
//! watches are opened in the middle. What the generated code reads out of the bytes is what the model
//! is asked, so the listener's own decoders are held against it too. Every answer must be the model's,
//! errors by code and text, and each watch must show exactly what the model says changed.
//!
//! With `SLUICE_FUZZ_ETCD=http://...` the same programs run against that etcd, whose content goes:
//! that is how the model itself was held against the real one.

mod answers;
mod ask;
mod model;
mod transact;
mod watches;
mod wire;

use tokio::runtime::{Builder, Runtime};

use self::ask::Ask;
use self::model::Model;
use self::watches::Watches;
use self::wire::Wire;
use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

/// Requests of one program, on each side of where watches begin.
const ASKS: usize = 24;

pub(crate) fn target() -> Target {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    // One server of real etcd for all inputs; one of ours for each.
    let real = std::env::var("SLUICE_FUZZ_ETCD").ok();
    let real = real.map(|url| runtime.block_on(Wire::connect(&url)));
    Target {
        name: "etcd",
        shape: Shape::program(400),
        seeds: vec![Vec::new()],
        check: Box::new(move |input| check(&runtime, real.as_ref(), input)),
    }
}

fn check(runtime: &Runtime, real: Option<&Wire>, input: &[u8]) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    runtime.block_on(async {
        if let Some(wire) = real {
            let model = wire.emptied().await?;
            let verdict = play(&mut feed, wire, model).await;
            // etcd's check lets two shapes of transactions change a key twice; ours refuses those.
            let is_known = |why: &String| why.contains(model::DUPLICATE_TAKEN);
            return verdict
                .or_else(|why| Some(Verdict::Refused).filter(|_| is_known(&why)).ok_or(why));
        }
        let wire = Wire::start().await;
        let verdict = play(&mut feed, &wire, Model::fresh()).await;
        wire.stop().await;
        verdict
    })
}

async fn play(feed: &mut Feed<'_>, wire: &Wire, mut model: Model) -> Result<Verdict, String> {
    let mut accepted = 0;
    for _ in 0..feed.below(ASKS) {
        accepted += u32::from(step(feed, wire, &mut model, true).await?);
    }
    let mut watches = Watches::open(feed, wire, &model).await?;
    for _ in 0..feed.below(ASKS) {
        // Which of a compaction and a watch comes first would be a race.
        accepted += u32::from(step(feed, wire, &mut model, false).await?);
    }
    if let Some(watches) = &mut watches {
        while watches.want_beyond(model.revision()) {
            let put = Ask::filler();
            accepted += u32::from(put.answered(wire, &mut model).await?);
        }
        watches.all_agree(&model).await?;
    }
    if accepted == 0 {
        return Ok(Verdict::Refused);
    }
    Ok(Verdict::Accepted)
}

/// One request; whether it was done.
async fn step(
    feed: &mut Feed<'_>,
    wire: &Wire,
    model: &mut Model,
    may_compact: bool,
) -> Result<bool, String> {
    let ask = Ask::next(feed, model);
    if matches!(ask, Ask::Compact(_)) && !may_compact {
        return Ok(false);
    }
    // A changed message is still of its kind.
    ask.changed(feed).answered(wire, model).await
}
