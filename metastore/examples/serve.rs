//! A metastore with an etcd listener and nothing else, for trying it by hand and for suites of
//! others that start a server per test.
//!
//! ```text
//! serve --data-dir DIR --listen-client-urls http://127.0.0.1:2379
//!       [--watch-progress-notify-interval 5s] [--name NAME]
//!       [--cert-file F --key-file F --trusted-ca-file F]
//! ```
//!
//! Without a data directory everything is in memory. `http://` URLs must be loopback ones.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sluice_metastore::engine::Engine;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::{EtcdOptions, EtcdSocket, EtcdTls, Listener};
use sluice_metastore::store::{Store, StoreOptions};
use tokio_util::sync::CancellationToken;

/// As in the product, so that what is measured here is what is served there.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(run()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let mut data_dir = None;
    let mut url = "http://127.0.0.1:2379".to_owned();
    let mut options = EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let (mut cert, mut key, mut ca) = (None, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), value.to_owned()),
            None => {
                let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
                (arg, value)
            }
        };
        match flag.as_str() {
            "--data-dir" => data_dir = Some(PathBuf::from(value)),
            "--listen-client-urls" => url = value,
            "--name" => options.name = value,
            "--watch-progress-notify-interval" => {
                // Zero is etcd's way to say "as usual", which is ten minutes there.
                let interval = Some(duration(&value)?).filter(|interval| !interval.is_zero());
                options.progress_interval = interval.unwrap_or(Duration::from_secs(600));
            }
            "--cert-file" => cert = Some(PathBuf::from(value)),
            "--key-file" => key = Some(PathBuf::from(value)),
            "--trusted-ca-file" => ca = Some(PathBuf::from(value)),
            other => return Err(format!("unknown flag {other}")),
        }
    }
    let (scheme, address) = url
        .split_once("://")
        .ok_or_else(|| format!("{url} is not an http or https URL"))?;
    let address = address
        .parse()
        .map_err(|error| format!("{address}: {error}"))?;
    options.sockets = vec![EtcdSocket::new(address)];
    match (scheme, cert, key, ca) {
        ("http", None, None, None) => options.insecure_loopback = true,
        ("https", Some(cert_file), Some(key_file), Some(client_ca_file)) => {
            options.tls = Some(EtcdTls {
                cert_file,
                key_file,
                client_ca_file: Some(client_ca_file),
                ..EtcdTls::default()
            });
        }
        _ => return Err("https needs --cert-file, --key-file and --trusted-ca-file".to_owned()),
    }
    serve(data_dir, options).await
}

async fn serve(data_dir: Option<PathBuf>, options: EtcdOptions) -> Result<(), String> {
    let listener = Listener::bind(options)
        .await
        .map_err(|error| error.to_string())?;
    let engine: Arc<dyn Engine> = match data_dir {
        Some(dir) => {
            Embedded::open(EmbeddedOptions::new(dir)).map_err(|error| error.to_string())?
        }
        None => Memory::new(),
    };
    let opened = tokio::task::spawn_blocking(|| Store::open(engine, StoreOptions::default()));
    let store = opened.await.map_err(|error| error.to_string())?;
    let store = store.map_err(|error| error.to_string())?;
    let shutdown = CancellationToken::new();
    println!(
        "ready to serve client requests on {}",
        listener.local_addr()
    );
    let serving = tokio::spawn(listener.serve(store.clone(), shutdown.clone()));
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| error.to_string())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    shutdown.cancel();
    serving.await.map_err(|error| error.to_string())?;
    store.close().await;
    Ok(())
}

/// A duration as Go writes it: "10m0s", "100ms".
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text}: a duration is numbers with h, m, s or ms, such as 1m30s");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        total += match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number * 60),
            "h" => Duration::from_secs(number * 3600),
            _ => return Err(wrong()),
        };
        rest = tail;
    }
    Ok(total)
}
