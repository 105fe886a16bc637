//! The side of the old process.

use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::line::Line;
use super::{HELLO, HandoverError, LEAVING, READY, SOCKETS, STORE_FREE, STORE_WANTED};

/// For the first word: a process that wants to take over has it ready.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// After an accept failed, before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the next process asks for.
pub(in crate::bootstrap) enum Asked {
    /// The data directory; the answer says that it is free.
    Store(oneshot::Sender<()>),
    /// That nothing is accepted here any more; the answer says so.
    Leave {
        /// The next process.
        successor: Option<i32>,
        /// The answer.
        left: oneshot::Sender<()>,
    },
    /// Nothing any more: it went away after it was given the data directory.
    Gone,
}

/// Waits for the next process, one at a time.
pub(in crate::bootstrap) struct Giver {
    asked: mpsc::Receiver<Asked>,
    task: JoinHandle<()>,
}

impl Giver {
    /// Listens at `path` for somebody who wants these sockets. What lies there is an ended
    /// process's: whoever has the addresses is the only one of its kind.
    pub(in crate::bootstrap) fn listen(
        path: &Path,
        sockets: Vec<TcpListener>,
    ) -> Result<Self, HandoverError> {
        let fault = |source| HandoverError::Socket {
            path: path.to_owned(),
            source,
        };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fault(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(fault)?;
        let own_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, own_only).map_err(fault)?;
        let (ask, asked) = mpsc::channel(1);
        let task = tokio::spawn(accept(listener, sockets, ask));
        Ok(Giver { asked, task })
    }

    /// What is asked for next.
    ///
    /// # Cancellation
    /// Loses nothing.
    pub(in crate::bootstrap) async fn next(&mut self) -> Asked {
        match self.asked.recv().await {
            Some(asked) => asked,
            // Its task is over, and with it the chance of a handover.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: UnixListener, sockets: Vec<TcpListener>, ask: mpsc::Sender<Asked>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot hear the next process");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let mut line = Line::new(stream);
        let mut has_store = false;
        match talk(&mut line, &sockets, &ask, &mut has_store).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the line to the next process broke"),
        }
        if has_store {
            // An error means that this process is ending anyway.
            let _ = ask.send(Asked::Gone).await;
        }
    }
}

/// Serves one who wants to take over; true once it has.
async fn talk(
    line: &mut Line,
    sockets: &[TcpListener],
    ask: &mpsc::Sender<Asked>,
    has_store: &mut bool,
) -> std::io::Result<bool> {
    let hello = tokio::time::timeout(HELLO_MAX, line.hear()).await;
    let is_known = matches!(hello, Ok(Ok(Some((word, _)))) if word == HELLO);
    let successor = line.process();
    if !is_known || !line.is_own() {
        tracing::warn!(?successor, "somebody else spoke on the upgrade socket");
        return Ok(false);
    }
    tracing::info!(?successor, "the next process takes the listening sockets");
    let borrowed: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
    line.say(SOCKETS, &borrowed).await?;
    while let Some((word, _)) = line.hear().await? {
        let (answer, answered) = oneshot::channel();
        let (asked, word) = match word.as_str() {
            STORE_WANTED => {
                *has_store = true;
                (Asked::Store(answer), STORE_FREE)
            }
            READY => {
                let left = answer;
                (Asked::Leave { successor, left }, LEAVING)
            }
            _ => return Ok(false),
        };
        if ask.send(asked).await.is_err() || answered.await.is_err() {
            return Ok(false);
        }
        if word == LEAVING {
            *has_store = false;
        }
        line.say(word, &[]).await?;
        if word == LEAVING {
            return Ok(true);
        }
    }
    tracing::warn!(?successor, "the next process went away before it was ready");
    Ok(false)
}

/// Starts this program again, from the file it was started from, with the same arguments, to take
/// over from this process.
pub(in crate::bootstrap) fn spawn_successor() -> std::io::Result<()> {
    const UPGRADE: &str = "--upgrade";
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let mut child = tokio::process::Command::new(program)
        .args(args.filter(|arg| arg != UPGRADE))
        .arg(UPGRADE)
        .spawn()?;
    tracing::info!(process = child.id(), "started the next process");
    tokio::spawn(async move {
        if let Ok(status) = child.wait().await {
            tracing::warn!(%status, "the next process has ended");
        }
    });
    Ok(())
}
