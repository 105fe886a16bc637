//! A persistent, counted B+tree: copies of it are one pointer, and a change copies only the path to
//! it, and that only where another copy still looks at it.
//!
//! The sequencer changes one copy in place (nodes nobody else holds are not copied again) and hands
//! a copy to readers once a batch, so readers never wait and a batch that came to nothing is undone
//! by going back to the copy before. Each subtree knows its weight (live keys at the newest
//! revision) and its stamp (the newest revision that touched it), so that a count costs a walk only
//! through what changed since the revision asked for.
//!
//! Values lie in the leaves themselves and bring their own keys: what a key costs besides its value
//! is eight bytes of the leaf's notes.
//!
//! It knows nothing of histories or leases: [`Weigh`] and [`Keyed`] are all it asks of a value.

use std::sync::Arc;

use super::heads::Heads;

mod build;

pub(crate) use build::Builder;

/// Values a leaf holds: a copied leaf touches one reference count a value, so leaves are small.
const LEAF_MAX: usize = 16;
/// Children an inner node holds: their separators are shared on copy, so it may be wider.
const INNER_MAX: usize = 32;

/// What the tree sums up about its values.
pub(crate) trait Weigh: Clone {
    /// What the entry counts for at the newest revision.
    fn weight(&self) -> u64;
    /// What the entry counts for at revision `at`.
    fn weight_at(&self, at: u64) -> u64;
    /// The newest revision that touched it; until then its weight is what it is now.
    fn stamp(&self) -> u64;
}

/// A value that has its own key, which never changes while it is in the tree.
pub(crate) trait Keyed {
    /// What it is found by.
    fn key(&self) -> &[u8];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    weight: u64,
    stamp: u64,
}

#[derive(Clone, Debug)]
enum Node<V> {
    Leaf(Leaf<V>),
    Inner(Inner<V>),
}

#[derive(Clone, Debug)]
struct Leaf<V> {
    heads: Heads,
    entries: Vec<V>,
}

#[derive(Clone, Debug)]
struct Inner<V> {
    bounds: Arc<Bounds>,
    children: Vec<Child<V>>,
}

/// Where the children of an inner node part; shared by its copies.
#[derive(Clone, Debug)]
struct Bounds {
    /// Of all keys but the first.
    heads: Heads,
    /// `keys[i]` is no greater than any key of child `i` and greater than any of child `i - 1`;
    /// `keys[0]` is never looked at.
    keys: Vec<Arc<[u8]>>,
}

#[derive(Clone, Debug)]
struct Child<V> {
    node: Arc<Node<V>>,
    summary: Summary,
}

/// The tree; a clone is a view that later changes do not reach.
#[derive(Clone, Debug)]
pub(crate) struct Tree<V> {
    root: Child<V>,
}

impl<V: Weigh + Keyed> Tree<V> {
    pub(crate) fn new() -> Self {
        Tree {
            root: Child::new(Node::Leaf(Leaf::new(Vec::new())), Summary::default()),
        }
    }

    /// The value at exactly this key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        let mut node = self.root.node.as_ref();
        loop {
            match node {
                Node::Inner(inner) => node = inner.children.get(inner.place(key))?.node.as_ref(),
                Node::Leaf(leaf) => {
                    let at = leaf.find(key).ok()?;
                    return leaf.entries.get(at);
                }
            }
        }
    }

    /// Changes the value at `key` in place, or adds the one `change` makes when there is none.
    pub(crate) fn upsert(&mut self, key: &[u8], change: impl FnOnce(Option<&mut V>) -> Option<V>) {
        if let Some((bound, right)) = self.root.upsert(key, change) {
            let least = Arc::from([]);
            let left = std::mem::replace(
                &mut self.root,
                Child::new(Node::Leaf(Leaf::new(Vec::new())), Summary::default()),
            );
            let inner = Inner {
                bounds: Arc::new(Bounds::new(vec![least, bound])),
                children: vec![left, right],
            };
            let summary = inner.summary();
            self.root = Child::new(Node::Inner(inner), summary);
        }
    }

    /// Takes a key out; `false` when it was not there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        self.root.remove(key);
        while let Node::Inner(inner) = self.root.node.as_ref() {
            match inner.children.as_slice() {
                [only] => self.root = only.clone(),
                [] => *self = Tree::new(),
                _ => break,
            }
        }
        true
    }

    /// The weight of all keys from `start` up to `end` (exclusive; `None` is no end) as of `at`.
    pub(crate) fn count(&self, start: &[u8], end: Option<&[u8]>, at: u64) -> u64 {
        if end.is_some_and(|end| end <= start) {
            return 0;
        }
        let start = Some(start).filter(|start| !start.is_empty());
        self.root.count(start, end, at)
    }

    /// Walks from `start` up to `end` in key order, past subtrees in which no key lived at `at`.
    pub(crate) fn range<'a>(&'a self, start: &[u8], end: Option<&'a [u8]>, at: u64) -> Walk<'a, V> {
        let mut walk = Walk {
            above: Vec::new(),
            leaf: [].iter(),
            end,
            at: Some(at),
        };
        walk.seek(&self.root, start);
        walk
    }

    /// Walks over every entry, dead ones too.
    pub(crate) fn iter(&self) -> Walk<'_, V> {
        self.iter_from(b"")
    }

    /// The same from a key on.
    pub(crate) fn iter_from(&self, start: &[u8]) -> Walk<'_, V> {
        let mut walk = self.range(start, None, 0);
        walk.at = None;
        walk
    }
}

