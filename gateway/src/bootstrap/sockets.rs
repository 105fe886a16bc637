//! The addresses of a process, all taken before anything slow is done, and handed on as they are at
//! an upgrade.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use sluice_config::GatewayConfig;
use tokio::net::TcpSocket;

use super::{BootstrapError, lower_etcd};
use crate::listener::{BindError, Listener, ListenerOptions};
use crate::networks::Networks;

/// Connections that wait to be accepted: what comes while nobody accepts, at an upgrade, is a few
/// thousand reconnects. The kernel's own bound (`net.core.somaxconn`, 4096) holds as well.
const BACKLOG: u32 = 4096;

/// Listening, not accepting.
pub(super) struct Sockets {
    front: TcpListener,
    admin: Option<TcpListener>,
    etcd: Option<TcpListener>,
}

/// Ready to accept.
pub(super) struct Listeners {
    pub(super) front: Listener,
    pub(super) admin: Option<tokio::net::TcpListener>,
    pub(super) etcd: Option<sluice_metastore::etcd::Listener>,
}

impl Sockets {
    /// Takes of `given` what listens at an address of the process file, and binds the rest.
    pub(super) fn bind(
        config: &GatewayConfig,
        mut given: Vec<TcpListener>,
    ) -> Result<Self, BootstrapError> {
        let mut take = |address| listen(address, &mut given);
        let etcd = config.metastore.as_ref().and_then(|it| it.etcd.as_ref());
        Ok(Sockets {
            front: take(config.listen.address.get())?,
            admin: match &config.admin {
                Some(admin) => Some(take(admin.address.get())?),
                None => None,
            },
            etcd: match etcd {
                Some(etcd) => Some(take(etcd.address.get())?),
                None => None,
            },
        })
    }

    /// The same sockets once more; they listen until the last one is closed.
    pub(super) fn try_clone(&self) -> std::io::Result<Self> {
        let clone = |socket: &Option<TcpListener>| {
            let socket = socket.as_ref();
            socket.map(TcpListener::try_clone).transpose()
        };
        Ok(Sockets {
            front: self.front.try_clone()?,
            admin: clone(&self.admin)?,
            etcd: clone(&self.etcd)?,
        })
    }

    /// All of them, to be handed on.
    pub(super) fn into_all(self) -> Vec<TcpListener> {
        let Sockets { front, admin, etcd } = self;
        [Some(front), admin, etcd].into_iter().flatten().collect()
    }

    /// Makes listeners of them.
    pub(super) async fn open(self, config: &GatewayConfig) -> Result<Listeners, BootstrapError> {
        let front = Listener::over(self.front, lower_listen(&config.listen))?;
        tracing::info!(address = %front.address(), "the Kubernetes API is served");
        let admin = match self.admin {
            Some(socket) => {
                let socket = tokio::net::TcpListener::from_std(socket)?;
                tracing::info!(address = %socket.local_addr()?, "the admin API is served");
                Some(socket)
            }
            None => None,
        };
        let metastore = config.metastore.as_ref();
        let etcd = metastore.and_then(|store| store.value.etcd.as_ref());
        let etcd = match (etcd, self.etcd) {
            (Some(etcd), Some(socket)) => {
                let socket = tokio::net::TcpListener::from_std(socket)?;
                let options = lower_etcd(&etcd.value);
                Some(sluice_metastore::etcd::Listener::over(options, vec![socket]).await?)
            }
            _ => None,
        };
        Ok(Listeners { front, admin, etcd })
    }
}

fn listen(address: SocketAddr, given: &mut Vec<TcpListener>) -> Result<TcpListener, BindError> {
    let is_there = |socket: &TcpListener| socket.local_addr().is_ok_and(|at| at == address);
    if let Some(place) = given.iter().position(is_there) {
        return Ok(given.swap_remove(place));
    }
    let bind = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    bind().map_err(|source| BindError { address, source })
}

fn lower_listen(config: &sluice_config::Listen) -> ListenerOptions {
    let sluice_config::Listen {
        address: _,
        tls: _,
        proxy_protocol_from,
        forwarded_for_from,
    } = config;
    let networks = |list: &[sluice_config::Located<sluice_config::Network>]| {
        Networks::new(list.iter().map(|network| network.get()))
    };
    ListenerOptions {
        proxied_from: networks(proxy_protocol_from),
        forwarded_from: Arc::new(networks(forwarded_for_from)),
        ..ListenerOptions::default()
    }
}
