//! Clusters, each by itself and all together.

use std::collections::HashMap;

use crate::address::Scheme;
use crate::balance::Subset;
use crate::cluster::{ClusterSpec, Credentials, IdentityMode, UpstreamCluster};
use crate::diagnostic::Diagnostic;
use crate::discovery::Discovery;
use crate::load::Sourced;
use crate::located::Located;

use super::{LOCAL_CLUSTER, Report, check_name, clients};

pub(super) fn check(cluster: &UpstreamCluster, report: &mut Report<'_>) {
    let name = &cluster.metadata.name;
    check_name(name, report);
    if name.as_str() == LOCAL_CLUSTER {
        report.fault(
            name.at,
            "the name `local` is the metastore's own",
            "choose another",
        );
    }
    let spec = &cluster.spec;
    if spec.hosts.is_empty() && !*spec.default {
        let help = "give it `hosts`, or `default: true`";
        report.fault(name.at, "no request can reach the cluster", help);
    }
    if let Some(serving) = &spec.serving
        && spec.hosts.is_empty()
    {
        let help =
            "give it `hosts`, or leave `serving` out: the listener's own certificate is shown";
        report.fault(serving.at, "no name chooses the certificate", help);
    }
    check_endpoints(spec, report);
    check_subsets(spec, report);
    check_identity(spec, report);
    check_times(spec, report);
}

fn check_endpoints(spec: &ClusterSpec, report: &mut Report<'_>) {
    let by_dns = spec.discovery.as_ref().is_some_and(|it| it.dns.is_some());
    if spec.endpoints.is_empty() && !by_dns {
        report.fault(spec.endpoints.at, "no endpoints", "give at least one `url`");
    }
    if let Some(discovery) = &spec.discovery {
        check_discovery(discovery, spec, report);
    }
    let mut seen = Vec::new();
    for endpoint in spec.endpoints.iter() {
        let url = &endpoint.url;
        if seen.contains(&&url.value) {
            report.fault(url.at, format!("endpoint `{}` is given twice", **url), "");
        }
        if url.scheme() == Scheme::Https && spec.tls.is_none() && seen.is_empty() {
            let help = "add `tls: { caFile: ... }`";
            report.fault(url.at, "https endpoints and no CA to verify them by", help);
        }
        seen.push(&url.value);
        for word in endpoint.labels.iter().chain(&endpoint.zone) {
            if word.is_empty() {
                report.fault(word.at, "an empty zone or label", "remove it");
            }
        }
    }
}

fn check_discovery(discovery: &Located<Discovery>, spec: &ClusterSpec, report: &mut Report<'_>) {
    let Discovery { dns, kubernetes } = &discovery.value;
    if dns.is_some() == kubernetes.is_some() {
        let message = "discovery does not say who knows the endpoints";
        report.fault(
            discovery.at,
            message,
            "give `dns` or `kubernetes`, not both",
        );
    }
    if let Some(dns) = dns {
        report.not_zero("discovery.dns.interval", &dns.interval);
        if dns.url.scheme() == Scheme::Https && spec.tls.is_none() {
            let message = "https endpoints and no CA to verify them by";
            report.fault(dns.url.at, message, "add `tls: { caFile: ... }`");
        }
    }
    if let Some(kubernetes) = kubernetes {
        report.not_zero("discovery.kubernetes.interval", &kubernetes.interval);
        if spec.credentials.is_none() {
            let message = "discovery.kubernetes needs a credential of the gateway";
            report.fault(discovery.at, message, "add `credentials`");
        }
    }
}

fn check_subsets(spec: &ClusterSpec, report: &mut Report<'_>) {
    let mut seen: Vec<&str> = Vec::new();
    for subset in &spec.subsets {
        let name = &subset.name;
        check_name(name, report);
        if seen.contains(&name.as_str()) {
            report.fault(name.at, format!("subset `{}` is given twice", **name), "");
        }
        seen.push(name.as_str());
        if subset.endpoints.is_empty() == subset.labels.is_empty() {
            let message = format!("subset `{}` does not say which endpoints it has", **name);
            report.fault(name.at, message, "give `endpoints` or `labels`, not both");
            continue;
        }
        for url in &subset.endpoints {
            if !spec.endpoints.iter().any(|it| it.url.value == url.value) {
                let message = format!("subset `{}` has an unknown endpoint `{}`", **name, **url);
                report.fault(url.at, message, "name one of `spec.endpoints`");
            }
        }
        if !subset.labels.is_empty() && !spec.endpoints.iter().any(|it| has_all(&it.labels, subset))
        {
            let message = format!("no endpoint has all labels of subset `{}`", **name);
            report.fault(name.at, message, "give the labels to endpoints");
        }
    }
}

fn has_all(labels: &[Located<String>], subset: &Subset) -> bool {
    let mut wanted = subset.labels.iter();
    wanted.all(|label| labels.iter().any(|it| it.value == label.value))
}

