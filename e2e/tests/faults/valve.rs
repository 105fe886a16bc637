//! A forwarder between two parties that stops forwarding and closes nothing: both see a peer that is
//! there and silent. (What the kernel acknowledges it still does; a dropped packet would not be.)

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// See the module.
pub(crate) struct Valve {
    pub(crate) port: u16,
    frozen: CancellationToken,
    forwarding: JoinHandle<()>,
}

impl Valve {
    /// An open one in front of a port of this machine.
    pub(crate) fn to(port: u16) -> Valve {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let at = listener.local_addr().unwrap().port();
        let frozen = CancellationToken::new();
        let stop = frozen.clone();
        let forwarding = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, port, stop.clone()));
            }
        });
        Valve {
            port: at,
            frozen,
            forwarding,
        }
    }

    /// Nothing passes any more, on connections old and new.
    pub(crate) fn freeze(&self) {
        self.frozen.cancel();
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.forwarding.abort();
    }
}

async fn forward(near: TcpStream, port: u16, frozen: CancellationToken) {
    if frozen.is_cancelled() {
        // It was accepted, and that is all.
        std::future::pending::<()>().await;
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let up = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from_near.read(&mut buffer).await {
            if to_far.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from_far.read(&mut buffer).await {
            if to_near.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased; // closed at once
        () = frozen.cancelled() => {}
        () = up => return,
        () = down => return,
    }
    // Both sockets stay open.
    std::future::pending::<()>().await;
}
