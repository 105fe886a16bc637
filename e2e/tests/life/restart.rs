//! Starting again while the rules folder is faulty: by the rules that were last in force.

use sluice_e2e::client::Client;

use crate::upstream::{Behind, QUICK};

async fn config(admin: &Client) -> serde_json::Value {
    let answer = admin.once("GET", "/admin/v1/config", "").await.unwrap();
    answer.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_rules_at_a_start_give_way_to_those_last_in_force() {
    let behind = Behind::of("lastGoodFile: last-good.json\n").await;
    let site = &behind.site;
    let serves = || async {
        let answer = site.user().once("GET", QUICK, "").await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    serves().await;
    gateway.kill();

    let rules = std::fs::read_dir(site.path("rules")).unwrap();
    let file = rules.map(|entry| entry.unwrap().path()).next().unwrap();
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replace("endpoints", "endpoint")).unwrap();
    // Whoever checks before is told; whoever does not is served.
    let said = site.fails(&["check", "--config", "sluice.yaml"]);
    assert!(said.contains("did you mean `endpoints`?"), "{said}");
    gateway.start();
    gateway.ready().await;
    serves().await;
    let view = config(&gateway.admin).await;
    let fault = view["lastError"].as_str().unwrap();
    assert!(fault.contains("did you mean `endpoints`?"), "{view}");

    std::fs::write(&file, &good).unwrap();
    let answer = gateway.admin.once("POST", "/admin/v1/reload", "").await;
    assert!(answer.unwrap().status.is_success());
    let view = config(&gateway.admin).await;
    assert!(view["lastError"].is_null(), "{view}");
    serves().await;
}
