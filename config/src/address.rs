//! Addresses: where the gateway listens, the hosts it answers for, the endpoints it calls.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer};

use crate::units::from_text;

/// A socket address to listen on, such as `0.0.0.0:6443` or `[::1]:0`; port 0 picks a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenAddress(SocketAddr);

impl ListenAddress {
    /// The plain value.
    #[must_use]
    pub fn get(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(ListenAddress)
            .map_err(|_| format!("`{text}` is not an IP address with a port, such as 0.0.0.0:6443"))
    }
}

/// A network such as `10.0.0.0/8`, or one address; never all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

impl Network {
    /// The plain value.
    #[must_use]
    pub fn get(self) -> IpNet {
        self.0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = text.parse::<IpAddr>().map(IpNet::from);
        let network = one.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
            format!("`{text}` is not a network; write one such as 10.0.0.0/8, or an address")
        })?;
        if network != network.trunc() {
            let meant = network.trunc();
            return Err(format!(
                "`{text}` is an address within a network; write {meant}, or the address alone"
            ));
        }
        if network.prefix_len() == 0 {
            return Err(format!(
                "`{text}` is everybody; name the networks of your own proxies"
            ));
        }
        Ok(Network(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name under which clients reach a cluster, lower-case and without port: a DNS name, an IP
/// address, or `*.` and a DNS name for every name one label longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern(String);

impl HostPattern {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err(format!("host `{text}` must be a name without scheme"));
        }
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(HostPattern(ip.to_string()));
        }
        if text.contains(':') {
            return Err(format!("host `{text}` must be a name without port"));
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        if !is_dns_name(name) {
            return Err(format!(
                "`{text}` is not a DNS name, an IP address or `*.` and a DNS name"
            ));
        }
        Ok(HostPattern(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How an endpoint is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without TLS; accepted for loopback addresses only, since credentials travel on it.
    Http,
    /// With TLS, verified.
    Https,
}

/// An endpoint's base: scheme, host and port, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointUrl {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl EndpointUrl {
    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// A DNS name or an IP address, IPv6 without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, the scheme's own when none was written.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for EndpointUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |why: &str| format!("endpoint `{text}` {why}; write https://host:port");
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            _ => return Err(fault("must begin with https://")),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(fault("must be scheme, host and port only"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| fault("has no readable host"))?;
        let port = match port {
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(fault("has no readable port")),
            },
            None if scheme == Scheme::Https => 443,
            None => 80,
        };
        let is_loopback = host == "localhost"
            || host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if scheme == Scheme::Http && !is_loopback {
            return Err(fault("would carry credentials in clear"));
        }
        Ok(EndpointUrl {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
        })
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Host, without brackets, and port; `None` when the host is neither a name nor an address.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match after {
            "" => Some((host, None)),
            _ => Some((host, Some(after.strip_prefix(':')?))),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    (host.parse::<std::net::Ipv4Addr>().is_ok() || is_dns_name(host)).then_some((host, port))
}

/// Whether `name` is labels of letters, digits and inner hyphens, joined by dots.
pub(crate) fn is_dns_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "an address such as 127.0.0.1:6443")
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a network such as 10.0.0.0/8")
    }
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a host such as prod.example.com")
    }
}

impl<'de> Deserialize<'de> for EndpointUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "an endpoint such as https://10.0.0.1:6443")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_scheme_host_and_port() {
        for (text, shown) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("https://API.example.com", "https://api.example.com:443"),
            ("https://[fd00::1]:6443/", "https://[fd00::1]:6443"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80"),
            ("http://localhost:1", "http://localhost:1"),
        ] {
            assert_eq!(text.parse::<EndpointUrl>().unwrap().to_string(), shown);
        }
        for text in [
            "https://[::1",
            "https://",
            "10.0.0.1:6443",
            "ftp://x:1",
            "https://x:0",
            "https://x:70000",
            "https://x/path",
            "https://u@x",
            "https://x?y",
            "https://-x",
            "http://10.0.0.1:80",
            "https://[zz]:1",
            "https://x:",
            "https://a b",
        ] {
            assert!(text.parse::<EndpointUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_are_some_and_never_all_addresses() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("fd00::/8", "fd00::/8"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "10.0.0.1/8",
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/33",
            "lb.example.com",
            "10.",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_have_neither_scheme_nor_port() {
        for (text, shown) in [
            ("Prod.Example.com", "prod.example.com"),
            ("*.example.com", "*.example.com"),
            ("[FD00::1]", "fd00::1"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(text.parse::<HostPattern>().unwrap().as_str(), shown);
        }
        for text in [
            "",
            "*",
            "a:6443",
            "https://a",
            "a..b",
            "*.*.b",
            "a_b",
            "x.*.y",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
