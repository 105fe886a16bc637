//! The process file by itself.

use crate::address::Network;
use crate::located::Located;
use crate::process::{Api, Etcd, EtcdAccess, GatewayConfig, Tracing};

use super::Report;

pub(super) fn check(config: &GatewayConfig, report: &mut Report<'_>) {
    if let Some(api) = &config.api {
        check_api(config, api, report);
    }
    if let Some(metastore) = &config.metastore {
        if metastore.quota_bytes.bytes() == 0 {
            report.fault(
                metastore.at,
                "metastore.quotaBytes is zero",
                "write a size such as 8GiB",
            );
        }
        if metastore
            .memory_limit
            .is_some_and(|limit| limit.bytes() == 0)
        {
            report.fault(
                metastore.at,
                "metastore.memoryLimit is zero",
                "write a size such as 256MiB, or leave it out",
            );
        }
        if let Some(snapshots) = &metastore.snapshots {
            report.not_zero("metastore.snapshots.interval", &snapshots.interval);
        }
        if let Some(etcd) = &metastore.etcd {
            check_etcd(etcd, report);
        }
    }
    if let Some(admin) = &config.admin
        && admin.allowed_groups.is_empty()
        && admin.allowed_users.is_empty()
    {
        let at = admin.tls.cert_file.at();
        let help = "name a group or a user, or leave out `admin`";
        report.fault(at, "nobody may use the admin listener", help);
    }
    if let Some(audit) = &config.audit
        && audit.max_size.bytes() == 0
    {
        report.fault(
            audit.max_size.at,
            "audit.maxSize is zero",
            "write a size such as 100MiB",
        );
    }
    if let Some(zone) = &config.zone
        && zone.is_empty()
    {
        report.fault(zone.at, "zone is empty", "write its name, or leave it out");
    }
    if let Some(tracing) = &config.tracing {
        check_tracing(tracing, report);
    }
    let listen = &config.listen;
    check_networks(
        "listen.proxyProtocolFrom",
        &listen.proxy_protocol_from,
        report,
    );
    check_networks(
        "listen.forwardedForFrom",
        &listen.forwarded_for_from,
        report,
    );
    check_addresses(config, report);
}

fn check_tracing(tracing: &Tracing, report: &mut Report<'_>) {
    let endpoint = &tracing.endpoint;
    let rest = |scheme: &str| endpoint.strip_prefix(scheme).filter(|it| !it.is_empty());
    match (rest("https://"), rest("http://"), &tracing.ca_file) {
        (Some(_), _, None) => {
            let message = "tracing.endpoint is https, and nobody's certificate is believed";
            report.fault(endpoint.at, message, "give `caFile`");
        }
        (None, Some(_), Some(file)) => {
            let message = "tracing.caFile is of no use: the endpoint is http";
            report.fault(file.at(), message, "remove it, or write https");
        }
        (Some(_), _, Some(_)) | (None, Some(_), None) => {}
        (None, None, _) => {
            let message = format!("`{}` is not a collector's URL", **endpoint);
            let help = "write it as https://collector.example.com:4318/v1/traces";
            report.fault(endpoint.at, message, help);
        }
    }
    let samples = &tracing.samples_per_million;
    if **samples > 1_000_000 {
        let message = format!("`{}` of a million is more than all", **samples);
        report.fault(samples.at, message, "write 1000000 for all");
    }
}

fn check_networks(key: &str, networks: &[Located<Network>], report: &mut Report<'_>) {
    let mut seen: Vec<Network> = Vec::new();
    for network in networks {
        let within = seen.iter().find(|seen| seen.get().contains(&network.get()));
        if let Some(within) = within {
            let message = format!("{key}: `{}` is within `{within}`", **network);
            report.fault(network.at, message, "keep one of them");
        }
        seen.push(**network);
    }
}

