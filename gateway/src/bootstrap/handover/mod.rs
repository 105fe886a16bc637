//! One process hands its listening sockets, and then its data directory, to the next one.
//!
//! ```text
//!  new                                  old
//!   | hello ------------------------->   | serves on
//!   | <------------- sockets (SCM_RIGHTS)|
//!   | reads files, probes clusters       |
//!   | store? ------------------------>   | lets the store's clients end, closes the store
//!   | <------------------------- store!  |
//!   | opens the store                    |
//!   | ready ------------------------->   | accepts no more
//!   | <------------------------ leaving  | drains, ends
//! ```
//! Over a Unix socket that only the same user may open. The listening sockets are never closed:
//! whoever connects while nobody accepts waits in the kernel's queue. Until it is ready the new
//! process may fail at any point: the old one hears its line break, and serves on, after it has
//! opened its store again where that was let go. Without a store the old one never stops.
//! Knows nothing of what is served.

mod give;
mod line;
mod take;

use std::path::PathBuf;

pub(super) use give::{Asked, Giver, spawn_successor};
pub(super) use take::Taking;

/// The first word of a new process; changes with the words.
const HELLO: &str = "sluice-upgrade-1";
const SOCKETS: &str = "sockets";
const STORE_WANTED: &str = "store?";
const STORE_FREE: &str = "store!";
const READY: &str = "ready";
const LEAVING: &str = "leaving";

/// Why a process cannot take over, or cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The socket cannot be used.
    #[error("upgrade socket {}: {source}; name a path in a folder of this process's own user", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The process file names none.
    #[error("--upgrade needs `upgradeSocket` in the process file, of the running process too")]
    NoSocket,
    /// The other one speaks otherwise.
    #[error(
        "the running process answered {said:?}; it is of another kind, end it and start this one without --upgrade"
    )]
    Strange {
        /// Its words.
        said: String,
    },
    /// The line broke.
    #[error("the line to the other process broke: {0}")]
    Line(#[from] std::io::Error),
    /// What is needed to serve is not there.
    #[error("not ready within {after:?}, the running process serves on: {why}")]
    NotReady {
        /// How long it was waited for.
        after: std::time::Duration,
        /// What is missing.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn listening() -> TcpListener {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    #[tokio::test]
    async fn sockets_and_store_change_hands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upgrade.sock");
        let nobody = Taking::begin(&path).await.unwrap();
        assert!(nobody.is_none(), "nobody is there");
        let sockets = vec![listening(), listening()];
        let addresses: Vec<_> = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
        let mut giver = Giver::listen(&path, sockets).unwrap();
        let old = tokio::spawn(async move {
            let mut heard = Vec::new();
            loop {
                match giver.next().await {
                    Asked::Store(done) => {
                        heard.push("store");
                        done.send(()).unwrap();
                    }
                    Asked::Leave { left, .. } => {
                        heard.push("leave");
                        left.send(()).unwrap();
                        return heard;
                    }
                    Asked::Gone => heard.push("gone"),
                }
            }
        });
        // The first one fails after it was given the store, the second one before.
        let (mut first, given) = Taking::begin(&path).await.unwrap().unwrap();
        let given: Vec<_> = given.iter().map(|s| s.local_addr().unwrap()).collect();
        assert_eq!(given, addresses);
        first.data_directory().await.unwrap();
        drop(first);
        drop(Taking::begin(&path).await.unwrap().unwrap());
        let (mut third, _) = Taking::begin(&path).await.unwrap().unwrap();
        third.data_directory().await.unwrap();
        third.ready().await.unwrap();
        assert_eq!(old.await.unwrap(), ["store", "gone", "store", "leave"]);
    }

    #[tokio::test]
    async fn a_stranger_is_hung_up_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upgrade.sock");
        let _giver = Giver::listen(&path, vec![listening()]).unwrap();
        let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let mut stranger = line::Line::new(stream);
        stranger.say("GET / HTTP/1.1", &[]).await.unwrap();
        assert!(stranger.hear().await.unwrap().is_none());
        // And the next one is heard.
        assert!(Taking::begin(&path).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn an_old_one_that_dies_leaves_everything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upgrade.sock");
        let giver = Giver::listen(&path, vec![listening()]).unwrap();
        let (mut taking, given) = Taking::begin(&path).await.unwrap().unwrap();
        assert_eq!(given.len(), 1);
        drop(giver);
        taking.data_directory().await.unwrap();
        taking.ready().await.unwrap();
    }
}
