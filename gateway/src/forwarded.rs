//! Which client a proxy in front, that ends TLS itself, says a request is from.
//!
//! Believed of peers in the networks an operator has named, and of nobody else. `X-Forwarded-For` is
//! read from its end, where the nearest proxy has written: named ones are passed over, and the first
//! other address is the client. What is before that a client may have made up, and what cannot be
//! read ends the walk. `X-Real-IP` counts where there is no `X-Forwarded-For`.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

use crate::context::Connection;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Entries looked at: nobody has more proxies of their own in a row, and the list may be long.
const HOPS_MAX: usize = 16;

/// Where a request really comes from; the port is 0 when only an address is known.
#[must_use]
pub fn client(connection: &Connection, headers: &HeaderMap) -> SocketAddr {
    let Some(proxies) = &connection.forwarders else {
        return connection.peer;
    };
    let mut client = None;
    let lines = headers.get_all(X_FORWARDED_FOR);
    let entries = lines
        .iter()
        .rev()
        .flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
    for entry in entries.take(HOPS_MAX) {
        let Some(address) = read(entry) else { break };
        client = Some(address);
        if !proxies.contains(address) {
            break;
        }
    }
    if client.is_none() && !headers.contains_key(X_FORWARDED_FOR) {
        let real = headers.get(X_REAL_IP);
        client = real.and_then(|value| read(value.as_bytes()));
    }
    client.map_or(connection.peer, |address| SocketAddr::new(address, 0))
}

/// An address as proxies write it: bare, or with a port, an IPv6 one then in brackets.
fn read(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim();
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        inner.parse::<IpAddr>().ok()
    };
    let address = bare.or_else(with_port).or_else(bracketed)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::networks::Networks;

    fn of(peer: &str, lines: &[(&str, &str)]) -> String {
        let peer: SocketAddr = peer.parse().unwrap();
        let proxies = Networks::new(["10.0.0.0/8".parse().unwrap()]);
        let mut connection = Connection::new(peer, peer, crate::clock::now());
        connection.forwarders = proxies.contains(peer.ip()).then(|| Arc::new(proxies));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        client(&connection, &headers).to_string()
    }

    #[test]
    fn only_named_proxies_are_believed_and_only_as_far_as_they_reach() {
        const FOR: &str = "x-forwarded-for";
        const REAL: &str = "x-real-ip";
        const PROXY: &str = "10.0.0.1:7";
        // The peer, what it sends, and who is found.
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            &'static str,
        );
        let cases: &[Case] = &[
            ("192.0.2.1:7", &[(FOR, "198.51.100.9")], "192.0.2.1:7"),
            ("192.0.2.1:7", &[(REAL, "198.51.100.9")], "192.0.2.1:7"),
            (PROXY, &[], PROXY),
            (PROXY, &[(FOR, "198.51.100.9")], "198.51.100.9:0"),
            (PROXY, &[(FOR, "6.6.6.6, 198.51.100.9")], "198.51.100.9:0"),
            (
                PROXY,
                &[(FOR, "198.51.100.9, 10.0.0.2, 10.9.9.9")],
                "198.51.100.9:0",
            ),
            (
                PROXY,
                &[(FOR, "6.6.6.6"), (FOR, "198.51.100.9,10.0.0.2")],
                "198.51.100.9:0",
            ),
            (PROXY, &[(FOR, "10.0.0.5,10.0.0.2")], "10.0.0.5:0"),
            (PROXY, &[(FOR, "junk,10.0.0.2")], "10.0.0.2:0"),
            (PROXY, &[(FOR, "198.51.100.9, junk")], PROXY),
            (PROXY, &[(FOR, "")], PROXY),
            (PROXY, &[(FOR, "junk"), (REAL, "198.51.100.9")], PROXY),
            (PROXY, &[(REAL, "198.51.100.9")], "198.51.100.9:0"),
            (PROXY, &[(REAL, "junk")], PROXY),
            (PROXY, &[(FOR, "198.51.100.9:4711")], "198.51.100.9:0"),
            (PROXY, &[(FOR, "[2001:db8::9]:4711")], "[2001:db8::9]:0"),
            (PROXY, &[(FOR, "[2001:db8::9]")], "[2001:db8::9]:0"),
            (PROXY, &[(FOR, "2001:db8::9")], "[2001:db8::9]:0"),
            (
                "[::ffff:10.0.0.1]:7",
                &[(FOR, "::ffff:198.51.100.9")],
                "198.51.100.9:0",
            ),
        ];
        for (peer, lines, client) in cases {
            assert_eq!(of(peer, lines), *client, "{peer} {lines:?}");
        }
    }

    #[test]
    fn a_list_of_any_length_is_looked_at_no_further_than_its_end() {
        let long = vec!["10.0.0.2"; 10_000].join(",");
        assert_eq!(
            of("10.0.0.1:7", &[("x-forwarded-for", &long)]),
            "10.0.0.2:0"
        );
    }
}
