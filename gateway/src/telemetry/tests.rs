//! What is counted comes out as text under its own name.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::request::Verb;

#[test]
fn what_is_counted_is_read_under_its_name() {
    let telemetry = Telemetry::new().unwrap();
    let requests = telemetry.requests();
    telemetry.observe(Arc::new(|gauge| match gauge {
        Gauge::EndpointReady => vec![Reading {
            value: 1,
            labels: vec![("endpoint", "a".into())],
        }],
        _ => Vec::new(),
    }));
    let cluster: Arc<str> = "prod".into();
    let serving = requests.serve(ServedAs::LongRunning);
    for _ in 0..3 {
        requests.answered(&cluster, Verb::List, 200, Some(Duration::from_millis(3)));
    }
    requests.refused("limit", 429);
    requests.ended(1000, true);
    let text = telemetry.text().unwrap();
    for line in [
        "apiserver_request_total{cluster=\"prod\",code=\"200\",verb=\"list\"} 3",
        "apiserver_request_duration_seconds_count{cluster=\"prod\",verb=\"list\"} 3",
        "apiserver_longrunning_requests 1",
        "sluice_refusals_total{code=\"429\",stage=\"limit\"} 1",
        "sluice_response_sent_bytes_total 1000",
        "sluice_responses_broken_total 1",
        "sluice_endpoint_ready{endpoint=\"a\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    drop(serving);
    let text = telemetry.text().unwrap();
    assert!(
        text.lines()
            .any(|l| l == "apiserver_longrunning_requests 0"),
        "{text}"
    );
}

#[test]
fn a_reload_does_not_count_one_cluster_under_the_name_of_another() {
    let telemetry = Telemetry::new().unwrap();
    let requests = telemetry.requests();
    // Names of one length, each freed before the next is made, as over reloads: allocators hand
    // the same place out again.
    for round in 0..200 {
        let cluster: Arc<str> = format!("cluster-{round:03}").into();
        requests.answered(&cluster, Verb::Get, 200, None);
    }
    let text = telemetry.text().unwrap();
    for round in 0..200 {
        let line = format!(
            "apiserver_request_total{{cluster=\"cluster-{round:03}\",code=\"200\",verb=\"get\"}} 1"
        );
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}
