//! The bounds of a listener, each with the reason for its default.

use std::sync::Arc;
use std::time::Duration;

use crate::networks::Networks;

/// What a listener grants to clients that nobody knows yet.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Connections at once. A node has two or three; 50,000 nodes behind three replicas need
    /// 50,000 each, and a connection at rest costs some 16 KiB.
    pub connections_max: usize,
    /// TLS handshakes at once. Each is a millisecond of CPU; more in flight only makes all late.
    pub handshakes_max: usize,
    /// From accept to the end of the handshake, waiting for a place included.
    pub handshake_timeout: Duration,
    /// From the handshake to the first request: clients connect because they have one.
    pub first_request_timeout: Duration,
    /// HTTP/1.1: for a request head, and between requests; Go's servers idle out at 90 s.
    pub http1_idle_timeout: Duration,
    /// All header fields of a request. Bearer tokens with many groups reach 20 KiB.
    pub header_bytes_max: u32,
    /// HTTP/1.1 header lines of a request; `--as-group` makes one a group.
    pub header_count_max: usize,
    /// HTTP/2 streams of a connection: a kubelet holds a watch a secret, Go opens a second
    /// connection when these run out.
    pub streams_max: u32,
    /// HTTP/2 bytes of an upload taken before someone reads them, per stream.
    pub stream_window: u32,
    /// The same for the connection: seven stuck uploads do not stop the eighth.
    pub connection_window: u32,
    /// HTTP/2 pings find a dead client: `ping_interval` + `ping_timeout` after its last frame.
    pub ping_interval: Duration,
    /// See `ping_interval`.
    pub ping_timeout: Duration,
    /// Requests reset within `hurry`'s moment that a connection may have in its
    /// window, before it is closed (CVE-2023-44487).
    pub hasty_resets_max: u32,
    /// Balancers that say before TLS whose connection they pass on (the PROXY protocol): from
    /// them a connection without that is refused, from others one with it.
    pub proxied_from: Networks,
    /// Proxies that say in a header whose request they pass on.
    pub forwarded_from: Arc<Networks>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            connections_max: 65_536,
            handshakes_max: 256,
            handshake_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(10),
            http1_idle_timeout: Duration::from_secs(90),
            header_bytes_max: 64 * 1024,
            header_count_max: 256,
            streams_max: 250,
            stream_window: 256 * 1024,
            connection_window: 2 * 1024 * 1024,
            ping_interval: Duration::from_secs(15),
            ping_timeout: Duration::from_secs(10),
            hasty_resets_max: 100,
            proxied_from: Networks::default(),
            forwarded_from: Arc::default(),
        }
    }
}
