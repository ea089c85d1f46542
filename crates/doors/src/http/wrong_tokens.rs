//! Wrong tokens: they are logged, and an address that keeps sending them at sign-in has to wait.
//!
//! Only the address itself waits: no two addresses share an entry. Everywhere else a right token passes at once, whatever
//! came before it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;
use tollgate_core::{Span, Timestamp};
use tollgate_engine::PacedLog;

use super::problem::Problem;

/// How many wrong tokens an address may send at sign-in before it has to wait.
const AT_ONCE: u64 = 5;
/// After that, it may try one token in this time.
const GAP: Span = Span::from_secs(10);
/// The most addresses that are remembered. If there are more, the one whose wait ends first is forgotten.
const MOST_ADDRESSES: usize = 4_096;

/// The wrong tokens of the last minute.
#[derive(Default)]
pub(crate) struct WrongTokens {
    /// For each address, when it will have no wrong token left that counts.
    settled: Mutex<HashMap<IpAddr, Timestamp>>,
    sign_ins: PacedLog,
    requests: PacedLog,
}

impl WrongTokens {
    /// Refuses an address that sent too many wrong tokens at sign-in, before its token is checked.
    pub(crate) fn check_sign_in(&self, client: IpAddr, now: Timestamp) -> Result<(), Problem> {
        let settled = self.settled.lock().get(&network(client)).copied();
        match settled.map(|settled| wait(settled, now)) {
            Some(wait) if wait > Span::ZERO => Err(Problem::too_many_wrong_tokens(wait)),
            _ => Ok(()),
        }
    }

    /// Logs and counts a wrong token at sign-in.
    pub(crate) fn note_sign_in(&self, client: IpAddr, now: Timestamp) {
        self.count(network(client), now);
        if let Some(held_back) = self.sign_ins.admit(now) {
            tracing::warn!(component = "http", %client, held_back, "sign-in failed: wrong token");
        }
    }

    /// Logs a wrong token of any other request.
    pub(crate) fn note_request(&self, client: IpAddr, now: Timestamp) {
        if let Some(held_back) = self.requests.admit(now) {
            tracing::warn!(component = "http", %client, held_back, "a request has a wrong token");
        }
    }

    fn count(&self, network: IpAddr, now: Timestamp) {
        let mut settled = self.settled.lock();
        if settled.len() >= MOST_ADDRESSES && !settled.contains_key(&network) {
            settled.retain(|_, settled| *settled > now);
            let first = settled.iter().min_by_key(|(_, settled)| **settled).map(|(network, _)| *network);
            if let Some(first) = first.filter(|_| settled.len() >= MOST_ADDRESSES) {
                settled.remove(&first);
            }
        }
        let entry = settled.entry(network).or_insert(now);
        // A moment further ahead than wrong tokens can set it was set before the clock went back.
        let is_possible = *entry <= now + longest();
        *entry = if is_possible { (*entry).max(now) + GAP } else { now + GAP };
    }
}

/// How far ahead wrong tokens can set the moment of an address. Several may be checked at the same time.
fn longest() -> Span {
    Span::from_micros(GAP.as_micros() * AT_ONCE * 2)
}

/// How long an address has to wait.
fn wait(settled: Timestamp, now: Timestamp) -> Span {
    let ahead = settled.as_micros().saturating_sub(now.as_micros());
    if ahead > longest().as_micros() {
        return Span::ZERO;
    }
    Span::from_micros(ahead.saturating_sub(GAP.as_micros() * (AT_ONCE - 1)))
}

/// The address of a client; of an IPv6 client its /64 network, all of which it may use.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_micros(1_000_000_000_000);

    fn waits(tokens: &WrongTokens, client: &str, now: Timestamp) -> bool {
        tokens.check_sign_in(client.parse().unwrap(), now).is_err()
    }

    fn fail(tokens: &WrongTokens, client: &str, times: u64) {
        (0..times).for_each(|_| tokens.note_sign_in(client.parse().unwrap(), START));
    }

    #[test]
    fn a_network_of_an_ipv6_client_counts_as_one_and_a_mapped_address_as_ipv4() {
        let tokens = WrongTokens::default();
        fail(&tokens, "2001:db8::1", AT_ONCE);
        fail(&tokens, "::ffff:192.0.2.1", AT_ONCE);
        assert!(waits(&tokens, "2001:db8::2", START) && waits(&tokens, "192.0.2.1", START));
        assert!(!waits(&tokens, "2001:db8:0:1::1", START) && !waits(&tokens, "192.0.2.2", START));
    }

    #[test]
    fn the_table_of_addresses_is_bounded_and_keeps_those_that_failed_most() {
        let tokens = WrongTokens::default();
        fail(&tokens, "192.0.2.1", AT_ONCE);
        for address in 0..5_000_u32 {
            let client = IpAddr::from((0x0a00_0000 + address).to_be_bytes());
            tokens.note_sign_in(client, START);
        }
        assert_eq!(tokens.settled.lock().len(), MOST_ADDRESSES);
        assert!(waits(&tokens, "192.0.2.1", START));
    }

    #[test]
    fn a_clock_that_goes_back_locks_no_address_out() {
        let tokens = WrongTokens::default();
        fail(&tokens, "192.0.2.1", AT_ONCE);
        assert!(!waits(&tokens, "192.0.2.1", Timestamp::from_micros(1_000_000)));
    }
}
