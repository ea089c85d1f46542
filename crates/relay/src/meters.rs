//! The metrics of the relay: counters, and the state of the queue and the lanes.
//!
//! Labels are rules and accounts by their configured names. Both are capped: beyond the bound, values are counted
//! under `other`. Senders, recipients and domains are never labels.

mod show;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tollgate_core::Span;

/// The most accounts that have series of their own.
const MOST_ACCOUNTS: usize = 1_000;
/// The most levels that have series of their own.
const MOST_LEVELS: usize = 200;
/// The label of values beyond the bounds.
const OTHER: &str = "other";

/// The upper bounds of the delivery latency buckets, in milliseconds.
const BOUNDS: [u64; 15] = [
    50,
    100,
    250,
    500,
    1_000,
    5_000,
    15_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    14_400_000,
    43_200_000,
    86_400_000,
    432_000_000,
];

/// The metrics of the relay. Clones share them.
#[derive(Clone, Default)]
pub struct RelayMeters(Arc<Counts>);

#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    rejected: Labelled<Arc<str>, AtomicU64>,
    accounts: Labelled<AccountLabel, AccountCounts>,
    retried: AtomicU64,
    reported: AtomicU64,
    unserved: AtomicU64,
    reports_failed: AtomicU64,
    latency: Latency,
    source: RwLock<Option<LevelSource>>,
}

/// Returns the current levels.
type LevelSource = Box<dyn Fn() -> Levels + Send + Sync>;

/// The labels of an account. The account is empty for mail that goes directly to the recipients' hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountLabel {
    /// The tenant that the account belongs to.
    pub tenant: Arc<str>,
    /// Its name.
    pub account: Arc<str>,
}

/// The counters of one account.
#[derive(Default)]
struct AccountCounts {
    sent: AtomicU64,
    bounced: AtomicU64,
    rate_limited: AtomicU64,
    limited_turns: AtomicU64,
}

/// The current state of the queue and the lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The number of waiting messages.
    pub messages: u64,
    /// The age of the oldest waiting message.
    pub oldest: Span,
    /// The number of items in flight.
    pub in_flight: u32,
    /// The number of lanes.
    pub lanes: usize,
    /// The number of sleeping lanes, by cause.
    pub sleeping: BTreeMap<&'static str, usize>,
    /// The number of items that wait for a limit, by account.
    pub deferred: BTreeMap<AccountLabel, u64>,
}

/// Counters by label. Their number is bounded.
struct Labelled<L, C> {
    known: RwLock<BTreeMap<L, Arc<C>>>,
}

/// The time from acceptance to delivery, as a histogram.
#[derive(Default)]
struct Latency {
    /// One count for each of [`BOUNDS`], and one for longer times.
    slots: [AtomicU64; BOUNDS.len() + 1],
    /// The sum of all times, in microseconds.
    total: AtomicU64,
}

impl RelayMeters {
    /// Meters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a message that was accepted, at any door.
    pub fn accepted(&self) {
        raise(&self.0.accepted, 1);
    }

    /// Counts a connection or a message that was refused, by the rule that refused it or another fixed word, such as
    /// `blocklist` or `queue_full`.
    pub fn rejected(&self, level: &str) {
        let (label, other) = (Arc::from(level), || Arc::from(OTHER));
        raise(&self.0.rejected.of(label, MOST_LEVELS, other), 1);
    }

    /// Counts recipients that the next hop accepted.
    pub(crate) fn sent(&self, tenant: &str, account: &str, recipients: u64) {
        raise(&self.account(tenant, account).sent, recipients);
    }

    /// Counts recipients that failed for good.
    pub(crate) fn bounced(&self, tenant: &str, account: &str, recipients: u64) {
        raise(&self.account(tenant, account).bounced, recipients);
    }

    /// Counts messages that a limit began to defer, or refused for good.
    pub(crate) fn rate_limited(&self, tenant: &str, account: &str, messages: u64) {
        raise(&self.account(tenant, account).rate_limited, messages);
    }

    /// Counts a turn that a limit did not allow.
    pub(crate) fn limited_turn(&self, tenant: &str, account: &str) {
        raise(&self.account(tenant, account).limited_turns, 1);
    }

    /// Counts an attempt that failed and is retried.
    pub(crate) fn retried(&self) {
        raise(&self.0.retried, 1);
    }

    /// Counts a delivery report.
    pub(crate) fn reported(&self) {
        raise(&self.0.reported, 1);
    }

    /// Counts a turn of a message whose account does not exist.
    pub(crate) fn unserved(&self) {
        raise(&self.0.unserved, 1);
    }

    /// Counts a delivery report that was given up.
    pub(crate) fn report_failed(&self) {
        raise(&self.0.reports_failed, 1);
    }

