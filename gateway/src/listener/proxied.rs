//! The PROXY protocol, versions 1 and 2: a load balancer in front says whose connection it passes
//! on, before the first byte of TLS.
//!
//! Only asked of peers in the networks an operator has named, and of those always: whether one
//! comes cannot be guessed, since a client behind a balancer that sends none could then send its
//! own. Read to its exact end, so that what follows is left for TLS. Bounded by its own longest
//! form, in version 2 by [`V2_MAX`]; the caller bounds the time.

use std::net::SocketAddr;

use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// How version 2 begins; version 1 is text.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// How version 1 begins.
const V1_BEGIN: &[u8] = b"PROXY ";

/// The longest line of version 1, by its definition.
const V1_MAX: usize = 107;

/// The longest header of version 2 that is taken: addresses need 52 bytes at most, what balancers
/// add to them (names, identifiers of networks, a client certificate's name) some hundred.
const V2_MAX: usize = 2048;

/// What is read before the version is known: shorter than the shortest header.
const FIRST: usize = V2_SIGNATURE.len();

/// Signature, version, family and length.
const V2_HEAD: usize = FIRST + 4;

/// Why a connection from a named network is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderFault {
    /// Something else came.
    #[error(
        "it sent no PROXY header; make the balancer send one, or take it out of listen.proxyProtocolFrom"
    )]
    Missing,
    /// It is not to be understood.
    #[error("its PROXY header is malformed")]
    Malformed,
    /// It is longer than anything known.
    #[error("its PROXY header is longer than {V2_MAX} bytes")]
    TooLong,
    /// The connection broke off.
    #[error("it broke off within its PROXY header: {0}")]
    Broken(#[from] std::io::Error),
}

/// Reads the header off. `None` when the balancer speaks for itself, as for its health checks.
///
/// # Errors
/// [`HeaderFault`]; the connection cannot be used then.
pub(super) async fn source(stream: &mut TcpStream) -> Result<Option<SocketAddr>, HeaderFault> {
    let mut header = [0; V2_MAX];
    let (first, rest) = header.split_at_mut(FIRST);
    stream.read_exact(first).await?;
    let length = if *first == *V2_SIGNATURE {
        FIRST + read_v2(stream, rest).await?
    } else if first.starts_with(V1_BEGIN) {
        FIRST + read_line(stream, rest).await?
    } else {
        return Err(HeaderFault::Missing);
    };
    parse(header.get(..length).unwrap_or_default())
}