impl<V: Weigh + Keyed> Child<V> {
    fn new(node: Node<V>, summary: Summary) -> Self {
        Child {
            node: Arc::new(node),
            summary,
        }
    }

    /// As [`Tree::upsert`]; answers the right half, and its least key, when the node had to split.
    fn upsert(
        &mut self,
        key: &[u8],
        change: impl FnOnce(Option<&mut V>) -> Option<V>,
    ) -> Option<(Arc<[u8]>, Child<V>)> {
        match Arc::make_mut(&mut self.node) {
            Node::Leaf(leaf) => leaf.upsert(&mut self.summary, key, change),
            Node::Inner(inner) => {
                let at = inner.place(key);
                let child = inner.children.get_mut(at)?;
                let before = child.summary.weight;
                let Some((bound, right)) = child.upsert(key, change) else {
                    // The common case, without a look at the other children.
                    let after = child.summary;
                    self.summary.weight = self.summary.weight - before + after.weight;
                    self.summary.stamp = self.summary.stamp.max(after.stamp);
                    return None;
                };
                inner.change_bounds(|keys| keys.insert(at + 1, bound));
                inner.children.insert(at + 1, right);
                let split = inner.split();
                self.summary = inner.summary();
                split
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        match Arc::make_mut(&mut self.node) {
            Node::Leaf(leaf) => {
                if let Ok(at) = leaf.find(key) {
                    let gone = leaf.entries.remove(at);
                    leaf.heads.remove(at);
                    self.summary.weight -= gone.weight();
                }
            }
            Node::Inner(inner) => {
                let at = inner.place(key);
                if let Some(child) = inner.children.get_mut(at) {
                    child.remove(key);
                }
                inner.mend(at);
                self.summary = inner.summary();
            }
        }
    }

    fn count(&self, start: Option<&[u8]>, end: Option<&[u8]>, at: u64) -> u64 {
        if start.is_none() && end.is_none() && self.summary.stamp <= at {
            return self.summary.weight;
        }
        match self.node.as_ref() {
            Node::Leaf(leaf) => leaf
                .entries
                .iter()
                .filter(|entry| start.is_none_or(|start| start <= entry.key()))
                .filter(|entry| end.is_none_or(|end| entry.key() < end))
                .map(|entry| entry.weight_at(at))
                .sum(),
            Node::Inner(inner) => {
                let first = start.map_or(0, |key| inner.place(key));
                let last = end.map_or(inner.children.len(), |key| inner.place(key));
                let within = inner.children.iter().enumerate().skip(first);
                within
                    .take_while(|(place, _)| *place <= last)
                    .map(|(place, child)| {
                        let start = start.filter(|_| place == first);
                        let end = end.filter(|_| place == last);
                        child.count(start, end, at)
                    })
                    .sum()
            }
        }
    }

    fn len(&self) -> usize {
        match self.node.as_ref() {
            Node::Leaf(leaf) => leaf.entries.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    fn max(&self) -> usize {
        match self.node.as_ref() {
            Node::Leaf(_) => LEAF_MAX,
            Node::Inner(_) => INNER_MAX,
        }
    }

    /// Takes in the right neighbour, whose least key is no less than `bound`.
    fn absorb(&mut self, bound: Arc<[u8]>, right: Child<V>) {
        match (Arc::make_mut(&mut self.node), right.node.as_ref()) {
            (Node::Leaf(leaf), Node::Leaf(more)) => {
                leaf.entries.extend(more.entries.iter().cloned());
                leaf.note();
            }
            (Node::Inner(inner), Node::Inner(more)) => {
                inner.change_bounds(|keys| {
                    keys.push(bound);
                    keys.extend(more.bounds.keys.iter().skip(1).cloned());
                });
                inner.children.extend(more.children.iter().cloned());
            }
            // All leaves lie at one depth, so neighbours are of one kind.
            _ => unreachable!("neighbours of different depth"),
        }
        self.summary.weight += right.summary.weight;
        self.summary.stamp = self.summary.stamp.max(right.summary.stamp);
    }
}

impl<V: Weigh + Keyed> Inner<V> {
    /// Which child a key belongs to.
    fn place(&self, key: &[u8]) -> usize {
        let Bounds { heads, keys } = self.bounds.as_ref();
        // The first bound stands for "less than all", whatever it says.
        let at = |place: usize| keys.get(place + 1).map_or(&b""[..], Arc::as_ref);
        match heads.search(key, at) {
            Ok(place) => place + 1,
            Err(below) => below,
        }
    }

    fn change_bounds<T>(&mut self, change: impl FnOnce(&mut Vec<Arc<[u8]>>) -> T) -> T {
        let bounds = Arc::make_mut(&mut self.bounds);
        let answer = change(&mut bounds.keys);
        bounds.heads = Bounds::heads(&bounds.keys);
        answer
    }

    fn summary(&self) -> Summary {
        let mut sum = Summary::default();
        for child in &self.children {
            sum.weight += child.summary.weight;
            sum.stamp = sum.stamp.max(child.summary.stamp);
        }
        sum
    }

    fn split(&mut self) -> Option<(Arc<[u8]>, Child<V>)> {
        if self.children.len() <= INNER_MAX {
            return None;
        }
        let at = self.children.len() / 2;
        let keys = self.change_bounds(|keys| keys.split_off(at));
        let bound = keys.first().cloned()?;
        let right = Inner {
            bounds: Arc::new(Bounds::new(keys)),
            children: self.children.split_off(at),
        };
        let summary = right.summary();
        Some((bound, Child::new(Node::Inner(right), summary)))
    }

    /// After a removal below child `at`: an empty child goes, a small one joins a neighbour.
    fn mend(&mut self, at: usize) {
        let Some(child) = self.children.get(at) else {
            return;
        };
        if child.len() == 0 {
            self.children.remove(at);
            self.change_bounds(|keys| drop(keys.remove(at)));
            return;
        }
        if child.len() > child.max() / 4 {
            return;
        }
        for left in [at.checked_sub(1), Some(at)].into_iter().flatten() {
            let (Some(one), Some(two)) = (self.children.get(left), self.children.get(left + 1))
            else {
                continue;
            };
            if one.len() + two.len() <= one.max() * 3 / 4 {
                let right = self.children.remove(left + 1);
                let bound = self.change_bounds(|keys| keys.remove(left + 1));
                if let Some(child) = self.children.get_mut(left) {
                    child.absorb(bound, right);
                }
                return;
            }
        }
    }
}

impl Bounds {
    fn new(keys: Vec<Arc<[u8]>>) -> Self {
        let heads = Bounds::heads(&keys);
        Bounds { heads, keys }
    }

    fn heads(keys: &[Arc<[u8]>]) -> Heads {
        Heads::of(keys.iter().skip(1).map(Arc::as_ref))
    }
}

impl<V: Weigh + Keyed> Leaf<V> {
    fn new(entries: Vec<V>) -> Self {
        let mut leaf = Leaf {
            heads: Heads::default(),
            entries,
        };
        leaf.note();
        leaf
    }

    fn note(&mut self) {
        self.heads = Heads::of(self.entries.iter().map(Keyed::key));
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let at = |place: usize| match self.entries.get(place) {
            Some(entry) => entry.key(),
            None => &b""[..],
        };
        self.heads.search(key, at)
    }

    fn upsert(
        &mut self,
        summary: &mut Summary,
        key: &[u8],
        change: impl FnOnce(Option<&mut V>) -> Option<V>,
    ) -> Option<(Arc<[u8]>, Child<V>)> {
        match self.find(key) {
            Ok(at) => {
                let value = self.entries.get_mut(at)?;
                let before = value.weight();
                let _unused = change(Some(value));
                summary.weight = summary.weight - before + value.weight();
                summary.stamp = summary.stamp.max(value.stamp());
                None
            }
            Err(at) => {
                let value = change(None)?;
                summary.weight += value.weight();
                summary.stamp = summary.stamp.max(value.stamp());
                self.insert(at, value);
                self.split(at, summary)
            }
        }
    }

    fn insert(&mut self, at: usize, value: V) {
        let other = self.entries.first();
        let is_noted = other.is_some_and(|other| self.heads.insert(at, value.key(), other.key()));
        self.entries.insert(at, value);
        if !is_noted {
            self.note();
        }
    }

    /// Splits a leaf that grew too large at `grown`.
    fn split(&mut self, grown: usize, summary: &mut Summary) -> Option<(Arc<[u8]>, Child<V>)> {
        if self.entries.len() <= LEAF_MAX {
            return None;
        }
        // Keys that come in order leave full leaves behind.
        let is_last = grown + 1 == self.entries.len();
        let cut = if is_last {
            grown
        } else {
            self.entries.len() / 2
        };
        let right = self.entries.split_off(cut);
        // It may stay as it is for good: no room that nothing fills.
        self.entries.shrink_to_fit();
        self.note();
        let bound = Arc::from(right.first()?.key());
        let stamp = right.iter().map(Weigh::stamp).max();
        let moved = Summary {
            weight: right.iter().map(Weigh::weight).sum(),
            stamp: stamp.unwrap_or(0),
        };
        summary.weight -= moved.weight;
        Some((bound, Child::new(Node::Leaf(Leaf::new(right)), moved)))
    }
}

/// A walk in key order.
pub(crate) struct Walk<'a, V> {
    above: Vec<std::slice::Iter<'a, Child<V>>>,
    leaf: std::slice::Iter<'a, V>,
    end: Option<&'a [u8]>,
    /// The revision read, or none to see dead entries too.
    at: Option<u64>,
}

impl<'a, V: Weigh + Keyed> Walk<'a, V> {
    fn seek(&mut self, root: &'a Child<V>, start: &[u8]) {
        let mut node = root.node.as_ref();
        loop {
            match node {
                Node::Inner(inner) => {
                    let mut rest = inner.children.iter();
                    let Some(child) = rest.nth(inner.place(start)) else {
                        return;
                    };
                    self.above.push(rest);
                    node = child.node.as_ref();
                }
                Node::Leaf(leaf) => {
                    let (Ok(skip) | Err(skip)) = leaf.find(start);
                    self.leaf = leaf.entries.get(skip..).unwrap_or_default().iter();
                    return;
                }
            }
        }
    }

    /// The next value, without a look at its key or the end: keys lie elsewhere in memory.
    pub(crate) fn next_value(&mut self) -> Option<&'a V> {
        loop {
            let value = self.leaf.next();
            if value.is_some() || !self.advance() {
                return value;
            }
        }
    }

    /// Moves to the next leaf worth reading; `false` when there is none.
    fn advance(&mut self) -> bool {
        while let Some(level) = self.above.last_mut() {
            let Some(child) = level.next() else {
                self.above.pop();
                continue;
            };
            let summary = child.summary;
            if summary.weight == 0 && self.at.is_some_and(|at| summary.stamp <= at) {
                continue;
            }
            match child.node.as_ref() {
                Node::Inner(inner) => self.above.push(inner.children.iter()),
                Node::Leaf(leaf) => {
                    self.leaf = leaf.entries.iter();
                    return true;
                }
            }
        }
        false
    }
}

impl<'a, V: Weigh + Keyed> Iterator for Walk<'a, V> {
    type Item = (&'a [u8], &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(value) = self.leaf.next() {
                let key = value.key();
                if self.end.is_some_and(|end| end <= key) {
                    self.above.clear();
                    self.leaf = [].iter();
                    return None;
                }
                return Some((key, value));
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
