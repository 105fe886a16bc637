//! The whole server in this process, over a disk in memory that loses, tears, refuses and waits.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use sluice_e2e::history::{Call, Delete, History, Outcome, Put, Request};
use sluice_e2e::process::eventually;
use sluice_e2e::robust::client::Client;
use sluice_e2e::robust::crash::{Crash, slow};
use sluice_e2e::robust::dice::Dice;
use sluice_e2e::robust::run::{Cast, Run};
use sluice_e2e::robust::server::{Here, Room, open, try_open};
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, On, Survival};
use sluice_metastore::events::Watch;
use sluice_metastore::read::Range;
use sluice_metastore::{ErrorKind as StoreError, KeyRange, Store};

use crate::rounds::rounds;

/// Less than one of fifty values weighs.
const SMALL_MEMORY: usize = 16 << 10;
/// Passed by some segments and a checkpoint of what traffic leaves.
const SMALL_QUOTA: u64 = 40 << 10;
/// How often it is filled, and emptied again.
const ROUNDS: usize = 3;
/// Some of these fill it.
const FILLING: u64 = 4000;
/// Steps of the disk that a commit can have: a write and a sync, or those of a new segment before
/// them; and the steps of a checkpoint and a trim in between.
const CRASHES: u64 = 40;
/// The longest torn tail that is looked at byte by byte.
const TORN_MAX: usize = 1500;
/// Bits flipped, one an image.
const FLIPS: usize = 150;
const PATIENCE: Duration = Duration::from_secs(60);

