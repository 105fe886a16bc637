//! The tree against a sorted map, its copies, and what a walk may leave out.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Item {
    key: Vec<u8>,
    live: bool,
    stamp: u64,
}

impl Weigh for Item {
    fn weight(&self) -> u64 {
        u64::from(self.live)
    }
    fn weight_at(&self, at: u64) -> u64 {
        u64::from(self.live && self.stamp <= at)
    }
    fn stamp(&self) -> u64 {
        self.stamp
    }
}

impl Keyed for Item {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

fn put(tree: &mut Tree<Item>, item: Item) {
    let key = item.key.clone();
    tree.upsert(&key, |present| match present {
        Some(value) => {
            *value = item;
            None
        }
        None => Some(item),
    });
}

fn check_depth(node: &Node<Item>) -> usize {
    match node {
        Node::Leaf(leaf) => {
            assert!(leaf.entries.len() <= LEAF_MAX);
            0
        }
        Node::Inner(inner) => {
            assert_eq!(inner.bounds.keys.len(), inner.children.len());
            assert!(inner.children.len() <= INNER_MAX);
            let depths: Vec<usize> = inner
                .children
                .iter()
                .map(|child| check_depth(&child.node))
                .collect();
            assert!(depths.windows(2).all(|pair| pair[0] == pair[1]));
            depths[0] + 1
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, bool),
    Remove(u16),
    RemoveRange(u16, u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u16..2000, prop::bool::weighted(0.8)).prop_map(|(k, l)| Step::Put(k, l)),
        2 => (0u16..2000).prop_map(Step::Remove),
        1 => (0u16..2000, 0u16..600).prop_map(|(k, n)| Step::RemoveRange(k, n)),
    ]
}

fn key(number: u16) -> [u8; 2] {
    number.to_be_bytes()
}

fn item(number: u16, live: bool, stamp: u64) -> Item {
    let key = key(number).to_vec();
    Item { key, live, stamp }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_an_ordered_map(
        steps in prop::collection::vec(step(), 1..1500),
        probes in prop::collection::vec((0u16..2100, 0u16..2100), 20),
    ) {
        let mut tree = Tree::new();
        let mut model: BTreeMap<Vec<u8>, Item> = BTreeMap::new();
        let mut kept = Vec::new();
        for (stamp, step) in steps.iter().enumerate() {
            let stamp = stamp as u64 + 1;
            match step {
                Step::Put(number, live) => {
                    let item = item(*number, *live, stamp);
                    put(&mut tree, item.clone());
                    model.insert(key(*number).to_vec(), item);
                }
                Step::Remove(number) => {
                    let was = model.remove(key(*number).as_slice()).is_some();
                    prop_assert_eq!(tree.remove(&key(*number)), was);
                }
                Step::RemoveRange(from, n) => {
                    for number in *from..from.saturating_add(*n) {
                        tree.remove(&key(number));
                        model.remove(key(number).as_slice());
                    }
                }
            }
            if stamp.is_multiple_of(400) {
                kept.push((tree.clone(), model.clone()));
            }
        }
        kept.push((tree, model));
        let newest = steps.len() as u64 + 1;
        for (tree, model) in &kept {
            check_depth(&tree.root.node);
            let all: Vec<_> = tree.iter().map(|(k, v)| (k.to_vec(), v.clone())).collect();
            prop_assert_eq!(&all, &model.clone().into_iter().collect::<Vec<_>>());
            for (one, two) in &probes {
                let (start, end) = (key(*one), key(*two));
                let inside = |k: &Vec<u8>| k.as_slice() >= start.as_slice() && k.as_slice() < end.as_slice();
                for at in [newest, newest / 2, 3] {
                    let live = model.iter().filter(|(k, v)| inside(k) && v.live && v.stamp <= at);
                    let count = live.clone().count() as u64;
                    prop_assert_eq!(tree.count(&start, Some(&end), at), count);
                    let walked = tree.range(&start, Some(&end), at).filter(|(_, v)| v.live && v.stamp <= at);
                    prop_assert!(walked.map(|(k, _)| k.to_vec()).eq(live.map(|(k, _)| k.clone())));
                }
                prop_assert_eq!(tree.get(&start), model.get(start.as_slice()));
            }
            let total = model.values().filter(|v| v.live).count() as u64;
            prop_assert_eq!(tree.count(b"", None, newest), total);
        }
    }
}

#[test]
fn a_tree_of_sorted_values_is_one_that_grew() {
    for count in [0u16, 1, 15, 16, 17, 512, 513, 16 * 32 * 3 + 1, 20_000] {
        let mut builder = Builder::default();
        let mut grown = Tree::new();
        for number in 0..count {
            let item = item(number, number % 3 > 0, u64::from(number));
            builder.push(item.clone());
            put(&mut grown, item);
        }
        let mut built = builder.finish();
        check_depth(&built.root.node);
        assert_eq!(built.root.summary, grown.root.summary, "{count}");
        assert!(built.iter().eq(grown.iter()), "{count}");
        for number in (0..count).step_by(7) {
            assert_eq!(built.get(&key(number)), grown.get(&key(number)));
            assert_eq!(
                built.count(&key(number), None, 99),
                grown.count(&key(number), None, 99)
            );
            put(&mut built, item(number, true, 1 << 40));
            assert!(built.remove(&key(number)));
        }
        check_depth(&built.root.node);
        assert_eq!(
            built.iter().count(),
            usize::from(count) - usize::from(count).div_ceil(7)
        );
    }
}

#[test]
fn a_copy_keeps_what_it_saw() {
    let mut tree = Tree::new();
    for number in 0..1000u16 {
        put(&mut tree, item(number, true, 1));
    }
    let copy = tree.clone();
    for number in 0..1000u16 {
        tree.remove(&key(number));
    }
    assert_eq!(tree.iter().count(), 0);
    assert_eq!(copy.count(b"", None, 1), 1000);
}

#[test]
fn a_walk_passes_dead_subtrees() {
    let mut tree = Tree::new();
    for number in 0..2000u16 {
        let live = !(10..=1990).contains(&number);
        put(&mut tree, item(number, live, 1));
    }
    // Leaves are pruned as a whole: at most the dead of the leaves at both edges are seen.
    let walked = tree.range(b"", None, 1).count();
    assert!(walked < 19 + 2 * LEAF_MAX, "walked {walked}");
}
