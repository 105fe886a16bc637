//! Files that are being written, and authorities that change.

use std::time::Instant;

use sluice_e2e::client::Client;
use sluice_e2e::lines::Lines;
use sluice_e2e::load::Load;
use sluice_e2e::pki::Authority;

use crate::rig::{Front, QUICK, WATCH, full};

async fn reload(front: &Front) -> u16 {
    let admin = &front.gateway.admin;
    let answer = admin.once("POST", "/admin/v1/reload", "").await.unwrap();
    answer.status.as_u16()
}

async fn generation(front: &Front) -> f64 {
    front.metric("sluice_config_generation").await
}

/// A rule file cut off anywhere, spoilt, gone and come back, under load: what runs is the last whole
/// one, and the metric says so.
#[tokio::test(flavor = "multi_thread")]
async fn fault_16_config_half_written() {
    let front = Front::ready(1).await;
    let path = front.site.path("rules/limits.yaml");
    let rules = "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: { name: limits }\nspec:\n\
                 \x20 cluster: main\n  rules:\n  - name: everybody\n\
                 \x20   rate: { perSecond: 1000000, burst: 1000000, key: [user] }\n";
    std::fs::write(&path, rules).unwrap();
    assert_eq!(reload(&front).await, 200);
    let load = Load::start(&front.site.user(), QUICK);
    load.more(20).await;
    let (mut refused, rounds) = (0, full(60, 1_000));
    for round in 0..rounds {
        // From all over the file, and the same at each run.
        let at = (round * 7919 + 13) % rules.len();
        let text = match round % 4 {
            0 => format!("{}\u{0}{}", &rules[..at], &rules[at..]),
            1 => rules.replace("perSecond", "perSecnd"),
            2 => format!("{rules}\n---\n{{ [ not yaml"),
            _ => rules[..at].to_owned(),
        };
        let before = generation(&front).await;
        std::fs::write(&path, text).unwrap();
        let status = reload(&front).await;
        let is_faulty = front.metric("sluice_config_faulty").await > 0.5;
        assert_eq!(status != 200, is_faulty, "round {round}: {status}");
        if is_faulty {
            refused += 1;
            assert!(
                (generation(&front).await - before).abs() < 0.5,
                "round {round}"
            );
        }
        // As a ConfigMap's volume does it: whole, by a rename over the old one.
        let next = front.site.path("next.yaml");
        std::fs::write(
            &next,
            rules.replace("burst: 1", &format!("burst: {}", round % 8 + 1)),
        )
        .unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert_eq!(reload(&front).await, 200, "round {round}");
        assert!(front.metric("sluice_config_faulty").await < 0.5);
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(reload(&front).await, 200);
    std::fs::write(&path, rules).unwrap();
    assert_eq!(reload(&front).await, 200);
    println!("{refused} of {rounds} files refused");
    assert!(refused >= rounds * 3 / 4, "{refused} of {rounds}");
    load.more(20).await;
    load.end("half-written files").await;
}

/// The CA of users goes from one to both to the other: whoever is valid is never refused, and whoever
/// is not any more is refused by the first request after the reload, and its streams end.
#[tokio::test(flavor = "multi_thread")]
async fn fault_30_identity_churn() {
    let front = Front::ready(1).await;
    let site = &front.site;
    let mut now = (
        site.admin.clone(),
        std::fs::read(site.path("users.crt")).unwrap(),
    );
    let began = Instant::now();
    let mut streams = Vec::new();
    let rounds = full(6, 200);
    for round in 0..rounds {
        let next = Authority::new(site.dir.path(), &format!("users-{round}"));
        let leaf = next.issue(&format!("admin-{round}"), &["system:masters"], &[]);
        let serving = site
            .own
            .issue("sluice", &[], &["a.test", "b.test", "c.test"]);
        assert!(
            serving.cert.ends_with("sluice.crt"),
            "it serves the new one"
        );
        let next_ca = std::fs::read(&next.ca).unwrap();
        let (old, new) = (site.client(Some(&now.0)), site.client(Some(&leaf)));
        let standing = old.http2().await.unwrap();
        let watch = Lines::open(&old, WATCH).await.unwrap();
        let load = Load::start(&old, QUICK);
        load.more(10).await;
        site.write(
            "users.crt",
            &String::from_utf8([&now.1[..], &next_ca].concat()).unwrap(),
        );
        assert_eq!(reload(&front).await, 200);
        let newer = Load::start(&new, QUICK);
        newer.more(10).await;
        load.more(10).await;
        load.end("the old ones, while theirs counts").await;
        assert_eq!(status(&old).await, 200);
        site.write("users.crt", &String::from_utf8(next_ca.clone()).unwrap());
        assert_eq!(reload(&front).await, 200);
        // On the connection that stands, and on a new one.
        let refused = standing.send("GET", QUICK, "").await.unwrap().status;
        assert_eq!(refused, 401, "round {round}");
        assert_eq!(status(&old).await, 401, "round {round}");
        newer.more(10).await;
        newer.end("the new ones, before and after").await;
        now = (leaf, next_ca);
        streams.push(watch);
    }
    // A watch has been let go on for a moment: its user is judged again now and then.
    for mut watch in streams {
        assert_eq!(watch.next().await.unwrap(), None, "whole");
    }
    println!("{rounds} authorities in {:?}", began.elapsed());
}

async fn status(client: &Client) -> u16 {
    let answer = client.once("GET", QUICK, "").await.unwrap();
    answer.status.as_u16()
}
