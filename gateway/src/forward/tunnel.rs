//! A tunnel that stands: bytes in both directions until both sides have ended, one breaks, or the
//! gateway has to end it, which the client is told between two frames. Silence ends no tunnel: TCP
//! keepalive on both sides finds peers that are gone. Bound: [`COPY_BYTES`] a direction.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::tenure::Tenure;
use super::wire::{Why, Wire};
use crate::context::Tether;
use crate::upstream::{ClusterCounters, Ticket};

/// From our 101 until both sockets are handed over.
const HANDOVER_MAX: Duration = Duration::from_secs(10);

/// Bytes in flight in each direction of a tunnel.
const COPY_BYTES: usize = 16 * 1024;

/// How long the end of a frame is waited for, when it is time to end.
const BETWEEN_MAX: Duration = Duration::from_millis(200);

/// How long a client has to close its side once it was told why: closed before it has read that,
/// its socket would lose it.
const FAREWELL_MAX: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Tunnel {
    _ticket: Ticket,
    open: Open,
    tenure: Tenure,
    wire: Wire,
    tether: Option<Arc<Tether>>,
}

impl Tunnel {
    pub(super) fn new(
        ticket: Ticket,
        counters: &Arc<ClusterCounters>,
        tenure: Tenure,
        wire: Wire,
        tether: Option<Arc<Tether>>,
    ) -> Self {
        Tunnel {
            _ticket: ticket,
            open: Open::new(counters),
            tenure,
            wire,
            tether,
        }
    }

    /// Carries bytes until the tunnel is over.
    pub(super) async fn run(
        self,
        client: OnUpgrade,
        upstream: OnUpgrade,
        ending: CancellationToken,
    ) {
        let Tunnel {
            _ticket,
            open,
            tenure,
            mut wire,
            tether,
        } = self;
        let joined = async { tokio::try_join!(client, upstream) };
        let joined = tokio::time::timeout(HANDOVER_MAX, joined).await;
        let Ok(Ok((client, upstream))) = joined else {
            tracing::debug!("a side left before its tunnel stood");
            return;
        };
        let (client, upstream): (TokioIo<Upgraded>, TokioIo<Upgraded>) =
            (TokioIo::new(client), TokioIo::new(upstream));
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
        let traffic = tenure.traffic();
        let counters = &open.0;
        let up = Count(&traffic.up, &counters.tunnel_bytes_up);
        let down = Count(&traffic.down, &counters.tunnel_bytes_down);
        let said = CancellationToken::new();
        let upward = async {
            tokio::select! {
                copied = up.copy(&mut from_client, &mut to_upstream) => copied,
                // Bytes of a client that was told are still read, and go nowhere.
                () = async { said.cancelled().await; tokio::time::sleep(FAREWELL_MAX).await } => Ok(()),
            }
        };
        let downward = async {
            let ending = (&ending, tether.as_deref());
            let told = down.copy_framed(&mut from_upstream, &mut to_client, &mut wire, ending);
            if told.await? {
                said.cancel();
            }
            Ok(())
        };
        let copied: io::Result<((), ())> = tokio::try_join!(upward, downward);
        let (up, down) = (traffic.up(), traffic.down());
        match copied {
            Ok(_) => tracing::debug!(up, down, "tunnel ended"),
            Err(error) => tracing::debug!(up, down, %error, "tunnel broke"),
        }
    }
}

/// Where the bytes of one direction are counted.
struct Count<'a>(&'a AtomicU64, &'a AtomicU64);

impl Count<'_> {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
        self.1.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Copies to the end, and passes the end on.
    async fn copy(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return to.shutdown().await;
            }
            pass(&buffer, count, to).await?;
            self.add(count);
        }
    }

    /// As [`Count::copy`]; when it is time to end, says so behind a whole frame. True if it has.
    async fn copy_framed(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        wire: &mut Wire,
        (ending, tether): (&CancellationToken, Option<&Tether>),
    ) -> io::Result<bool> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut is_ending = false;
        let mut torn = std::pin::pin!(async {
            ending.cancelled().await;
            tokio::time::sleep(BETWEEN_MAX).await;
        });
        loop {
            if is_ending && wire.is_between() {
                let why = match tether {
                    Some(tether) if tether.is_disowned() => Why::Disowned,
                    _ => Why::Stopping,
                };
                to.write_all(&wire.farewell(why)).await?;
                to.shutdown().await?;
                return Ok(true);
            }
            let count = tokio::select! {
                biased; // what has come is passed on, but not for ever
                // Inside a frame nothing can be said.
                () = &mut torn, if is_ending => {
                    return Err(io::Error::other("ended inside a frame, where nothing can be said"));
                }
                count = from.read(&mut buffer) => count?,
                () = ending.cancelled(), if !is_ending => {
                    is_ending = true;
                    continue;
                }
            };
            if count == 0 {
                to.shutdown().await?;
                return Ok(false);
            }
            wire.walk(buffer.get(..count).unwrap_or_default());
            pass(&buffer, count, to).await?;
            self.add(count);
        }
    }
}

async fn pass(buffer: &[u8], count: usize, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    to.write_all(buffer.get(..count).unwrap_or_default())
        .await?;
    to.flush().await
}

/// Counts a tunnel as long as it stands.
struct Open(Arc<ClusterCounters>);

impl Open {
    fn new(counters: &Arc<ClusterCounters>) -> Self {
        counters.tunnels_open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(counters))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.tunnels_open.fetch_sub(1, Ordering::Relaxed);
    }
}
