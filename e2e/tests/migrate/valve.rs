//! A TCP proxy that lets so many bytes of the answers pass and then holds, until it is told to go on:
//! whoever reads through it is surely in the middle of it then.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// See the module. It ends with the test's runtime.
pub(crate) struct Valve {
    pub(crate) url: String,
    /// Bytes that may pass, of all connections together.
    allowed: watch::Sender<u64>,
    passed: watch::Sender<u64>,
}

impl Valve {
    /// In front of an `http://` URL.
    pub(crate) async fn new(url: &str, bytes: u64) -> Valve {
        let target = url.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (allowed, passed) = (watch::Sender::new(bytes), watch::Sender::new(0));
        let (may, did) = (allowed.clone(), passed.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                let (mut from_client, to_client) = client.into_split();
                let (from_server, mut to_server) = server.into_split();
                tokio::spawn(async move {
                    let _ended = tokio::io::copy(&mut from_client, &mut to_server).await;
                });
                tokio::spawn(pass(from_server, to_client, may.subscribe(), did.clone()));
            }
        });
        Valve {
            url,
            allowed,
            passed,
        }
    }

    /// Waits until it holds.
    pub(crate) async fn holds(&self) {
        let allowed = *self.allowed.borrow();
        let mut passed = self.passed.subscribe();
        let held = passed.wait_for(|passed| *passed >= allowed);
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, held)
            .await
            .expect("the valve's bytes to be read")
            .unwrap();
    }

    /// Lets everything pass from now on.
    pub(crate) fn open(&self) {
        self.allowed.send_replace(u64::MAX);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut allowed: watch::Receiver<u64>,
    passed: watch::Sender<u64>,
) {
    let mut buffer = vec![0; 4096];
    while let Ok(read) = from.read(&mut buffer).await {
        let so_far = *passed.borrow();
        let may = allowed
            .wait_for(|allowed| *allowed > so_far)
            .await
            .map(drop);
        if read == 0 || may.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        passed.send_modify(|passed| *passed += read as u64);
    }
}
