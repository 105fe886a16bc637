//! HTTP/2 as bytes, for clients that no library would let be.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::rig::Rig;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A frame as it travels.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(content.len()).unwrap().to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(content);
    bytes
}

/// A field with its name and value spelt out and remembered by nobody.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.as_bytes());
    }
    bytes
}

pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = fields.iter();
    fields
        .flat_map(|(name, value)| field(name, value))
        .collect()
}

/// The head of a GET, as every client sends it.
pub(crate) const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/api/v1/pods"),
];

/// A frame as it came: kind and content.
pub(crate) struct Came {
    pub(crate) kind: u8,
    pub(crate) content: Vec<u8>,
}

/// A connection that has said its preface and empty settings.
pub(crate) async fn connect(rig: &Rig) -> TlsStream<TcpStream> {
    let mut stream = rig.tls(&[b"h2"]).await;
    let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    hello.extend(frame(SETTINGS, 0, 0, &[]));
    stream.write_all(&hello).await.unwrap();
    stream
}

/// The next frame; `None` when the connection has ended, however it did.
pub(crate) async fn next<S: tokio::io::AsyncRead + Unpin>(stream: &mut S) -> Option<Came> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut content = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut content).await.ok()?;
    Some(Came {
        kind: head[3],
        content,
    })
}
