//! A hundred reloads at full load: rules, endpoints, the listener's and the cluster's certificate and
//! the CA of clients change; no request fails, watches stay, whoever comes sees what is new.
//!
//! For longer: `SLUICE_RELOADS=2000`.

use std::fs;

use sluice_e2e::client::Client;
use sluice_e2e::fake::{self, Fake};
use sluice_e2e::lines::Lines;
use sluice_e2e::load::Load;
use sluice_e2e::pki::Authority;

use crate::upstream::{Behind, QUICK, WATCH};

/// Reloads in the gate.
const RELOADS: usize = 100;

const WATCHES: usize = 4;

/// The certificate that the front shows to whoever asks for this name.
async fn shown(client: &Client, name: &str) -> Vec<u8> {
    let client = client.clone().with_server_name(name);
    let stream = client.connect_tls("h2").await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn rules(round: usize) -> String {
    format!(
        "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: {{ name: limits }}\nspec:\n\
         \x20 cluster: main\n  rules:\n  - name: everybody\n\
         \x20   rate: {{ perSecond: 1000000, burst: {}, key: [user] }}\n",
        1_000_000 + round
    )
}

fn cluster(behind: &Behind, more: Option<u16>) {
    let url = |port| format!("  - url: \"https://127.0.0.1:{port}\"\n");
    let main = "rules/main.yaml";
    let text = fs::read_to_string(behind.site.path(main)).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|l| l.contains("endpoints:")).unwrap();
    while lines[at + 1].contains("- url") {
        lines.remove(at + 1);
    }
    lines[at] = "  endpoints:";
    let mut urls = url(behind.upstream.port);
    urls.extend(more.map(url));
    lines.insert(at + 1, urls.trim_end());
    behind.site.write(main, &format!("{}\n", lines.join("\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reloads_are_noticed_by_nobody() {
    let wanted = std::env::var("SLUICE_RELOADS").ok();
    let reloads = wanted.map_or(RELOADS, |text| text.parse().unwrap());
    let behind = Behind::of("").await;
    let site = &behind.site;
    let leaf = site.own.issue("named", &[], &["a.test"]);
    let serving = site.own.issue("upstream-2", &[], &[]);
    let second = Fake::start(0, &serving, |_| async { fake::answer(200, "{}") }).await;
    let main = fs::read_to_string(site.path("rules/main.yaml")).unwrap();
    let named = "  hosts: [a.test]\n  serving: { certFile: ../named.crt, keyFile: ../named.key }\n";
    site.write("rules/main.yaml", &format!("{main}{named}"));
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;

    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut lines = Lines::open(&site.user(), WATCH).await.unwrap();
        assert_eq!(lines.event().await.1, "a");
        watches.push(lines);
    }
    let first = (
        shown(&site.user(), "a.test").await,
        shown(&site.user(), "b.test").await,
    );
    assert_ne!(first.0, first.1, "each name its own");
    let load = Load::start(&site.user(), QUICK);
    let admin = gateway.admin.http2().await.unwrap();
    for round in 0..reloads {
        site.write("rules/limits.yaml", &rules(round));
        match round % 4 {
            0 => cluster(&behind, Some(second.port)),
            1 => drop(
                site.own
                    .issue("sluice", &[], &["a.test", "b.test", "c.test"]),
            ),
            2 => cluster(&behind, None),
            _ => drop(site.own.issue("named", &[], &["a.test"])),
        }
        let answer = admin.send("POST", "/admin/v1/reload", "").await.unwrap();
        assert!(answer.status.is_success(), "{round}: {}", answer.json());
        if round % 10 == 0 {
            load.more(5).await;
        }
    }
    let answered = load.end("reloads of everything").await;
    assert!(answered > reloads / 2, "{answered} answers");
    let (named, own) = (
        shown(&site.user(), "a.test").await,
        shown(&site.user(), "b.test").await,
    );
    assert!(named != first.0 && own != first.1, "the new ones are shown");
    assert_eq!(named, certificate(&leaf.cert));
    behind.event();
    for lines in &mut watches {
        assert_eq!(lines.event().await.1, "a", "the watch goes on");
    }

    the_ca_of_clients_is_replaced(&behind, &admin, &mut watches).await;
}

fn certificate(path: &std::path::Path) -> Vec<u8> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_file(path).unwrap().to_vec()
}

/// Certificates of the old CA are refused from now on, on connections that stand as well; what was
/// begun by them goes on.
async fn the_ca_of_clients_is_replaced(
    behind: &Behind,
    admin: &sluice_e2e::client::Http2,
    watches: &mut [Lines],
) {
    let site = &behind.site;
    let standing = site.user().http2().await.unwrap();
    assert_eq!(standing.send("GET", QUICK, "").await.unwrap().status, 200);
    let next = tempfile::tempdir().unwrap();
    let users = Authority::new(next.path(), "users");
    let known = users.issue("admin", &["system:masters"], &[]);
    fs::copy(&users.ca, &site.users.ca).unwrap();
    let answer = admin.send("POST", "/admin/v1/reload", "").await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.json());
    assert_eq!(standing.send("GET", QUICK, "").await.unwrap().status, 401);
    let refused = site.user().once("GET", QUICK, "").await;
    assert_eq!(refused.unwrap().status, 401, "let in by no handshake");
    let answer = site.client(Some(&known)).once("GET", QUICK, "").await;
    assert_eq!(answer.unwrap().status, 200);
    behind.event();
    for lines in watches {
        assert_eq!(lines.event().await.1, "a", "the watch goes on");
    }
}
