//! TCP options of both sides of the gateway: small writes leave at once, and a peer that is gone
//! without a word is noticed by the kernel, too.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A silent peer is asked after this long; HTTP/2 pings ask sooner, tunnels have only this.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// Sets the options. `unacknowledged_max` is how long sent bytes may stay unacknowledged.
///
/// A socket that refuses an option still carries bytes, so that is logged and no error.
pub(crate) fn tune(socket: &TcpStream, unacknowledged_max: Duration) {
    if let Err(error) = try_tune(socket, unacknowledged_max) {
        tracing::debug!(%error, "socket option not set");
    }
}

fn try_tune(socket: &TcpStream, unacknowledged_max: Duration) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    set_unacknowledged_max(socket, unacknowledged_max)
}

#[cfg(target_os = "linux")]
fn set_unacknowledged_max(socket: &TcpStream, max: Duration) -> std::io::Result<()> {
    let millis = u32::try_from(max.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket, millis)?)
}

#[cfg(not(target_os = "linux"))]
fn set_unacknowledged_max(_socket: &TcpStream, _max: Duration) -> std::io::Result<()> {
    Ok(())
}