fn check_api(config: &GatewayConfig, api: &Located<Api>, report: &mut Report<'_>) {
    if config.metastore.is_none() {
        let help = "add `metastore`, or leave out `api`";
        report.fault(api.at, "api needs a metastore to serve from", help);
    }
    if api.hosts.is_empty() && !*api.default {
        let help = "give it `hosts`, or `default: true`";
        report.fault(api.at, "no request can reach the api", help);
    }
    if api.client_ca_file.is_none() && config.listen.tls.client_ca_file.is_none() {
        let help = "give `clientCAFile` here or under listen.tls";
        report.fault(api.at, "nobody can be known to the api", help);
    }
    let mut seen = Vec::new();
    for host in &api.hosts {
        if seen.contains(&host.as_str()) {
            report.fault(host.at, format!("host `{}` is given twice", **host), "");
        }
        seen.push(host.as_str());
    }
}

fn check_etcd(etcd: &Located<Etcd>, report: &mut Report<'_>) {
    report.not_zero(
        "metastore.etcd.watchProgressNotifyInterval",
        &etcd.watch_progress_notify_interval,
    );
    if let Some(access) = &etcd.access {
        check_access(etcd, access, report);
    }
    let is_loopback = etcd.address.get().ip().is_loopback();
    match (&etcd.tls, etcd.insecure_loopback) {
        (None, false) => {
            let help = "give `tls`, or `insecureLoopback: true` with a loopback address";
            report.fault(etcd.at, "the etcd listener has no tls", help);
        }
        (None, true) if !is_loopback => {
            let help = "give `tls`, or a loopback address";
            report.fault(
                etcd.address.at,
                "the etcd listener would be open to the network",
                help,
            );
        }
        (Some(_), true) => {
            let help = "keep one of `tls` and `insecureLoopback`";
            report.fault(
                etcd.at,
                "the etcd listener is both with and without tls",
                help,
            );
        }
        _ => {}
    }
}

fn check_access(etcd: &Etcd, access: &Located<EtcdAccess>, report: &mut Report<'_>) {
    if etcd.tls.is_none() {
        let help = "give `tls`, or leave out `access`";
        let message = "access by certificate name needs certificates";
        report.fault(access.at, message, help);
    }
    if access.writers.is_empty() && access.readers.is_empty() {
        let help = "name who may write or read, or leave out `access`";
        report.fault(access.at, "nobody may use the etcd listener", help);
    }
    let mut seen: Vec<&str> = Vec::new();
    for name in access.writers.iter().chain(&access.readers) {
        if name.is_empty() {
            let help = "write the common name of a certificate";
            report.fault(name.at, "a name is empty", help);
        } else if seen.contains(&name.as_str()) {
            let help = "writers may read too: keep it once";
            report.fault(name.at, format!("name `{}` is given twice", **name), help);
        }
        seen.push(name.as_str());
    }
    if let Some(glass) = &access.break_glass
        && glass.reason.trim().is_empty()
    {
        report.fault(
            glass.reason.at,
            "the glass is broken without a reason",
            "say why",
        );
    }
}

/// Two listeners cannot share an address.
fn check_addresses(config: &GatewayConfig, report: &mut Report<'_>) {
    let etcd = config.metastore.as_ref().and_then(|m| m.etcd.as_ref());
    let all = [
        Some((
            "listen",
            config.listen.address,
            config.listen.tls.cert_file.at(),
        )),
        config
            .admin
            .as_ref()
            .map(|admin| ("admin", admin.address, admin.tls.cert_file.at())),
        etcd.map(|etcd| ("metastore.etcd", *etcd.address, etcd.address.at)),
    ];
    let mut seen: Vec<(&str, crate::ListenAddress)> = Vec::new();
    for (key, address, at) in all.into_iter().flatten() {
        let other = seen.iter().find(|(_, other)| *other == address);
        if let (Some((other, _)), true) = (other, address.get().port() != 0) {
            let message = format!("{key} and {other} listen on the same address");
            report.fault(at, message, "give each its own port");
        }
        seen.push((key, address));
    }
}
