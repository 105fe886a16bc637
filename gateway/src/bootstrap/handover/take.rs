//! The side of the new process.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use tokio::net::UnixStream;

use super::line::Line;
use super::{HELLO, HandoverError, LEAVING, READY, SOCKETS, STORE_FREE, STORE_WANTED};

/// A takeover that has begun. Dropped before [`Taking::ready`], the old process serves on.
pub(in crate::bootstrap) struct Taking {
    line: Line,
}

impl Taking {
    /// Asks the process behind `path` for its listening sockets. `None` when there is none, and
    /// this one simply starts.
    pub(in crate::bootstrap) async fn begin(
        path: &Path,
    ) -> Result<Option<(Self, Vec<TcpListener>)>, HandoverError> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) if nobody_is_there(error.kind()) => return Ok(None),
            Err(source) => {
                return Err(HandoverError::Socket {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let mut line = Line::new(stream);
        line.say(HELLO, &[]).await?;
        match line.hear().await? {
            Some((word, sockets)) if word == SOCKETS => {
                let sockets = sockets.into_iter().map(TcpListener::from).collect();
                Ok(Some((Taking { line }, sockets)))
            }
            // It ended at that moment.
            None => Ok(None),
            Some((said, _)) => Err(HandoverError::Strange { said }),
        }
    }

    /// Has the data directory let go. An old process that is gone has let go of it.
    pub(in crate::bootstrap) async fn data_directory(&mut self) -> Result<(), HandoverError> {
        self.exchange(STORE_WANTED, STORE_FREE).await
    }

    /// Says that this process serves from now on; the other one accepts nothing any more then.
    pub(in crate::bootstrap) async fn ready(mut self) -> Result<(), HandoverError> {
        self.exchange(READY, LEAVING).await
    }

    async fn exchange(&mut self, word: &str, answer: &str) -> Result<(), HandoverError> {
        if self.line.say(word, &[]).await.is_err() {
            return Ok(());
        }
        match self.line.hear().await? {
            None => Ok(()),
            Some((said, _)) if said == answer => Ok(()),
            Some((said, _)) => Err(HandoverError::Strange { said }),
        }
    }
}

/// Nothing at the path, or a file that an ended process has left there.
fn nobody_is_there(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}