async fn wait(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

async fn serve(disk: &FaultyDisk) -> Here {
    Here::start(Arc::new(disk.clone()), Room::default()).await
}

/// Without large values, where an image of the disk is looked at many times.
fn small(seed: u64) -> Cast {
    Cast {
        large_every: 0,
        ..brisk(seed)
    }
}

fn brisk(seed: u64) -> Cast {
    Cast {
        pace: Duration::from_millis(2),
        ..Cast::new(seed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_faults_every_guarantee_holds() {
    rounds("without faults", async |seed| {
        let server = serve(&FaultyDisk::new()).await;
        let run = Run::start(Cast::new(seed), &server.url);
        wait(3000).await;
        run.advance(20).await;
        let counts = run.finish().await.hold("without faults");
        assert!(counts.compactions > 0 && counts.notices > 0, "{counts:?}");
        server.close().await;
    })
    .await;
}

/// Every step of a commit, of a new segment, of a checkpoint and of a trim, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_every_step_takes_nothing_away() {
    rounds("crash at every step", async |seed| {
        let mut dice = Dice::new(seed, 1);
        let mut disk = FaultyDisk::new();
        let mut server = serve(&disk).await;
        let run = Run::start(brisk(seed), &server.url);
        wait(300).await;
        for step in 0..CRASHES {
            let survival = match dice.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                2 => Survival::Bytes(usize::try_from(dice.below(600)).unwrap()),
                _ => Survival::Sectors(dice.draw()),
            };
            let mut crash = Crash::after(&disk, step, vec![survival]);
            let image = crash.images(PATIENCE).await.pop().unwrap();
            server.vanish().await;
            crash.let_go();
            disk = image;
            server = serve(&disk).await;
            run.moved(&server.url);
            run.probe_floor().await;
        }
        run.advance(20).await;
        let counts = run.finish().await.hold("crash at every step");
        assert!(counts.restarts == 40, "{counts:?}");
        server.close().await;
    })
    .await;
}

/// All that a store shows: where it stands, what it holds, and every event from its floor on.
fn shown(store: &Store) -> (u64, String, Vec<String>) {
    let all = store.range(&Range::of(KeyRange::All)).unwrap();
    let mut watcher = store
        .watch(Watch {
            range: KeyRange::All,
            start: Some(store.compacted()),
            want_previous: false,
        })
        .unwrap();
    let mut events = Vec::new();
    while let Some(batch) = watcher.poll_now().unwrap() {
        events.extend(
            batch
                .events
                .iter()
                .map(|event| format!("{:?}", event.change)),
        );
    }
    let floor = store.compacted();
    let content = format!("{floor} {:?} {:?}", all.records, store.leases());
    (store.revision().get(), content, events)
}

/// With nearly all values on the disk alone, which crashes and checkpoints move about.
#[tokio::test(flavor = "multi_thread")]
async fn values_that_left_the_memory_are_read_back_right() {
    rounds("cold values", async |seed| {
        let room = Room {
            memory_bytes: Some(SMALL_MEMORY),
            ..Room::default()
        };
        let mut dice = Dice::new(seed, 5);
        let mut disk = FaultyDisk::new();
        let mut server = Here::start(Arc::new(disk.clone()), room).await;
        let run = Run::start(brisk(seed), &server.url);
        for _ in 0..6 {
            run.advance(40).await;
            let mut crash = Crash::after(&disk, dice.below(40), vec![Survival::Nothing]);
            let image = crash.images(PATIENCE).await.pop().unwrap();
            server.vanish().await;
            crash.let_go();
            disk = image;
            server = Here::start(Arc::new(disk.clone()), room).await;
            run.moved(&server.url);
            run.probe_floor().await;
        }
        run.advance(40).await;
        run.finish().await.hold("cold values");
        server.close().await;
    })
    .await;
}

/// What the segments of the log hold.
fn log_bytes(disk: &FaultyDisk) -> Vec<Vec<u8>> {
    let names = disk.names().into_iter();
    let segments = names.filter(|name| name.ends_with(".log"));
    segments.filter_map(|name| disk.content(&name)).collect()
}

/// The image of one write torn at each of its bytes opens as if it had been whole or not been, and
/// a run that goes on from one of them holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_tail_torn_at_any_byte_is_cut_whole() {
    rounds("torn tail", async |seed| {
        let mut dice = Dice::new(seed, 2);
        let mut disk = FaultyDisk::new();
        let mut server = serve(&disk).await;
        let run = Run::start(small(seed), &server.url);
        let images = loop {
            wait(200).await;
            let torn = (0..TORN_MAX).map(Survival::Bytes);
            let ways = [Survival::Nothing, Survival::Everything].into_iter();
            let mut crash = Crash::after(&disk, dice.below(20), ways.chain(torn).collect());
            let mut images = crash.images(PATIENCE).await;
            server.vanish().await;
            crash.let_go();
            if log_bytes(&images[0]) != log_bytes(&images[1]) {
                break images;
            }
            // Nothing of the log was on its way: on to another step.
            disk = images.swap_remove(1);
            server = serve(&disk).await;
            run.moved(&server.url);
        };
        let chosen = usize::try_from(dice.below(images.len() as u64)).unwrap();
        // Opening is a write of its own: the run goes on from an image nobody has looked at.
        let copy = images[chosen].power_cut(Survival::Everything);
        let outcomes = tokio::task::spawn_blocking(move || {
            let open = |image: &FaultyDisk| shown(&open(Arc::new(image.clone()), Room::default()));
            let (without, with) = (open(&images[0]), open(&images[1]));
            let mut last = Vec::new();
            for (bytes, image) in images[2..].iter().enumerate() {
                let content = image
                    .names()
                    .iter()
                    .map(|name| image.content(name))
                    .collect();
                if last == content {
                    // The write was shorter than this.
                    break;
                }
                last = content;
                let found = open(image);
                assert!(
                    found == without || found == with,
                    "seed {seed}, torn at {bytes}"
                );
            }
            (without.0, with.0)
        });
        println!("torn: {:?}", outcomes.await.unwrap());
        let server = serve(&copy).await;
        run.moved(&server.url);
        wait(200).await;
        run.finish().await.hold("torn tail");
        server.close().await;
    })
    .await;
}

/// A flipped bit is refused, or it was of no meaning, or it is in the last write of a log that
/// nobody closed, which is then cut: never is anything shown that was not written.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_never_served() {
    rounds("bit flips", async |seed| {
        let mut dice = Dice::new(seed, 3);
        let disk = FaultyDisk::new();
        let server = serve(&disk).await;
        let run = Run::start(small(seed), &server.url);
        wait(700).await;
        let mut crash = Crash::after(&disk, 5, vec![Survival::Everything]);
        let image = crash.images(PATIENCE).await.pop().unwrap();
        server.vanish().await;
        crash.let_go();
        let copy = image.power_cut(Survival::Everything);
        let judged = tokio::task::spawn_blocking(move || {
            let whole = shown(&open(
                Arc::new(image.power_cut(Survival::Everything)),
                Room::default(),
            ));
            let (mut refused, mut same) = (0, 0);
            for _ in 0..FLIPS {
                let damaged = image.power_cut(Survival::Everything);
                let names: Vec<String> = damaged
                    .names()
                    .into_iter()
                    .filter(|n| n != "sluice.lock")
                    .collect();
                let name = dice.pick(&names).unwrap();
                let mut content = damaged.content(name).unwrap();
                let bit = dice.below(content.len() as u64 * 8);
                let byte = usize::try_from(bit / 8).unwrap();
                content[byte] ^= 1 << (bit % 8);
                damaged.put(name, content);
                match try_open(Arc::new(damaged), Room::default()) {
                    Err(error) => {
                        assert_eq!(error.kind(), StoreError::Corrupt, "{error}");
                        refused += 1;
                    }
                    Ok(store) => {
                        let found = shown(&store);
                        same += usize::from(found == whole);
                        assert!(
                            found == whole || (found.0 < whole.0 && whole.2.starts_with(&found.2)),
                            "seed {seed}: bit {bit} of {name} shows what was never written"
                        );
                    }
                }
            }
            (refused, same)
        });
        let (refused, same) = judged.await.unwrap();
        println!("bit flips seed={seed}: {refused} refused, {same} of no meaning, of {FLIPS}");
        assert!(refused > 0);
        let server = serve(&copy).await;
        run.moved(&server.url);
        run.finish().await.hold("bit flips");
        server.close().await;
    })
    .await;
}