/// Reads what is after the signature; says how much that was.
async fn read_v2(stream: &mut TcpStream, into: &mut [u8]) -> Result<usize, HeaderFault> {
    let (head, rest) = into.split_at_mut(V2_HEAD - FIRST);
    stream.read_exact(head).await?;
    let length = match head {
        [_, _, high, low] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    let rest = rest.get_mut(..length).ok_or(HeaderFault::TooLong)?;
    stream.read_exact(rest).await?;
    Ok(head.len() + length)
}

/// Reads to the end of the line and not a byte further; says how much that was.
async fn read_line(stream: &mut TcpStream, into: &mut [u8]) -> Result<usize, HeaderFault> {
    let mut filled = 0;
    while let Some(room) = into.get_mut(filled..V1_MAX - FIRST)
        && !room.is_empty()
    {
        // What is looked at is taken at once, or looking again would not wait for more.
        let seen = stream.peek(room).await?;
        let seen = room.get_mut(..seen).unwrap_or_default();
        let end = seen.iter().position(|&byte| byte == b'\n');
        let take = end.map_or(seen.len(), |end| end + 1);
        if take == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        stream
            .read_exact(seen.get_mut(..take).unwrap_or_default())
            .await?;
        filled += take;
        if end.is_some() {
            return Ok(filled);
        }
    }
    Err(HeaderFault::Malformed)
}

/// Reads a whole header.
fn parse(header: &[u8]) -> Result<Option<SocketAddr>, HeaderFault> {
    let config = ParseConfig {
        include_tlvs: false,
        ..ParseConfig::default()
    };
    match ProxyHeader::parse(header, config) {
        Ok((parsed, length)) if length == header.len() => match parsed.proxied_address() {
            None => Ok(None),
            Some(address) if address.protocol == Protocol::Stream => Ok(Some(address.source)),
            // Nobody passes datagrams on over TCP.
            Some(_) => Err(HeaderFault::Malformed),
        },
        Ok(_) | Err(_) => Err(HeaderFault::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, length: u16, rest: &[u8]) -> Vec<u8> {
        let mut header = V2_SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend(length.to_be_bytes());
        header.extend(rest);
        header
    }

    /// What comes of these bytes when they arrive one by one, and what is left for TLS.
    async fn arriving(sent: &[u8]) -> Result<(Option<SocketAddr>, Vec<u8>), HeaderFault> {
        use tokio::io::AsyncWriteExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        client.set_nodelay(true).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let sent = sent.to_vec();
        tokio::spawn(async move {
            for byte in sent {
                // The other side may have given up.
                let _ = client.write_all(&[byte]).await;
                tokio::task::yield_now().await;
            }
            let _ = client.shutdown().await;
        });
        let source = source(&mut stream).await?;
        let mut left = Vec::new();
        stream.read_to_end(&mut left).await?;
        Ok((source, left))
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x1f, 0x90, 0x01, 0xbb];

    #[tokio::test]
    async fn headers_name_the_client_and_leave_the_rest() {
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        v6[15] = 9;
        v6[33] = 5;
        let with_more = [&V4[..], &[4, 0, 3, 1, 2, 3]].concat();
        for (header, source) in [
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.1 8080 443\r\n".to_vec(),
                Some("192.0.2.7:8080"),
            ),
            (
                b"PROXY TCP6 2001:db8::9 ::1 5 443\r\n".to_vec(),
                Some("[2001:db8::9]:5"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN whatever it was\r\n".to_vec(), None),
            (v2(0x21, 0x11, 12, &V4), Some("192.0.2.7:8080")),
            (v2(0x21, 0x11, 18, &with_more), Some("192.0.2.7:8080")),
            (v2(0x21, 0x21, 36, &v6), Some("[2001:db8::9]:5")),
            (v2(0x20, 0x00, 0, &[]), None),
            (v2(0x20, 0x11, 12, &V4), None),
            (v2(0x21, 0x00, 0, &[]), None),
            (v2(0x21, 0x31, 216, &[0; 216]), None),
        ] {
            let text = String::from_utf8_lossy(&header).into_owned();
            let sent = [&header[..], b"\x16\x03\x01 and TLS goes on"].concat();
            let (found, left) = arriving(&sent).await.unwrap();
            let expected = source.map(|text| text.parse().unwrap());
            assert_eq!(found, expected, "{text:?}");
            assert_eq!(left, b"\x16\x03\x01 and TLS goes on", "{text:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200], b"\r\n"].concat();
        let unknown = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200], b"\r\n"].concat();
        let hello = [b"\x16\x03\x01".as_slice(), &[0; 40]].concat();
        let cases: Vec<Vec<u8>> = vec![
            Vec::new(),
            hello,
            long,
            unknown,
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"PROXYTCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
            b"proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 1 70000\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4 2001:db8::9 ::1 1 2\r\n".to_vec(),
            b"PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4  192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\n".to_vec(),
            b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY \xff\xfe\xfd\xfc 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.".to_vec(),
            v2(0x11, 0x11, 12, &V4),
            v2(0x22, 0x11, 12, &V4),
            v2(0x21, 0x41, 12, &V4),
            v2(0x21, 0x11, 11, &V4[..11]),
            v2(0x21, 0x21, 12, &V4),
            v2(0x21, 0x12, 12, &V4),
            v2(0x21, 0x31, 12, &V4),
            v2(0x21, 0x11, 12, &V4[..4]),
            v2(0x21, 0x11, u16::MAX, &[0; 4096]),
        ];
        for sent in cases {
            let came = arriving(&sent).await;
            assert!(
                came.is_err(),
                "{:?}: {came:?}",
                String::from_utf8_lossy(&sent)
            );
        }
    }
}