fn check_identity(spec: &ClusterSpec, report: &mut Report<'_>) {
    let clients = &spec.clients;
    let mode = &spec.identity.mode;
    if let Some(credentials) = &spec.credentials {
        check_credentials(credentials, report);
    }
    clients::check(clients, spec.credentials.is_some(), report);
    clients::check_headers(&spec.identity.request_headers, clients.at, report);
    let has_certificate = spec
        .credentials
        .as_ref()
        .is_some_and(|credentials| credentials.client_cert_file.is_some());
    match **mode {
        IdentityMode::Impersonate if spec.credentials.is_none() => {
            let help = "add `credentials`, or choose another `identity.mode`";
            report.fault(
                spec.endpoints.at,
                "impersonation needs a credential of the gateway",
                help,
            );
        }
        IdentityMode::FrontProxy if !has_certificate => {
            let help = "give `credentials.clientCertFile` and `clientKeyFile`";
            report.fault(
                mode.at,
                "frontProxy needs a client certificate of the gateway",
                help,
            );
        }
        IdentityMode::PassThrough if clients.front_proxy.is_some() => {
            let help = "whom a front proxy names cannot be passed on; remove `clients.frontProxy`";
            report.fault(mode.at, "passThrough carries bearer tokens only", help);
        }
        IdentityMode::PassThrough if clients.client_ca_file.is_some() => {
            let help = "a client's certificate cannot be passed on; remove `clients.clientCAFile`";
            report.fault(mode.at, "passThrough carries bearer tokens only", help);
        }
        _ => {}
    }
}

fn check_credentials(credentials: &Located<Credentials>, report: &mut Report<'_>) {
    let has_token = credentials.token_file.is_some();
    let (has_cert, has_key) = (
        credentials.client_cert_file.is_some(),
        credentials.client_key_file.is_some(),
    );
    let help = "give `clientCertFile` and `clientKeyFile`, or `tokenFile`";
    if has_cert != has_key {
        report.fault(
            credentials.at,
            "a certificate needs its key and a key its certificate",
            help,
        );
    } else if has_token == has_cert {
        report.fault(credentials.at, "not exactly one credential", help);
    }
}

fn check_times(spec: &ClusterSpec, report: &mut Report<'_>) {
    let health = &spec.health;
    report.not_zero("health.interval", &health.interval);
    report.not_zero("health.timeout", &health.timeout);
    if !health.path.starts_with('/') {
        let message = format!("health.path `{}` does not begin with a slash", *health.path);
        report.fault(health.path.at, message, "write a path such as /readyz");
    }
    let ejection = &spec.ejection;
    report.not_zero("ejection.baseTime", &ejection.base_time);
    let timeouts = &spec.timeouts;
    report.not_zero("timeouts.connect", &timeouts.connect);
    report.not_zero("timeouts.head", &timeouts.head);
    let percent = &spec.breaker.failure_percent;
    if **percent > 100 {
        let message = format!("breaker.failurePercent is {}", **percent);
        report.fault(percent.at, message, "write 0 (off) to 100");
    }
}

/// Names, hosts and the default, over all clusters.
pub(super) fn check_all(clusters: &[Sourced<UpstreamCluster>], faults: &mut Vec<Diagnostic>) {
    let mut names: HashMap<&str, &Sourced<UpstreamCluster>> = HashMap::new();
    let mut hosts: HashMap<&str, &Sourced<UpstreamCluster>> = HashMap::new();
    let mut default: Option<&Sourced<UpstreamCluster>> = None;
    for cluster in clusters {
        let mut report = Report::new(&cluster.source, faults);
        let name = &cluster.metadata.name;
        if let Some(first) = names.get(name.as_str()) {
            let message = format!("cluster `{}` is defined twice", **name);
            report.fault(name.at, message, &first_at(first, &first.metadata.name));
        }
        for host in &cluster.spec.hosts {
            if let Some(first) = hosts.get(host.as_str()) {
                let owner = &*first.metadata.name;
                let message = format!("host `{}` is already of cluster `{owner}`", **host);
                report.fault(host.at, message, "a host has one owner");
            }
            hosts.entry(host.as_str()).or_insert(cluster);
        }
        if *cluster.spec.default {
            if let Some(first) = default {
                let message = format!("a second default; `{}` is one", *first.metadata.name);
                let help = first_at(first, &first.spec.default);
                report.fault(cluster.spec.default.at, message, &help);
            }
            default = default.or(Some(cluster));
        }
        names.entry(name.as_str()).or_insert(cluster);
    }
}

/// Where the first of two stands.
pub(super) fn first_at<T, V>(object: &Sourced<T>, value: &Located<V>) -> String {
    format!(
        "the first is at {}:{}:{}",
        object.file().display(),
        value.at.line,
        value.at.column
    )
}