/// A sync that fails once ends all writing: what the disk made of it shows the next process.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_acknowledges_nothing_more() {
    rounds("failed sync", async |seed| {
        let mut dice = Dice::new(seed, 4);
        let mut disk = FaultyDisk::new();
        let mut server = serve(&disk).await;
        let run = Run::start(brisk(seed), &server.url);
        for round in 0..3 {
            wait(250).await;
            let skip = usize::try_from(dice.below(12)).unwrap();
            let on = if round == 1 { On::Write } else { On::Sync };
            disk.fail(on, ".log", skip, ErrorKind::Other);
            let store = server.store.clone();
            let stopped = async {
                while store.failure().is_none() {
                    wait(5).await;
                }
            };
            tokio::time::timeout(PATIENCE, stopped).await.unwrap();
            drop(store);
            // Reads go on, and nothing that was not durable shows.
            wait(150).await;
            let survival = if dice.chance(50) {
                Survival::Nothing
            } else {
                Survival::Sectors(dice.draw())
            };
            let image = disk.power_cut(survival);
            server.vanish().await;
            disk = image;
            server = serve(&disk).await;
            run.moved(&server.url);
            run.probe_floor().await;
        }
        run.advance(20).await;
        let counts = run.finish().await.hold("failed sync");
        assert!(counts.unknown > 0, "{counts:?}");
        server.close().await;
    })
    .await;
}

/// Calls that were refused for want of space.
fn refused(history: &History) -> Vec<&Call> {
    let full = |text: &str| text.ends_with("database space exceeded");
    let is_full = |call: &&Call| matches!(&call.outcome, Outcome::Refused(one) if full(&one.text));
    history.calls.iter().filter(is_full).collect()
}

/// Puts large values until one is taken, or until one is not.
async fn put_until(client: &mut Client, taken: bool) {
    let puts = async {
        loop {
            let value = client.tape().large(4000);
            let key = "/large".to_owned();
            let put = Put {
                key,
                value,
                ..Put::default()
            };
            if client.ask(Request::Put(put)).await.is_some() == taken {
                return;
            }
        }
    };
    let done = tokio::time::timeout(PATIENCE, puts).await;
    assert!(done.is_ok(), "no put was answered so: taken={taken}");
}

