//! `sluice metastore serve`: the store alone, with etcd's own names for flags that mean the same.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sluice_metastore::etcd::{EtcdOptions, EtcdTls};

use crate::bootstrap::{StoreSpec, serve_store};
use crate::cli::fail;
use crate::telemetry::{LogFormat, init_logs};

#[derive(Debug, Args)]
pub(in crate::cli) struct ServeArgs {
    /// Where the log and the checkpoints are; made when absent
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Where to listen: https://ADDRESS:PORT, or http:// with --insecure-loopback
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:2379")]
    listen_client_urls: String,
    /// Certificate chain, PEM, leaf first
    #[arg(long, value_name = "FILE")]
    cert_file: Option<PathBuf>,
    /// Private key, PEM
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// CAs of client certificates, PEM; every client must show one
    #[arg(long, value_name = "FILE")]
    trusted_ca_file: Option<PathBuf>,
    /// Serve http:// on a loopback address
    #[arg(long)]
    insecure_loopback: bool,
    /// How often a caught-up watch that asked for it hears how far it is
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    watch_progress_notify_interval: Duration,
    /// Bytes on disk above which puts are refused
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 30)]
    quota_backend_bytes: u64,
    /// The name of this member
    #[arg(long, default_value = "sluice")]
    name: String,
    /// The least severity that is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

pub(super) fn run(args: ServeArgs) -> ExitCode {
    if let Err(e) = init_logs(&args.log_level, LogFormat::Json) {
        return fail(e);
    }
    let (spec, options) = match args.lower() {
        Ok(lowered) => lowered,
        Err(e) => return fail(e),
    };
    match serve_store(&spec, options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(e),
    }
}

impl ServeArgs {
    fn lower(self) -> Result<(StoreSpec, EtcdOptions), String> {
        let ServeArgs {
            data_dir,
            listen_client_urls,
            cert_file,
            key_file,
            trusted_ca_file,
            insecure_loopback,
            watch_progress_notify_interval,
            quota_backend_bytes,
            name,
            log_level: _,
        } = self;
        let (address, is_tls) = read_url(&listen_client_urls)?;
        let mut options = EtcdOptions::new(address);
        options.insecure_loopback = insecure_loopback;
        options.progress_interval = watch_progress_notify_interval;
        options.name = name;
        options.tls = match (is_tls, cert_file, key_file, trusted_ca_file) {
            (true, Some(cert_file), Some(key_file), Some(client_ca_file)) => Some(EtcdTls {
                cert_file,
                key_file,
                client_ca_file,
            }),
            (true, ..) => {
                return Err(format!(
                    "{listen_client_urls} needs --cert-file, --key-file and --trusted-ca-file"
                ));
            }
            (false, None, None, None) => None,
            (false, ..) => {
                return Err(format!(
                    "{listen_client_urls} is not https, yet certificates are given; write https:// or leave them out"
                ));
            }
        };
        Ok((
            StoreSpec {
                dir: data_dir,
                quota_bytes: quota_backend_bytes,
            },
            options,
        ))
    }
}

/// An address and whether it is reached by TLS.
fn read_url(url: &str) -> Result<(SocketAddr, bool), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let is_tls = match scheme {
        "https" => true,
        "http" => false,
        _ => {
            return Err(format!(
                "--listen-client-urls {url}: write https://ADDRESS:PORT or http://ADDRESS:PORT"
            ));
        }
    };
    let rest = rest
        .trim_end_matches('/')
        .replace("localhost:", "127.0.0.1:");
    let address = rest.parse().map_err(|e| {
        format!("--listen-client-urls {url}: {rest} is not an address with a port: {e}")
    })?;
    Ok((address, is_tls))
}

/// A time such as `100ms`, `5s` or `10m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text} is not a time: write 100ms, 5s or 10m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| fault())?;
    match text.get(digits.len()..) {
        Some("ms") => Ok(Duration::from_millis(number)),
        Some("s") => Ok(Duration::from_secs(number)),
        Some("m") => number
            .checked_mul(60)
            .map(Duration::from_secs)
            .ok_or_else(fault),
        _ => Err(fault()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_times_are_read_or_refused_with_what_to_write() {
        assert_eq!(
            read_url("https://127.0.0.1:1"),
            Ok((([127, 0, 0, 1], 1).into(), true))
        );
        assert_eq!(
            read_url("http://localhost:9/"),
            Ok((([127, 0, 0, 1], 9).into(), false))
        );
        for wrong in [
            "127.0.0.1:1",
            "ftp://127.0.0.1:1",
            "https://example.com:1",
            "https://::1",
        ] {
            assert!(read_url(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert_eq!(time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        for wrong in ["5", "s", "5h", "-1s", "1.5s", ""] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
