//! How often a scenario runs, and with which seeds.

use std::time::{Duration, Instant};

/// Scenarios that share the seconds of a long run.
const SCENARIOS: u32 = 13;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}")),
    )
}

/// Whether this is a run for long, by `make robustness`.
pub(crate) fn is_long() -> bool {
    number("SLUICE_ROBUSTNESS_SECONDS").is_some_and(|seconds| seconds > 0)
}

/// Runs a scenario once, or with one seed after the other until its share of
/// `SLUICE_ROBUSTNESS_SECONDS` is over.
pub(crate) async fn rounds<F, T>(name: &str, mut scenario: F)
where
    F: FnMut(u64) -> T,
    T: Future<Output = ()>,
{
    let seed = number("SLUICE_ROBUSTNESS_SEED").unwrap_or(1);
    let seconds = number("SLUICE_ROBUSTNESS_SECONDS").unwrap_or(0);
    let share = Duration::from_secs(seconds) / SCENARIOS;
    let began = Instant::now();
    for seed in seed.. {
        scenario(seed).await;
        if began.elapsed() >= share {
            let rounds = seed - number("SLUICE_ROBUSTNESS_SEED").unwrap_or(1) + 1;
            println!("{name}: {rounds} rounds in {:?}", began.elapsed());
            return;
        }
    }
}
