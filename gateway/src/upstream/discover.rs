//! Finds a cluster's endpoints while it runs: the addresses of a name, or what the cluster says of
//! itself. No answer, an empty one, or one that cannot be used changes nothing. Bound:
//! [`FOUND_MAX`]. It decides what is found; moving the cluster over is the cluster's.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::endpoint::parse;
use super::pick::mix;
use super::spec::{ClusterSpec, DiscoverySpec, EndpointSpec};

/// The slice of the service `kubernetes`, which the apiservers write.
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// As many as one request tells apart.
const FOUND_MAX: usize = 64;

/// For one question.
const ANSWER_IN: Duration = Duration::from_secs(5);

/// How long a cluster without discovery is left alone; a reload that brings one wakes it.
const NOTHING_TO_DO: Duration = Duration::from_secs(3600);

/// How long after a question without an answer the next one comes, if that is sooner.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Asks until the cluster is gone.
pub(super) async fn discover(cluster: Weak<Cluster>, stop: CancellationToken) {
    for round in 0.. {
        let Some(held) = cluster.upgrade() else {
            return;
        };
        let changed = Arc::clone(&held.discovery_changed);
        let pause = ask(held).await;
        let jitter = pause / 5 * u32::try_from(mix(round) % 256).unwrap_or(0) / 256;
        tokio::select! {
            biased; // the end comes first
            () = stop.cancelled() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(pause - pause / 10 + jitter) => {}
        }
    }
}

/// One question; how long to the next.
async fn ask(cluster: Arc<Cluster>) -> Duration {
    let view = cluster.view();
    let (interval, found) = match &view.spec.discovery {
        None => return NOTHING_TO_DO,
        Some(DiscoverySpec::Dns { url, interval }) => (*interval, resolve(url).await),
        Some(DiscoverySpec::Kubernetes { interval }) => {
            (*interval, asked(&cluster, &view.spec).await)
        }
    };
    drop(view);
    let taken = match found {
        Ok(found) => {
            let taking = tokio::task::spawn_blocking(move || {
                let taken = cluster.found(found);
                (taken.map_err(|error| error.to_string()), cluster)
            });
            match taking.await {
                Ok((taken, _)) => taken,
                Err(error) => Err(error.to_string()),
            }
        }
        Err(reason) => Err(reason),
    };
    match taken {
        Ok(()) => interval,
        Err(reason) => {
            tracing::warn!(reason, "endpoints not found anew; the last ones stay");
            interval.min(AGAIN_AFTER)
        }
    }
}

async fn resolve(url: &str) -> Result<Vec<EndpointSpec>, String> {
    let address = parse(url).map_err(|error| error.to_string())?;
    let looking = tokio::net::lookup_host((address.host.as_str(), address.port));
    let addresses = match tokio::time::timeout(ANSWER_IN, looking).await {
        Ok(addresses) => addresses.map_err(|error| format!("{}: {error}", address.host))?,
        Err(_) => return Err(format!("{}: no answer within {ANSWER_IN:?}", address.host)),
    };
    let name = address.is_tls.then(|| address.host.clone());
    let found = addresses.map(|it| endpoint(address.is_tls, it, name.clone()));
    finish(found.collect())
}

async fn asked(cluster: &Cluster, spec: &ClusterSpec) -> Result<Vec<EndpointSpec>, String> {
    let (status, body) = cluster
        .get(SLICE, ANSWER_IN)
        .await
        .map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("{SLICE} is answered with {status}"));
    }
    // They are reached as the ones that are written.
    let is_tls = spec
        .endpoints
        .first()
        .is_none_or(|first| first.url.starts_with("https:"));
    finish(read(&body, is_tls)?)
}

/// In a fixed order, each once, and not none.
fn finish(mut found: Vec<EndpointSpec>) -> Result<Vec<EndpointSpec>, String> {
    found.sort_by(|a, b| a.url.cmp(&b.url));
    found.dedup_by(|a, b| a.url == b.url);
    if found.is_empty() {
        return Err("there are none".to_owned());
    }
    if found.len() > FOUND_MAX {
        tracing::warn!(
            found = found.len(),
            "only the first {FOUND_MAX} endpoints are used"
        );
        found.truncate(FOUND_MAX);
    }
    Ok(found)
}

fn endpoint(is_tls: bool, address: SocketAddr, tls_name: Option<String>) -> EndpointSpec {
    let scheme = if is_tls { "https" } else { "http" };
    EndpointSpec {
        tls_name,
        ..EndpointSpec::new(format!("{scheme}://{address}"))
    }
}

