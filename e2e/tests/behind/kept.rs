//! What must not have happened whatever was killed: a lease that ran out, another leader, a node
//! that was not ready, a part that ended.

use std::time::Duration;

use sluice_e2e::component::leaders;
use sluice_e2e::renewals::{Renewals, Seen};

use crate::cluster::{Cluster, LEASE};

/// A node is lost when its lease was not renewed for this long.
const NODE_LEASE: Duration = Duration::from_secs(40);

/// What is looked at from a moment on.
pub(crate) struct Kept {
    leaders: Vec<(String, u64)>,
    renewals: Renewals,
    nodes: usize,
}

impl Kept {
    /// Begins to look; all nodes are ready.
    pub(crate) async fn watch(cluster: &Cluster<'_>, nodes: usize) -> Kept {
        Kept {
            leaders: leaders(&cluster.front).await,
            // As new as the newest write, by whichever apiserver.
            renewals: Renewals::watch(&cluster.front, ""),
            nodes,
        }
    }

    /// Ends.
    pub(crate) async fn check(self, cluster: &mut Cluster<'_>) {
        let seen: Seen = self.renewals.stop().await;
        for (lease, renewed) in seen.of_leaders() {
            println!("{lease}: {renewed:?}");
            let worst = renewed.apart_max;
            assert!(renewed.count > 5 && worst < LEASE * 4 / 5, "{lease}");
        }
        let worst = seen.nodes_apart_max();
        println!("{} nodes' leases: at most {worst:?} apart", self.nodes);
        assert_eq!(seen.of_nodes().len(), self.nodes);
        assert!(worst < NODE_LEASE, "a node's lease: {worst:?}");
        let none = Vec::<String>::new();
        assert_eq!(seen.unready, none, "nodes that were not ready");
        assert_eq!(leaders(&cluster.front).await, self.leaders, "leaders");
        assert_eq!(cluster.ended(), none, "parts that ended");
        let log = std::fs::read_to_string(cluster.stack.dir.join("sluice.log")).unwrap();
        assert!(!log.contains("panic"), "{log}");
    }
}
