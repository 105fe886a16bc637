//! Files that are cut, flipped or made up: each is refused, and nothing is made of it.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use sluice_metastore::Error;
use sluice_metastore::backup::{Bump, Contents, HashCheck};

use super::common::*;

/// What a look at these bytes says.
fn look(file: &Path, bytes: &[u8]) -> Result<Contents, Error> {
    std::fs::write(file, bytes).unwrap();
    read(file)
}

fn reason(outcome: Result<Contents, Error>) -> String {
    match outcome {
        Err(Error::Corrupt { reason }) => reason,
        Err(other) => panic!("{other}"),
        Ok(contents) => panic!("taken for whole: {:?}", contents.summary()),
    }
}

fn offset(reason: &str) -> usize {
    let (_, rest) = reason.split_once("at offset=").unwrap();
    rest.split_once(':').unwrap().0.parse().unwrap()
}

async fn snapshot(dir: &Path) -> Vec<u8> {
    let file = dir.join("whole");
    save(&lived_in().await, &file);
    std::fs::read(file).unwrap()
}

#[tokio::test]
async fn a_cut_file_is_refused_at_every_boundary() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cut");
    let whole = snapshot(dir.path()).await;
    let boundaries = (0..whole.len())
        .step_by(512)
        .flat_map(|at| [at, at + 32, at + 33]);
    for length in boundaries
        .chain([whole.len() - 1])
        .filter(|n| *n < whole.len())
    {
        let reason = reason(look(&file, &whole[..length]));
        assert!(reason.contains("offset="), "{length}: {reason}");
    }
    let mut longer = whole.clone();
    longer.extend_from_slice(&[0; 512]);
    reason(look(&file, &longer));
}

#[tokio::test]
async fn every_flipped_bit_is_found_and_its_place_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flipped");
    let whole = snapshot(dir.path()).await;
    let block = 64 * 4096;
    let mut named = 0;
    for place in (0..whole.len())
        .step_by(997)
        .chain(0..160)
        .chain([whole.len() - 1])
    {
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (place % 8);
        let reason = reason(look(&file, &damaged));
        let at = offset(&reason);
        if reason.contains("bytes from here on") {
            assert!((at..at + block).contains(&place), "{place}: {reason}");
            named += 1;
        }
    }
    assert!(named > 100, "only {named} were named");
}

/// As a hostile or unlucky writer would: the checksum at the end is right, the content is not.
#[tokio::test]
async fn content_is_not_trusted_for_its_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forged");
    let whole = snapshot(dir.path()).await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut refused, mut taken) = (0, 0);
    for round in 0..400 {
        let mut forged = whole[..whole.len() - 32].to_vec();
        for _ in 0..=next() % 4 {
            // Headers and elements mostly, where a number can mislead.
            let page = usize::try_from(next()).unwrap_or(0) % (forged.len() / 4096);
            let place = page * 4096 + usize::try_from(next() % 300).unwrap();
            forged[place] = u8::try_from(next() & 0xff).unwrap();
        }
        let sha = Sha256::digest(&forged);
        forged.extend_from_slice(&sha);
        let data = dir.path().join(format!("data-{round}"));
        let outcome = look(&file, &forged)
            .and_then(|contents| contents.restore(&data, "test", Bump::default(), &mut |_, _| {}));
        match outcome {
            Ok(made) => {
                // Other content, yet some store's: it opens and stands where it was said to.
                assert_eq!(open(&data).revision(), made.revision);
                taken += 1;
            }
            Err(Error::Corrupt { .. } | Error::Import { .. }) => {
                let left = data.exists() && std::fs::read_dir(&data).unwrap().next().is_some();
                assert!(!left, "round {round} left something behind");
                refused += 1;
            }
            Err(other) => panic!("round {round}: {other}"),
        }
    }
    assert!(
        refused > 100 && taken > 0,
        "{refused} refused, {taken} taken"
    );
}

#[test]
fn other_files_are_told_from_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other");
    let pages = vec![7; 8192];
    for bytes in [&b""[..], b"hello", &pages, &pages[..4096 + 32]] {
        let reason = reason(look(&file, bytes));
        assert!(reason.contains("another snapshot"), "{reason}");
    }
    let missing = read(&dir.path().join("none")).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    assert!(missing.to_string().contains("none"), "{missing}");
}

#[tokio::test]
async fn a_database_without_its_checksum_is_taken_only_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("db");
    let whole = snapshot(dir.path()).await;
    // As a server's own file, which is longer than what it uses.
    let mut database = whole[..whole.len() - 32].to_vec();
    database.resize(database.len() + (64 << 10), 0);
    let reason = reason(look(&file, &database));
    assert!(reason.contains("--skip-hash-check"), "{reason}");
    let contents = Contents::read(&file, HashCheck::Skipped, &mut |_, _| {}).unwrap();
    assert_eq!(contents.summary().total_keys, 121);
}
