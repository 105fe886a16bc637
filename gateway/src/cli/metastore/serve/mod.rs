//! `sluice metastore serve`: the store alone, under etcd's own flags, so that the unit file of a
//! single etcd moves over with one word changed.

mod flags;
mod foreign;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sluice_metastore::etcd::{
    API_VERSION, BreakGlass, EtcdAccess, EtcdOptions, EtcdSocket, EtcdTls, TlsVersions,
};

use self::flags::{
    AccessFlags, MemberFlags, PROGRESS_INTERVAL_OF_ZERO, QUOTA_BYTES, SecurityFlags,
};
use self::values::Url;
use crate::bootstrap::{ServeSpec, StoreSpec, serve_store};
use crate::cli::fail;
use crate::telemetry::{LogFormat, init_logs};

pub(in crate::cli) use self::flags::ServeArgs;
pub(super) use self::values::time;

pub(super) fn run(args: ServeArgs) -> ExitCode {
    if args.member.version {
        println!("etcd Version: {API_VERSION}");
        println!("Sluice Version: {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let format = match args.member.log_format.as_str() {
        "console" => LogFormat::Text,
        _ => LogFormat::Json,
    };
    if let Err(e) = init_logs(level(&args.member.log_level), format) {
        return fail(e);
    }
    let idle = args.foreign.explain();
    let (spec, idle) = match idle.and_then(|idle| Ok((lower(args)?, idle))) {
        Ok(lowered) => lowered,
        Err(e) => return fail(e),
    };
    for line in idle {
        tracing::warn!("{line}");
    }
    crate::cli::ended(serve_store(spec))
}

/// etcd has severities beyond those there are here.
fn level(name: &str) -> &str {
    match name {
        "panic" | "dpanic" | "fatal" => "error",
        other => other,
    }
}

/// The values of a command line that can be served.
///
/// # Errors
/// What does not fit together, and what to write instead.
fn lower(args: ServeArgs) -> Result<ServeSpec, String> {
    let ServeArgs {
        member,
        security,
        access,
        snapshots,
        foreign: _,
    } = args;
    check_cluster(&member)?;
    let tls = lower_tls(&security, &member)?;
    let retention = values::retention(
        &member.auto_compaction_mode,
        &member.auto_compaction_retention,
    )?;
    let dir = member.data_dir.clone();
    let store = StoreSpec {
        dir: dir.unwrap_or_else(|| PathBuf::from(format!("{}.etcd", member.name))),
        quota_bytes: match member.quota_backend_bytes {
            0 => QUOTA_BYTES,
            // Below zero: no bound.
            bytes => u64::try_from(bytes).unwrap_or(u64::MAX),
        },
        memory_limit_bytes: member.memory_limit_bytes,
        txn_ops_max: member.max_txn_ops,
        request_bytes_max: member.max_request_bytes,
    };
    let first = member.listen_client_urls.first();
    let first = first.ok_or("--listen-client-urls names no URL")?.address;
    let etcd = EtcdOptions {
        sockets: sockets(&member),
        tls,
        // Who writes http:// on a loopback address means it.
        insecure_loopback: true,
        insecure_anonymous: security.insecure_allow_anonymous,
        access: lower_access(access)?,
        progress_interval: match member.watch_progress_notify_interval {
            Duration::ZERO => PROGRESS_INTERVAL_OF_ZERO,
            interval => interval,
        },
        name: member.name,
        advertise_urls: member.advertise_client_urls,
        peer_urls: member.initial_advertise_peer_urls,
        txn_ops_max: member.max_txn_ops,
        request_bytes_max: member.max_request_bytes,
        streams_max: member.max_concurrent_streams,
        keepalive_interval: Some(member.grpc_keepalive_interval).filter(|time| !time.is_zero()),
        keepalive_timeout: member.grpc_keepalive_timeout,
        ..EtcdOptions::new(first)
    };
    Ok(ServeSpec {
        snapshots: snapshots.lower(&store.dir),
        store,
        etcd,
        retention,
    })
}

fn check_cluster(member: &MemberFlags) -> Result<(), String> {
    if member.name.is_empty() {
        return Err("--name is empty: clients drop a member without a name".to_owned());
    }
    let Some(cluster) = &member.initial_cluster else {
        return Ok(());
    };
    let members = values::members(cluster)?;
    if members.len() > 1 {
        return Err(format!(
            "--initial-cluster names {} members ({}): this store is one member by itself; start it \
             with its own name alone, or keep etcd",
            members.len(),
            members.join(", ")
        ));
    }
    Ok(())
}

/// Everything on the client URLs, and what needs no gRPC on the others.
fn sockets(member: &MemberFlags) -> Vec<EtcdSocket> {
    let socket = |url: &Url, only_http| EtcdSocket {
        address: url.address,
        is_plain: !url.is_tls,
        only_http,
    };
    let clients = member.listen_client_urls.iter();
    let others = member.listen_metrics_urls.iter();
    let others = others.chain(&member.listen_client_http_urls);
    clients
        .map(|url| socket(url, false))
        .chain(others.map(|url| socket(url, true)))
        .collect()
}

fn lower_tls(flags: &SecurityFlags, member: &MemberFlags) -> Result<Option<EtcdTls>, String> {
    let urls = member.listen_client_urls.iter();
    let urls = urls.chain(&member.listen_metrics_urls);
    let wanted = urls
        .chain(&member.listen_client_http_urls)
        .find(|url| url.is_tls);
    let is_given = flags.cert_file.is_some() || flags.key_file.is_some();
    let Some(wanted) = wanted else {
        if is_given || flags.trusted_ca_file.is_some() || flags.client_cert_auth {
            return Err(
                "certificates are given and no URL is https://: write https:// in \
                 --listen-client-urls, or leave them out"
                    .to_owned(),
            );
        }
        return Ok(None);
    };
    let (Some(cert_file), Some(key_file)) = (&flags.cert_file, &flags.key_file) else {
        return Err(format!(
            "https://{} needs --cert-file, --key-file and --trusted-ca-file",
            wanted.address
        ));
    };
    if flags.client_cert_auth && flags.trusted_ca_file.is_none() {
        return Err("--client-cert-auth needs --trusted-ca-file".to_owned());
    }
    if flags.client_crl_file.is_some() && flags.trusted_ca_file.is_none() {
        return Err("--client-crl-file needs --trusted-ca-file".to_owned());
    }
    let versions = match (
        flags.tls_min_version.as_str(),
        flags.tls_max_version.as_str(),
    ) {
        ("TLS1.3", "TLS1.2") => {
            return Err("--tls-min-version is above --tls-max-version".to_owned());
        }
        ("TLS1.3", _) => TlsVersions::Only13,
        (_, "TLS1.2") => TlsVersions::Only12,
        _ => TlsVersions::Both,
    };
    Ok(Some(EtcdTls {
        cert_file: cert_file.clone(),
        key_file: key_file.clone(),
        client_ca_file: flags.trusted_ca_file.clone(),
        client_crl_file: flags.client_crl_file.clone(),
        cipher_suites: flags.cipher_suites.clone(),
        versions,
    }))
}

fn lower_access(flags: AccessFlags) -> Result<Option<EtcdAccess>, String> {
    let AccessFlags {
        access_writers,
        access_readers,
        break_glass_reason,
        break_glass_until: until,
    } = flags;
    let is_set = !access_writers.is_empty() || !access_readers.is_empty();
    let break_glass = match break_glass_reason {
        None => None,
        Some(_) if !is_set => {
            return Err(
                "--break-glass-reason without --access-writers or --access-readers: every \
                 certificate may write already"
                    .to_owned(),
            );
        }
        Some(reason) if reason.trim().is_empty() => {
            return Err("--break-glass-reason is empty: say why".to_owned());
        }
        Some(reason) => Some(BreakGlass { reason, until }),
    };
    Ok(is_set.then(|| EtcdAccess {
        writers: access_writers.into_iter().collect(),
        readers: access_readers.into_iter().collect(),
        break_glass,
    }))
}

#[cfg(test)]
mod tests;