    /// Counts how long it took from the acceptance of a message until the next hop took it.
    pub(crate) fn delivered_after(&self, span: Span) {
        let millis = span.as_micros() / 1_000;
        let slot = BOUNDS.iter().position(|bound| millis <= *bound).unwrap_or(BOUNDS.len());
        raise(&self.0.latency.slots[slot], 1);
        raise(&self.0.latency.total, span.as_micros());
    }

    /// Sets the source of the levels.
    pub(crate) fn watch(&self, source: impl Fn() -> Levels + Send + Sync + 'static) {
        *self.0.source.write() = Some(Box::new(source));
    }

    fn account(&self, tenant: &str, account: &str) -> Arc<AccountCounts> {
        let label = AccountLabel { tenant: tenant.into(), account: account.into() };
        self.0.accounts.of(label, MOST_ACCOUNTS, AccountLabel::other)
    }
}

impl AccountLabel {
    fn other() -> Self {
        Self { tenant: OTHER.into(), account: OTHER.into() }
    }
}

impl<L: Ord, C: Default> Labelled<L, C> {
    /// The counter of a label, or the one that labels beyond the bound share.
    fn of(&self, label: L, most: usize, other: impl FnOnce() -> L) -> Arc<C> {
        if let Some(known) = self.known.read().get(&label) {
            return Arc::clone(known);
        }
        let mut known = self.known.write();
        let label = if known.len() < most || known.contains_key(&label) { label } else { other() };
        Arc::clone(known.entry(label).or_default())
    }
}

impl<L, C> Default for Labelled<L, C> {
    fn default() -> Self {
        Self { known: RwLock::default() }
    }
}

fn raise(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl fmt::Debug for RelayMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayMeters").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn page(meters: &RelayMeters) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(meters.clone()));
        let mut page = String::new();
        encode(&mut page, &registry).expect("writing to a string cannot fail");
        page
    }

    #[test]
    fn everything_that_is_counted_is_shown() {
        let meters = RelayMeters::new();
        meters.accepted();
        meters.rejected("sender");
        meters.sent("acme", "main", 3);
        meters.bounced("acme", "main", 2);
        meters.rate_limited("acme", "main", 5);
        meters.limited_turn("acme", "main");
        meters.retried();
        meters.reported();
        meters.unserved();
        meters.report_failed();
        meters.delivered_after(Span::from_millis(60));
        let label = AccountLabel { tenant: "acme".into(), account: "main".into() };
        meters.watch(move || Levels {
            messages: 7,
            oldest: Span::from_secs(90),
            in_flight: 2,
            lanes: 5,
            sleeping: BTreeMap::from([("limit", 3)]),
            deferred: BTreeMap::from([(label.clone(), 4)]),
        });
        let page = page(&meters);
        let of_account = r#"{tenant="acme",account="main"}"#;
        for line in [
            "tollgate_relay_accepted_total 1".to_owned(),
            r#"tollgate_relay_rejected_total{level="sender"} 1"#.to_owned(),
            format!("tollgate_relay_sent_total{of_account} 3"),
            format!("tollgate_relay_bounced_total{of_account} 2"),
            format!("tollgate_relay_rate_limited_total{of_account} 5"),
            format!("tollgate_relay_limited_turns_total{of_account} 1"),
            "tollgate_relay_retried_total 1".to_owned(),
            "tollgate_relay_reported_total 1".to_owned(),
            "tollgate_relay_unserved_total 1".to_owned(),
            "tollgate_relay_reports_failed_total 1".to_owned(),
            r#"tollgate_relay_delivery_seconds_bucket{le="0.05"} 0"#.to_owned(),
            r#"tollgate_relay_delivery_seconds_bucket{le="0.1"} 1"#.to_owned(),
            "tollgate_relay_queue_messages 7".to_owned(),
            "tollgate_relay_queue_oldest_seconds 90".to_owned(),
            "tollgate_relay_in_flight 2".to_owned(),
            "tollgate_relay_lanes 5".to_owned(),
            r#"tollgate_relay_sleeping_lanes{cause="limit"} 3"#.to_owned(),
            format!("tollgate_relay_deferred{of_account} 4"),
        ] {
            assert!(page.lines().any(|known| known.starts_with(&line)), "{line} is missing in\n{page}");
        }
    }

    #[test]
    fn labels_are_bounded() {
        let meters = RelayMeters::new();
        for number in 0..3_000 {
            meters.sent(&format!("tenant {number}"), "main", 1);
            meters.rejected(&format!("level {number}"));
        }
        let page = page(&meters);
        let lines = |name: &str| page.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(lines("tollgate_relay_sent_total{"), MOST_ACCOUNTS + 1);
        assert_eq!(lines("tollgate_relay_rejected_total{"), MOST_LEVELS + 1);
        assert!(page.contains(r#"tollgate_relay_sent_total{tenant="other",account="other"} 2000"#), "{page}");
    }
}
