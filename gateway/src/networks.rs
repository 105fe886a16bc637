//! Named networks: whom to believe what they say of others.

use std::net::IpAddr;

use ipnet::IpNet;

/// A few networks, as an operator has named them; tried one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Box<[IpNet]>);

impl Networks {
    /// These networks; none contain nobody.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Networks(networks.into_iter().collect())
    }

    /// Whether the address is in one of them. An IPv4 address that is written as an IPv6 one, as a
    /// listener on `[::]` sees it, is the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_network_in_either_spelling() {
        let networks = Networks::new(["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap()));
        for (address, is_in) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("11.0.0.1", false),
            ("fd12::1", true),
            ("fe80::1", false),
            ("::ffff:11.0.0.1", false),
        ] {
            assert_eq!(
                networks.contains(address.parse().unwrap()),
                is_in,
                "{address}"
            );
        }
        assert!(!Networks::default().contains("::1".parse().unwrap()));
    }
}
