//! From a snapshot to a data directory.

use std::collections::HashSet;
use std::path::Path;

use super::contents::{Contents, Row};
use crate::import::{ImportProgress, Standing};
use crate::{Error, Import, Revision};

/// Versions between two reports.
const REPORT_EVERY: u64 = 10_000;

/// How far the revision is raised, so that clients of the lost server never see it go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bump {
    /// Added to the newest revision. When it is not zero, all that was before counts as compacted,
    /// so that watches begin anew.
    pub by: u64,
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Where a store opened on it stands.
    pub revision: Revision,
    /// The least revision that can be read.
    pub compacted: Revision,
    /// Keys, versions, leases, and the number that `HashKV` will answer.
    pub made: ImportProgress,
}

impl Contents {
    /// Makes a data directory of it, all or nothing; `progress` hears versions done and in all.
    /// Blocks.
    ///
    /// # Errors
    /// `Import` when the directory holds anything, or the content is none that a store could have;
    /// `NoSpace`, `Io`.
    pub fn restore(
        &self,
        dir: &Path,
        holder: &str,
        bump: Bump,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Restored, Error> {
        let newest = self.summary().revision;
        let revision = newest.get().checked_add(bump.by).map(Revision::new);
        let revision = revision.ok_or_else(|| Error::Import {
            reason: format!("revision {newest} cannot be raised by {}", bump.by),
        })?;
        let compacted = if bump.by > 0 {
            revision
        } else {
            self.summary().compacted
        };
        let standing = Standing {
            revision,
            compacted,
            next_lease: self.next_lease,
        };
        let mut import = Import::begin(dir, holder, standing)?;
        for (id, ttl) in &self.leases {
            import.lease(*id, *ttl)?;
        }
        for id in &self.gone {
            import.lease_gone(*id)?;
        }
        self.versions(&mut import, compacted, progress)?;
        self.orders(&mut import, compacted)?;
        let made = import.finish()?;
        Ok(Restored {
            revision,
            compacted,
            made,
        })
    }

    fn versions(
        &self,
        import: &mut Import,
        floor: Revision,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let all = self.summary().versions;
        let (mut done, mut told) = (0, 0);
        for rows in self.by_key() {
            let rows_of_key: Vec<&Row> =
                rows.iter().filter_map(|row| self.rows.get(*row)).collect();
            let key = rows.first().map_or(&[][..], |row| self.key(*row));
            for row in readable(&rows_of_key, floor) {
                if row.at.is_deletion {
                    import.delete(key, row.at.revision)?;
                } else {
                    import.put(&self.record(row)?)?;
                }
            }
            done += rows.len() as u64;
            if done - told >= REPORT_EVERY {
                told = done;
                progress(done, all);
            }
        }
        progress(all, all);
        Ok(())
    }

    /// The order of changes within each revision that can be watched.
    fn orders(&self, import: &mut Import, floor: Revision) -> Result<(), Error> {
        let mut at = 0;
        for made in self
            .rows
            .chunk_by(|one, two| one.at.revision == two.at.revision)
        {
            let begin = at;
            at += made.len();
            let revision = made.first().map_or(Revision::ZERO, |row| row.at.revision);
            if made.len() < 2 || revision < floor {
                continue;
            }
            // Where a revision changed a key twice, its last change is the one that was kept.
            let mut met = HashSet::new();
            let newest = (begin..at).rev().map(|row| self.key(row));
            let mut kept: Vec<&[u8]> = newest.filter(|key| met.insert(*key)).collect();
            kept.reverse();
            import.order(revision, &kept)?;
        }
        Ok(())
    }
}

/// The versions of a key that can be read or watched from `floor` on. Of two of one revision, which
/// etcd allows a transaction to make, the last.
fn readable<'a>(rows: &[&'a Row], floor: Revision) -> Vec<&'a Row> {
    let mut kept: Vec<&Row> = Vec::with_capacity(rows.len());
    for row in rows {
        let is_same = |last: &&mut &Row| last.at.revision == row.at.revision;
        if let Some(last) = kept.last_mut().filter(is_same) {
            *last = row;
        } else {
            kept.push(row);
        }
    }
    let seen = kept.partition_point(|row| row.at.revision <= floor);
    let first = match seen.checked_sub(1).and_then(|at| kept.get(at)) {
        Some(row) if row.at.is_deletion && row.at.revision < floor => seen,
        _ => seen.saturating_sub(1),
    };
    kept.split_off(first.min(kept.len()))
}
