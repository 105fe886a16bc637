//! The real binary as a process that is killed without notice, or halted for a while.

use std::time::Duration;

use sluice_e2e::robust::dice::Dice;
use sluice_e2e::robust::run::{Cast, Run};
use sluice_e2e::robust::server::There;

use crate::rounds::rounds;

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_points_take_nothing_away() {
    rounds("kills", async |seed| {
        let dir = tempfile::tempdir().unwrap();
        let mut dice = Dice::new(seed, 10);
        let mut server = There::sluice(dir.path());
        server.start().await;
        let run = Run::start(Cast::new(seed), &server.url);
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(150 + dice.below(500))).await;
            server.kill();
            server.start().await;
            run.moved(&server.url);
            run.probe_floor().await;
        }
        run.advance(20).await;
        let counts = run.finish().await.hold("kills");
        assert!(counts.restarts == 6, "{counts:?}");
    })
    .await;
}

/// A process that is halted answers late, and what it says then is not from before.
#[tokio::test(flavor = "multi_thread")]
async fn a_halted_process_is_only_late() {
    rounds("halts", async |seed| {
        let dir = tempfile::tempdir().unwrap();
        let mut dice = Dice::new(seed, 11);
        let mut server = There::sluice(dir.path());
        server.start().await;
        let run = Run::start(Cast::new(seed), &server.url);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(200 + dice.below(200))).await;
            server
                .halt(Duration::from_millis(300 + dice.below(900)))
                .await;
            run.moved(&server.url);
        }
        run.advance(20).await;
        run.finish().await.hold("halts");
    })
    .await;
}
