//! What users ask of the cluster, with an apiserver killed in each round of it.

use std::time::{Duration, Instant};

use sluice_e2e::process::{Process, eventually};
use sluice_e2e::workload::{
    define_gadgets, ended_well, informer, nodes_become_ready, running, written,
};

use crate::audit;
use crate::cluster::{Cluster, LIMIT};
use crate::kept::Kept;
use crate::kubelets::Kubelets;

const NODES: usize = 50;
const PODS: usize = 200;
/// Writes of each informer client, and how many of them before an apiserver is killed.
const WRITES: usize = 900;
const BEFORE_KILL: usize = 300;
/// Kinds that each informer client follows.
const INFORMERS: u64 = 3;
/// From one kill to the next at least.
const BETWEEN_KILLS: Duration = Duration::from_secs(20);

/// Everything, with a round for each of `victims`; answers how many lists informers made beside
/// their first ones.
pub(crate) async fn all(cluster: &mut Cluster<'_>, victims: &[usize]) -> u64 {
    let began = Instant::now();
    nodes_become_ready(&cluster.front, &cluster.kubectl, NODES).await;
    println!("{:>6.1?}  {NODES} nodes are ready", began.elapsed());
    let kept = Kept::watch(cluster, NODES).await;
    let _kubelets = Kubelets::ask_again(&cluster.front);
    let calm = audit::now(cluster);
    let replicas = format!("--replicas={PODS}");
    let create = ["create", "deployment", "web", "--image=web:1", &replicas];
    cluster.kubectl.ok(&create);
    running(&cluster.front, "web:1", PODS).await;
    println!("{:>6.1?}  {PODS} pods run", began.elapsed());
    audit::since(cluster, calm).is_even(cluster.stack.apiservers.len());
    define_gadgets(&cluster.front).await;
    let mut lists = 0;
    for (n, victim) in victims.iter().enumerate() {
        let round = Instant::now();
        lists += update_while_killed(cluster, n, *victim).await;
        println!("{:>6.1?}  update {n} is through", began.elapsed());
        if n + 1 < victims.len() {
            tokio::time::sleep(BETWEEN_KILLS.saturating_sub(round.elapsed())).await;
        }
    }
    kept.check(cluster).await;
    audit::since(cluster, 0).names_everybody();
    println!("{:>6.1?}  in all, {lists} lists anew", began.elapsed());
    lists
}

/// A rolling update, and informers and writers in two namespaces that end with all in them, while
/// an apiserver is killed and comes back.
async fn update_while_killed(cluster: &mut Cluster<'_>, n: usize, victim: usize) -> u64 {
    gadgets_are_cached(cluster).await;
    let spaces = [format!("streamed-{n}"), format!("listed-{n}")];
    let mut clients: Vec<Process> = Vec::new();
    for (space, streams) in spaces.iter().zip(["true", "false"]) {
        cluster.kubectl.ok(&["create", "namespace", space]);
        let (dir, config) = (&cluster.stack.dir, &cluster.kubectl.config);
        clients.push(informer(cluster.parts, dir, config, space, streams, WRITES));
    }
    let image = format!("web:{}", n + 2);
    let set = format!("web={image}");
    cluster
        .kubectl
        .ok(&["set", "image", "deployment/web", &set]);
    for client in &clients {
        written(client, BEFORE_KILL).await;
    }
    cluster.kill(victim).await;
    let mut lists = 0;
    for client in &mut clients {
        let asked = ended_well(client);
        println!("informers: {asked:?}");
        lists += asked.lists + asked.streamed - INFORMERS;
    }
    running(&cluster.front, &image, PODS).await;
    let [first, second] = &spaces;
    let delete = ["delete", "namespace", first, second, "--timeout=120s"];
    cluster.kubectl.ok(&delete);
    lists
}

/// An apiserver makes a custom kind's watch cache when it is first asked for it, and says 429 until
/// it is there; whoever asks again then has made no list for the sake of a kill.
async fn gadgets_are_cached(cluster: &Cluster<'_>) {
    let path = "/apis/example.com/v1/namespaces/default/gadgets?resourceVersion=0";
    let filled = "apiserver_watch_cache_initializations_total";
    for apiserver in &cluster.stack.apiservers {
        eventually("the custom kind to be cached", LIMIT, || async {
            let answer = apiserver.direct.once("GET", path, "").await;
            let status = answer.map_err(|e| e.to_string())?.status;
            let times = apiserver.counter(filled, &["resource=\"gadgets\""]).await;
            (status == 200 && times > 0.0)
                .then_some(())
                .ok_or(format!("{status}, filled {times} times"))
        })
        .await;
    }
}
