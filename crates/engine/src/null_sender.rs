//! The address by which mail with the null sender `<>` is counted.
//!
//! Without one, `<>` would escape all rules by sender and domain. It is the same for all mail of a user, an access key or a
//! client, and its domain belongs to nobody. No message carries it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use ring::digest;
use tollgate_core::Rule;

/// Says whether a text is a domain in the form in which rules count it.
static BY_DOMAIN: LazyLock<Rule> =
    LazyLock::new(|| Rule::new("domain", &["domain"], Vec::new()).expect("it has no limits"));

/// An address that stands for the null sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullSender {
    /// Its domain, in the form in which rules count it.
    pub domain: String,
}

impl NullSender {
    /// For mail of a user who logged in.
    pub fn of_user(name: &str) -> Self {
        Self { domain: domain_for(name, "user") }
    }

    /// For mail that came with an access key.
    pub fn of_key(name: &str) -> Self {
        Self { domain: domain_for(name, "key") }
    }

    /// For mail from a client that is known only by its address: an IPv6 host has a whole /64.
    pub fn of_client(address: IpAddr) -> Self {
        let domain = match address.to_canonical() {
            IpAddr::V4(address) => format!("[{address}]"),
            IpAddr::V6(address) => {
                let net = Ipv6Addr::from_bits(address.to_bits() >> 64 << 64);
                format!("[ipv6:{net}]")
            }
        };
        Self { domain }
    }

    /// The whole address.
    pub fn address(&self) -> String {
        format!("null-sender@{}", self.domain)
    }
}

/// A domain that nobody owns, with this name in it, or with the name's hash if no domain can contain it.
fn domain_for(name: &str, kind: &str) -> String {
    let written = |name: &str| format!("{name}.{kind}.null-sender.invalid");
    let domain = written(&name.replace('@', ".at."));
    if BY_DOMAIN.key_of(&domain).is_some_and(|key| *key == *domain) {
        return domain;
    }
    let hash = digest::digest(&digest::SHA256, name.as_bytes());
    let hash: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    written(&hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_an_address_of_its_own_that_rules_can_count() {
        let by_sender = Rule::new("sender", &["sender"], Vec::new()).unwrap();
        let long = "x".repeat(300);
        let mut seen = std::collections::HashSet::new();
        let names = ["app", "Ada Lovelace", "ada@acme.example", "", "ä", "a..b", "a\r\nb", &long];
        let clients = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"];
        let of_names = names.iter().flat_map(|name| [NullSender::of_user(name), NullSender::of_key(name)]);
        let of_clients = clients.iter().map(|client| NullSender::of_client(client.parse().unwrap()));
        for null in of_names.chain(of_clients) {
            let address = null.address();
            let key = by_sender.key_of(&address).map(|key| key.to_string());
            assert_eq!(key.as_deref(), Some(&*address), "rules count it as it is written");
            assert!(seen.insert(address), "{null:?} is another's");
        }
        assert_eq!(NullSender::of_user("app").domain, "app.user.null-sender.invalid");
    }

    #[test]
    fn a_client_cannot_choose_another_address_of_its_network() {
        let of = |client: &str| NullSender::of_client(client.parse().unwrap()).domain;
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_eq!(of("::ffff:192.0.2.1"), "[192.0.2.1]");
    }
}
