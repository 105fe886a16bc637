//! Words, one a line, and sockets with them, over a Unix socket. Each side waits for the other's
//! word before its own next one, so that the two never overlap.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Sockets in one word: a process has three addresses.
const SOCKETS_MAX: usize = 8;

/// The longest word; a stranger's is not read on.
const WORD_MAX: usize = 256;

pub(super) struct Line {
    stream: UnixStream,
}

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        Line { stream }
    }

    /// Says a word, and hands sockets over with it.
    pub(super) async fn say(&self, word: &str, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = format!("{word}\n");
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
                return Err(io::Error::other("more sockets than can be handed over"));
            }
            let parts = [IoSlice::new(text.as_bytes())];
            Ok(sendmsg(
                &self.stream,
                &parts,
                &mut control,
                SendFlags::NOSIGNAL,
            )?)
        };
        let sent = self.stream.async_io(Interest::WRITABLE, send).await?;
        if sent == text.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// The other side's next word with its sockets; `None` when it has gone.
    pub(super) async fn hear(&mut self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        let mut text = Vec::new();
        let mut sockets = Vec::new();
        while !text.ends_with(b"\n") {
            let mut piece = [0; WORD_MAX];
            let mut receive = || {
                let mut space =
                    [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let mut parts = [IoSliceMut::new(&mut piece)];
                let flags = RecvFlags::CMSG_CLOEXEC;
                let received = recvmsg(&self.stream, &mut parts, &mut control, flags)?;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(given) = message {
                        sockets.extend(given);
                    }
                }
                Ok(received.bytes)
            };
            let count = match self.stream.async_io(Interest::READABLE, &mut receive).await {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                Err(error) => return Err(error),
            };
            if count == 0 || text.len() + count > WORD_MAX {
                return Ok(None);
            }
            text.extend_from_slice(piece.get(..count).unwrap_or_default());
        }
        let word = String::from_utf8_lossy(&text).trim_end().to_owned();
        Ok(Some((word, sockets)))
    }

    /// The other side's process, where the system says.
    pub(super) fn process(&self) -> Option<i32> {
        self.stream.peer_cred().ok()?.pid()
    }

    /// Whether the other side is the same user.
    pub(super) fn is_own(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.stream.peer_cred().is_ok_and(|who| who.uid() == own)
    }
}