/// A disk without room refuses writes, and takes them again once there is some.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_then_goes_on() {
    rounds("full disk", async |seed| {
        let disk = FaultyDisk::new();
        let server = serve(&disk).await;
        let run = Run::start(small(seed), &server.url);
        let mut client = run.client();
        for _ in 0..2 {
            wait(200).await;
            let contents = disk.names().into_iter();
            let contents = contents.filter_map(|name| disk.content(&name));
            disk.set_room(Some(contents.map(|one| one.len()).sum::<usize>() + 2000));
            put_until(&mut client, false).await;
            wait(300).await;
            disk.set_room(None);
            put_until(&mut client, true).await;
        }
        let verdict = run.finish().await;
        verdict.hold("full disk");
        assert!(refused(&verdict.history).len() >= 2);
        server.close().await;
    })
    .await;
}

/// Puts twice what there is room for, key by key: values that no compaction may let go, however
/// fast it is beside a slow client.
async fn fill(client: &mut Client) {
    for n in 0..2 * SMALL_QUOTA / FILLING {
        let put = Put {
            key: format!("/filling/{n:03}"),
            value: client.tape().large(FILLING),
            ..Put::default()
        };
        client.ask(Request::Put(put)).await;
    }
}

/// Deletes what filled the store and compacts the history of that.
async fn empty(run: &Run, client: &mut Client) {
    let delete = Delete {
        key: "/filling/".to_owned(),
        end: "/filling0".to_owned(),
        ..Delete::default()
    };
    let deleting = async {
        loop {
            if let Some(reply) = client.ask(Request::Delete(delete.clone())).await {
                return reply.revision;
            }
        }
    };
    let deleted = tokio::time::timeout(PATIENCE, deleting).await;
    let at = deleted.expect("a full store takes deletes");
    // What the recorder has not seen must not go.
    eventually("the recorder to see the delete", PATIENCE, async || {
        let reach = run.tape.reach();
        (reach >= at)
            .then_some(())
            .ok_or(format!("{reach} of {at}"))
    })
    .await;
    // Refused where the traffic's own compaction came first.
    client.ask(Request::Compact(at)).await;
}

/// Above the quota what puts is refused, and nothing else: deletions and compaction go on, and make
/// room by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_refuses_puts_alone() {
    rounds("full quota", async |seed| {
        let server = Here::start(
            Arc::new(FaultyDisk::new()),
            Room {
                quota_bytes: SMALL_QUOTA,
                ..Room::default()
            },
        )
        .await;
        let run = Run::start(small(seed), &server.url);
        let mut client = run.client();
        for _ in 0..ROUNDS {
            fill(&mut client).await;
            wait(100).await;
            empty(&run, &mut client).await;
            put_until(&mut client, true).await;
        }
        let verdict = run.finish().await;
        verdict.hold("full quota");
        let refused = refused(&verdict.history);
        assert!(refused.len() >= ROUNDS, "{}", refused.len());
        let wrong = refused.iter().find(|call| {
            matches!(
                call.request,
                Request::Delete(_) | Request::Compact(_) | Request::Revoke { .. }
            )
        });
        assert!(wrong.is_none(), "{}", wrong.unwrap());
        server.close().await;
    })
    .await;
}

/// Slow and stuck: answers come late or not at all, and are right.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_disk_is_only_slow() {
    rounds("slow disk", async |seed| {
        let disk = FaultyDisk::new();
        let server = serve(&disk).await;
        let run = Run::start(brisk(seed), &server.url);
        for millis in [10, 60, 400] {
            slow(&disk, Duration::from_millis(millis));
            wait(800).await;
        }
        disk.observe(None);
        run.advance(20).await;
        run.finish().await.hold("slow disk");
        server.close().await;
    })
    .await;
}

/// Many watches on one stream that is read slowly, while history is compacted behind them.
#[tokio::test(flavor = "multi_thread")]
async fn a_starved_stream_loses_nothing_in_silence() {
    rounds("starved stream", async |seed| {
        let server = serve(&FaultyDisk::new()).await;
        let cast = Cast {
            crowd: 120,
            newcomers: 120,
            large_every: 0,
            kubernetes: 1,
            leases: 1,
            etcd: 8,
            ..Cast::new(seed)
        };
        let run = Run::start(cast, &server.url);
        wait(1500).await;
        run.advance(20).await;
        let counts = run.finish().await.hold("starved stream");
        assert!(counts.events > 1000, "{counts:?}");
        server.close().await;
    })
    .await;
}
