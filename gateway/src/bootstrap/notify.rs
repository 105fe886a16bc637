//! Tells a supervisor that speaks systemd's protocol how the process stands; without one, nobody.

#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says one thing, such as `READY=1`. A supervisor that cannot be told is logged and no error.
pub(super) fn notify(state: &str) {
    if let Err(error) = try_notify(state) {
        tracing::warn!(%error, state, "cannot tell the supervisor");
    }
}

fn try_notify(state: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
