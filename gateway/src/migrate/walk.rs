//! Reads every key of some spans, in order, one page ahead of whoever asks.
//!
//! Pages are sized in bytes, not keys: the limit follows from the size of the keys seen so far. At
//! most three pages are in memory: one being read, one waiting, one being looked at. A run of
//! values far larger than those before is met with a smaller limit.

use tokio::sync::mpsc;

use super::MigrateError;
use super::side::{Item, Side, Span};

/// What a page should weigh.
const PAGE_BYTES: usize = 4 << 20;
/// As many keys as kube-apiserver asks for at once.
const PAGE_KEYS: usize = 10_000;
/// Before anything is known of their size.
const PAGE_KEYS_FIRST: usize = 50;
/// What a key weighs beside its bytes, in a message and in memory.
const KEY_OVERHEAD: usize = 64;
/// What the client says of a message above its limit.
const TOO_LARGE: &str = "message length too large";

/// A walk that is going on; dropping it ends it.
pub(super) struct Walk {
    pages: mpsc::Receiver<Result<Vec<Item>, MigrateError>>,
    items: std::vec::IntoIter<Item>,
}

impl Walk {
    /// Begins one over spans that are sorted and do not overlap; keys that begin with `but` are left
    /// out.
    pub(super) fn begin(
        side: Side,
        spans: Vec<Span>,
        at: Option<i64>,
        but: Option<&'static [u8]>,
    ) -> Walk {
        let (sender, pages) = mpsc::channel(1);
        tokio::spawn(async move {
            if let Err(error) = read(&side, spans, at, but, &sender).await {
                // Nobody is there to be told when the walk was dropped.
                let _ = sender.send(Err(error)).await;
            }
        });
        Walk {
            pages,
            items: Vec::new().into_iter(),
        }
    }

    /// The next page, which has keys; `None` at the end.
    pub(super) async fn page(&mut self) -> Result<Option<Vec<Item>>, MigrateError> {
        self.pages.recv().await.transpose()
    }

    /// The next key; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Item>, MigrateError> {
        loop {
            if let Some(item) = self.items.next() {
                return Ok(Some(item));
            }
            match self.page().await? {
                Some(page) => self.items = page.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

async fn read(
    side: &Side,
    spans: Vec<Span>,
    at: Option<i64>,
    but: Option<&[u8]>,
    sender: &mpsc::Sender<Result<Vec<Item>, MigrateError>>,
) -> Result<(), MigrateError> {
    let mut limit = PAGE_KEYS_FIRST;
    for span in spans {
        let mut left = span;
        loop {
            let mut page = match side.page(&left, at, limit).await {
                Ok(page) => page,
                Err(MigrateError::Refused { reason, .. })
                    if reason.contains(TOO_LARGE) && limit > 1 =>
                {
                    limit = (limit / 8).max(1);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(last) = page.items.last() else {
                break;
            };
            left = left.after(&last.key);
            limit = limit_after(&page.items, limit);
            if let Some(but) = but {
                page.items.retain(|item| !item.key.starts_with(but));
            }
            if !page.items.is_empty() && sender.send(Ok(page.items)).await.is_err() {
                return Ok(());
            }
            if !page.more {
                break;
            }
        }
    }
    Ok(())
}

/// How many keys to ask for next; at most four times as many as before.
fn limit_after(items: &[Item], limit: usize) -> usize {
    let bytes: usize = items.iter().map(weight).sum();
    let each = bytes / items.len().max(1);
    (PAGE_BYTES / each.max(1)).clamp(1, PAGE_KEYS.min(limit * 4))
}

/// What a key weighs in a page.
pub(super) fn weight(item: &Item) -> usize {
    item.key.len() + item.value.len() + KEY_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize, bytes: usize) -> Vec<Item> {
        let value = vec![0; bytes].into();
        let item = Item {
            value,
            ..Item::default()
        };
        vec![item; count]
    }

    #[test]
    fn pages_are_sized_in_bytes() {
        assert_eq!(
            limit_after(&items(200, 100), 200),
            800,
            "grows step by step"
        );
        assert_eq!(limit_after(&items(9000, 100), 9000), PAGE_KEYS);
        assert_eq!(limit_after(&items(800, 1 << 20), 800), 3);
        assert_eq!(limit_after(&items(1, 32 << 20), 1), 1);
    }
}
