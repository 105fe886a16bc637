//! A tree made of values that come in key order, from the leaves up.
//!
//! What a checkpoint holds comes so: nothing is searched, nothing is split, and every node is full
//! but for the last ones.

use super::{Arc, Bounds};
use super::{Child, INNER_MAX, Inner, Keyed, LEAF_MAX, Leaf, Node, Summary, Tree, Weigh};

/// A node without a parent yet, with its least key.
type Waiting<V> = (Arc<[u8]>, Child<V>);

/// A tree being made.
#[derive(Debug)]
pub(crate) struct Builder<V> {
    leaf: Vec<V>,
    /// The leaves, then level by level.
    levels: Vec<Vec<Waiting<V>>>,
}

impl<V> Default for Builder<V> {
    fn default() -> Self {
        Builder {
            leaf: Vec::new(),
            levels: Vec::new(),
        }
    }
}

impl<V: Weigh + Keyed> Builder<V> {
    /// Adds a value whose key is greater than all before.
    pub(crate) fn push(&mut self, value: V) {
        if self.leaf.len() >= LEAF_MAX {
            self.end_leaf();
        }
        if self.leaf.capacity() == 0 {
            self.leaf.reserve_exact(LEAF_MAX);
        }
        self.leaf.push(value);
    }

    fn end_leaf(&mut self) {
        let values = std::mem::take(&mut self.leaf);
        if let Some(first) = values.first() {
            let least = Arc::from(first.key());
            let summary = Summary {
                weight: values.iter().map(Weigh::weight).sum(),
                stamp: values.iter().map(Weigh::stamp).max().unwrap_or(0),
            };
            self.add(0, least, Child::new(Node::Leaf(Leaf::new(values)), summary));
        }
    }

    /// Adds a node to a level, and the node that it fills to the next.
    fn add(&mut self, level: usize, least: Arc<[u8]>, child: Child<V>) {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        let Some(waiting) = self.levels.get_mut(level) else {
            return;
        };
        if waiting.len() >= INNER_MAX {
            let full = std::mem::take(waiting);
            waiting.push((least, child));
            self.end_inner(level, full);
        } else {
            waiting.push((least, child));
        }
    }

    fn end_inner(&mut self, level: usize, children: Vec<Waiting<V>>) {
        let (keys, children): (Vec<Arc<[u8]>>, Vec<Child<V>>) = children.into_iter().unzip();
        if let Some(least) = keys.first().cloned() {
            let inner = Inner {
                bounds: Arc::new(Bounds::new(keys)),
                children,
            };
            let summary = inner.summary();
            self.add(level + 1, least, Child::new(Node::Inner(inner), summary));
        }
    }

    /// The tree of all that was added.
    pub(crate) fn finish(mut self) -> Tree<V> {
        self.end_leaf();
        let mut level = 0;
        while let Some(waiting) = self.levels.get_mut(level) {
            let mut rest = std::mem::take(waiting);
            let is_top = level + 1 == self.levels.len();
            match (is_top, rest.pop()) {
                (true, Some((_, root))) if rest.is_empty() => return Tree { root },
                (_, Some(last)) => {
                    rest.push(last);
                    self.end_inner(level, rest);
                }
                (_, None) => {}
            }
            level += 1;
        }
        Tree::new()
    }
}
