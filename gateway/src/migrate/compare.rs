//! Reads two sides to the end, side by side, and says whether they hold the same.
//!
//! Of each side one SHA-256 is made, over every key in order: the lengths of key and value (4 bytes
//! each, little-endian), key, value, and where all of it must be the same also create revision, mod
//! revision, version and lease (8 bytes each). Keys on a lease may end on one side before the other
//! where both sides are alive: such keys are compared and not counted in.

use sha2::{Digest as _, Sha256};

use super::MigrateError;
use super::error::shown;
use super::report::Report;
use super::side::Item;
use super::walk::{Walk, weight};

/// How many keys on a lease may be missing before each is a difference: they are kept by name.
const LEASED_MOST: usize = 100_000;
/// Keys between two reports.
const REPORT_EVERY: u64 = 1000;

/// What two sides hold, when it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equal {
    /// SHA-256, hexadecimal, the same of both.
    pub digest: String,
    /// How many keys it is over.
    pub keys: u64,
    /// Keys and values, in bytes.
    pub bytes: u64,
    /// Keys on a lease that were compared one by one.
    pub leased: u64,
}

/// How strictly sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strict {
    /// Everything must be the same.
    Exact,
    /// Keys and values.
    Values,
}

/// A comparison that is going on.
pub(super) struct Compare<'a> {
    strict: Strict,
    report: &'a dyn Report,
    sums: [Sha256; 2],
    keys: u64,
    bytes: u64,
    leased: u64,
    differing: u64,
    first: Option<(String, String)>,
    /// Keys on a lease that only the source has: key and lease.
    missing: Vec<(Vec<u8>, i64)>,
}

impl<'a> Compare<'a> {
    pub(super) fn new(strict: Strict, report: &'a dyn Report) -> Self {
        Compare {
            strict,
            report,
            sums: [Sha256::new(), Sha256::new()],
            keys: 0,
            bytes: 0,
            leased: 0,
            differing: 0,
            first: None,
            missing: Vec::new(),
        }
    }

    /// Reads both to the end. The leases of keys that only the source has, if that may be, are
    /// answered: whether they live on the other side decides.
    pub(super) async fn run(&mut self, left: Walk, right: Walk) -> Result<Vec<i64>, MigrateError> {
        let (mut left, mut right) = (left, right);
        let (mut source, mut other) = (left.next().await?, right.next().await?);
        while source.is_some() || other.is_some() {
            let order = match (&source, &other) {
                (Some(one), Some(two)) => one.key.cmp(&two.key),
                (Some(_), None) => std::cmp::Ordering::Less,
                _ => std::cmp::Ordering::Greater,
            };
            let one = if order.is_le() { source.take() } else { None };
            let two = if order.is_ge() { other.take() } else { None };
            self.look(one.as_ref(), two.as_ref());
            if one.is_some() {
                source = left.next().await?;
            }
            if two.is_some() {
                other = right.next().await?;
            }
        }
        self.report.at(self.keys + self.leased, self.bytes);
        Ok(self.missing.iter().map(|(_, lease)| *lease).collect())
    }

    fn look(&mut self, source: Option<&Item>, other: Option<&Item>) {
        let Some(seen) = source.or(other) else {
            return;
        };
        if (self.keys + self.leased).is_multiple_of(REPORT_EVERY) {
            self.report.at(self.keys + self.leased, self.bytes);
        }
        let loose = self.strict == Strict::Values;
        let is_leased = |item: Option<&Item>| item.is_some_and(|item| item.lease != 0);
        if loose && (is_leased(source) || is_leased(other)) {
            self.leased += 1;
            match (source, other) {
                (Some(one), None) if self.missing.len() < LEASED_MOST => {
                    self.missing.push((one.key.to_vec(), one.lease));
                    return;
                }
                // It ended at the source after the copy: the other side's lease ends by itself.
                (None, Some(_)) => return,
                _ => {}
            }
        } else {
            self.keys += 1;
            self.bytes += weight(seen) as u64;
            for (sum, item) in self.sums.iter_mut().zip([source, other]) {
                if let Some(item) = item {
                    add(sum, item, self.strict);
                }
            }
        }
        if let Some(how) = difference(source, other, self.strict) {
            self.differ(&seen.key, how);
        }
    }

    fn differ(&mut self, key: &[u8], how: String) {
        self.differing += 1;
        self.first.get_or_insert_with(|| (shown(key), how));
    }

    /// The verdict; `lives` says whether a lease lives on the other side.
    ///
    /// # Errors
    /// `Differs` with the first key.
    pub(super) fn verdict(mut self, lives: impl Fn(i64) -> bool) -> Result<Equal, MigrateError> {
        for (key, lease) in std::mem::take(&mut self.missing) {
            if lives(lease) {
                self.differ(&key, "it is missing though its lease lives".to_owned());
            }
        }
        let [left, right] = self.sums.map(|sum| hex(&sum.finalize()));
        match self.first {
            None => Ok(Equal {
                digest: left,
                keys: self.keys,
                bytes: self.bytes,
                leased: self.leased,
            }),
            Some((key, how)) => Err(MigrateError::Differs {
                count: self.differing,
                key,
                how,
                left,
                right,
            }),
        }
    }
}

fn add(sum: &mut Sha256, item: &Item, strict: Strict) {
    for part in [&item.key, &item.value] {
        // A message that held it has lengths of 32 bits.
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        sum.update(length.to_le_bytes());
    }
    sum.update(&item.key);
    sum.update(&item.value);
    if strict == Strict::Exact {
        for number in [
            item.create_revision,
            item.mod_revision,
            item.version,
            item.lease,
        ] {
            sum.update(number.to_le_bytes());
        }
    }
}

fn difference(source: Option<&Item>, other: Option<&Item>, strict: Strict) -> Option<String> {
    let (one, two) = match (source, other) {
        (Some(one), Some(two)) => (one, two),
        (Some(_), None) => return Some("it is missing on the other side".to_owned()),
        (None, _) => return Some("the source does not have it".to_owned()),
    };
    if one.value != two.value {
        let (was, is) = (one.value.len(), two.value.len());
        return Some(format!(
            "its values are not the same ({was} and {is} bytes)"
        ));
    }
    let fields = [
        ("create revision", one.create_revision, two.create_revision),
        ("mod revision", one.mod_revision, two.mod_revision),
        ("version", one.version, two.version),
        ("lease", one.lease, two.lease),
    ];
    let fields = fields.iter().filter(|_| strict == Strict::Exact);
    let (name, was, is) = fields.copied().find(|(_, was, is)| was != is)?;
    Some(format!("its {name} is {was} at the source and {is} here"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