#[derive(Deserialize)]
struct Slice {
    #[serde(default)]
    endpoints: Vec<SliceEndpoint>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    zone: Option<String>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct Port {
    port: Option<u16>,
}

/// The ready addresses of a slice, each with its first port.
fn read(json: &[u8], is_tls: bool) -> Result<Vec<EndpointSpec>, String> {
    let slice: Slice =
        serde_json::from_slice(json).map_err(|error| format!("no EndpointSlice: {error}"))?;
    let port = slice.ports.iter().find_map(|it| it.port);
    let port = port.ok_or("the EndpointSlice has no port")?;
    let mut found = Vec::new();
    for it in slice.endpoints {
        // Not said is ready.
        if it.conditions.ready == Some(false) {
            continue;
        }
        for address in it.addresses {
            let address: IpAddr = address
                .parse()
                .map_err(|_| format!("address={address} of the EndpointSlice is none"))?;
            found.push(EndpointSpec {
                zone: it.zone.clone(),
                ..endpoint(is_tls, SocketAddr::new(address, port), None)
            });
        }
    }
    Ok(found)
}

/// The endpoints in force: what was found, with what is written of the same ones, and those that
/// are only written in reserve.
pub(super) fn merge(written: &[EndpointSpec], found: &[EndpointSpec]) -> Vec<EndpointSpec> {
    if found.is_empty() {
        return written.to_vec();
    }
    let is_same = |a: &EndpointSpec, b: &EndpointSpec| {
        a.url.trim_end_matches('/') == b.url.trim_end_matches('/')
    };
    let known = |it: &EndpointSpec| {
        let known = written.iter().find(|other| is_same(it, other));
        known.unwrap_or(it).clone()
    };
    let only_written = written
        .iter()
        .filter(|it| !found.iter().any(|other| is_same(it, other)));
    let reserve = only_written.map(|it| EndpointSpec {
        is_reserve: true,
        ..it.clone()
    });
    found.iter().map(known).chain(reserve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(endpoints: &[EndpointSpec]) -> Vec<&str> {
        endpoints.iter().map(|it| it.url.as_str()).collect()
    }

    #[test]
    fn slices_give_their_ready_addresses() {
        let slice = br#"{"kind":"EndpointSlice","addressType":"IPv4",
            "endpoints":[{"addresses":["10.0.0.2"],"conditions":{"ready":true}},
                {"addresses":["10.0.0.1"],"zone":"a"},
                {"addresses":["10.0.0.3"],"conditions":{"ready":false}}],
            "ports":[{"name":"https","port":6443,"protocol":"TCP"}]}"#;
        let found = finish(read(slice, true).unwrap()).unwrap();
        assert_eq!(
            urls(&found),
            ["https://10.0.0.1:6443", "https://10.0.0.2:6443"]
        );
        assert_eq!(found[0].zone.as_deref(), Some("a"));
        let v6 = br#"{"endpoints":[{"addresses":["fd00::1"]}],"ports":[{"port":443}]}"#;
        assert_eq!(urls(&read(v6, false).unwrap()), ["http://[fd00::1]:443"]);
        for bad in [
            &b"{}"[..],
            b"no",
            br#"{"endpoints":[{"addresses":["x"]}],"ports":[{"port":1}]}"#,
        ] {
            assert!(read(bad, true).is_err());
        }
        assert!(finish(Vec::new()).is_err(), "none is no answer");
    }

    #[test]
    fn found_ones_come_first_and_written_ones_are_kept() {
        let mut written = ["https://10.0.0.1:6443/", "https://lb:6443"]
            .map(|url| EndpointSpec::new(url.to_owned()));
        written[0].labels = vec!["big".to_owned()];
        let found = ["https://10.0.0.1:6443", "https://10.0.0.2:6443"]
            .map(|url| EndpointSpec::new(url.to_owned()));
        let merged = merge(&written, &found);
        assert_eq!(
            urls(&merged),
            [
                "https://10.0.0.1:6443/",
                "https://10.0.0.2:6443",
                "https://lb:6443"
            ]
        );
        assert_eq!(merged[0].labels, ["big"]);
        let reserve: Vec<bool> = merged.iter().map(|it| it.is_reserve).collect();
        assert_eq!(reserve, [false, false, true]);
        assert_eq!(urls(&merge(&written, &[])), urls(&written));
    }
}
