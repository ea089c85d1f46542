//! Suggests limits: measures the peak of each client, and finds numbers that would affect few clients.
//!
//! For each client and period, the peak is an upper bound of its requests in any window of that length, less than a
//! sixteenth too high (`recent.rs`). A limit that is no lower never denies the client, whether it is a window, a sliding
//! window, or a bucket of that size.
//!
//! A line that is further out of order than the bound has no time at which it could be counted: it is left out and
//! reported. Counted where it came, such lines would look like a burst.
//!
//! Memory is bounded: when there are more clients, or counts of them, than places, every second client is forgotten,
//! chosen by the hash of its key, and only clients of the remaining half are counted from then on. What remains is a fair
//! sample of all clients, each of which was counted from its first request on.

use hashbrown::HashMap;
use tollgate_core::Timestamp;

use crate::choose::Wishes;
use crate::feed::{Account, Feed, FeedError};
use crate::hash;
use crate::recent::Recent;

/// The peaks of clients.
pub struct Peaks {
    clients: HashMap<u64, Client>,
    /// A client is counted if its hash and this mask have no bit in common.
    mask: u64,
    most: Most,
    /// The number of groups of all clients together.
    groups: usize,
    requests: u64,
    without: u64,
    /// The first and the last request.
    span: Option<(Timestamp, Timestamp)>,
    slots: Vec<usize>,
}

/// The measured peaks and the suggested limits.
#[derive(Clone, Debug)]
pub struct Suggestion {
    /// The counts of lines.
    pub account: Account,
    /// Requests of known clients.
    pub requests: u64,
    /// Requests whose client is unknown.
    pub without: u64,
    /// The number of clients that were counted.
    pub clients: u64,
    /// One of this many clients was counted.
    pub one_of: u64,
    /// The peaks for each period.
    pub periods: Vec<PeriodPeaks>,
    /// The number of counted clients that exceed at least one of the limits.
    pub affected: u64,
}

/// The peaks of the clients for one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodPeaks {
    /// The period as limits have it: `s`, `min` or `hour`.
    pub period: &'static str,
    /// Half of the clients never ask for more.
    pub p50: u64,
    /// 95 % of the clients never ask for more.
    pub p95: u64,
    /// 99 % of the clients never ask for more.
    pub p99: u64,
    /// No client asks for more.
    pub max: u64,
    /// The number for a limit. The limits of all covered periods together affect at most the given share of clients.
    pub limit: u64,
    /// The number of clients that exceed the limit.
    pub above: u64,
    /// Whether the log is at least as long as the period. Otherwise its figures do not describe a whole period.
    pub covered: bool,
}

/// The counts of one client.
#[derive(Clone, Default)]
struct Client {
    recent: Recent,
    peaks: [u64; PERIODS.len()],
}

/// The bounds on clients and their groups.
#[derive(Clone, Copy)]
struct Most {
    clients: usize,
    groups: usize,
}

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
/// The periods, with their length in microseconds; the longest comes last.
const PERIODS: [(&str, u64); 3] = [("s", SECOND), ("min", 60 * SECOND), ("hour", HOUR)];
/// The most clients, of about 60 bytes each, and the most groups of their requests, of 8 bytes each.
const MOST: Most = Most { clients: 500_000, groups: 16_000_000 };

impl Peaks {
    /// Counts clients by these fields.
    pub fn new(by: &[String], wishes: &mut Wishes) -> Self {
        let need = || Some("--by".to_owned());
        let slots = by.iter().map(|field| wishes.add(field, need())).collect();
        let (clients, span) = (HashMap::new(), None);
        Self { clients, mask: 0, most: MOST, groups: 0, requests: 0, without: 0, span, slots }
    }

    /// Reads logs. `share` is the share of clients that the limits may affect together, from 0 to 1.
    pub fn run(mut self, feed: &mut Feed, share: f64) -> Result<Suggestion, FeedError> {
        let mut key = Vec::new();
        feed.run(&mut |entry| {
            if entry.late {
                return;
            }
            let values: smallvec::SmallVec<[Option<&str>; 8]> = entry.values().collect();
            key.clear();
            for slot in &self.slots {
                let Some(value) = values[*slot] else {
                    self.without += 1;
                    return;
                };
                key.extend_from_slice(value.as_bytes());
                key.push(0);
            }
            self.requests += 1;
            self.span = Some(self.span.map_or((entry.at, entry.at), |(first, _)| (first, entry.at)));
            self.note(hash(&key), entry.at);
        })?;
        let (periods, affected) = self.suggest(share);
        let Self { requests, without, clients, mask, .. } = self;
        let (clients, one_of) = (clients.len() as u64, mask + 1);
        Ok(Suggestion {
            account: feed.account.clone(),
            requests,
            without,
            clients,
            one_of,
            periods,
            affected,
        })
    }

    /// The lowest limits that together affect at most this share of the clients, and the number of clients that
    /// they affect. The same number of clients exceeds each limit.
    fn suggest(&self, share: f64) -> (Vec<PeriodPeaks>, u64) {
        let sorted: Vec<Vec<u64>> = (0..PERIODS.len()).map(|index| self.sorted_peaks(index)).collect();
        let most = (self.clients.len() as f64 * share).floor() as usize;
        let limits = |above: usize| sorted.iter().map(|peaks| round_up(exceeded_by(peaks, above))).collect();
        // The more clients exceed each limit, the more exceed any of them.
        let (mut least, mut beyond) = (0, most + 1);
        while beyond - least > 1 {
            let middle = least.midpoint(beyond);
            let limits: Vec<u64> = limits(middle);
            if self.affected_by(&limits) <= most {
                least = middle;
            } else {
                beyond = middle;
            }
        }
        let limits: Vec<u64> = limits(least);
        let periods = (0..PERIODS.len()).map(|index| self.period(index, &sorted[index], limits[index]));
        (periods.collect(), self.affected_by(&limits) as u64)
    }

    /// The number of clients that exceed the limit of at least one covered period.
    fn affected_by(&self, limits: &[u64]) -> usize {
        let covered: Vec<usize> = (0..PERIODS.len()).filter(|index| self.covers(*index)).collect();
        let above = |client: &&Client| covered.iter().any(|index| client.peaks[*index] > limits[*index]);
        self.clients.values().filter(above).count()
    }

    /// Whether the log is at least as long as a period.
    fn covers(&self, index: usize) -> bool {
        let length = self.span.map_or(0, |(first, last)| last.since(first).as_micros());
        length >= PERIODS[index].1
    }

    fn sorted_peaks(&self, index: usize) -> Vec<u64> {
        let mut peaks: Vec<u64> = self.clients.values().map(|client| client.peaks[index]).collect();
        peaks.sort_unstable();
        peaks
    }

    fn note(&mut self, client: u64, at: Timestamp) {
        if client & self.mask != 0 {
            return;
        }
        let counts = self.clients.entry(client).or_default();
        let before = counts.recent.groups();
        counts.recent.note(at.as_micros(), HOUR);
        for (peak, (_, length)) in counts.peaks.iter_mut().zip(PERIODS) {
            *peak = counts.recent.count(length).max(*peak);
        }
        self.groups = self.groups + counts.recent.groups() - before;
        while self.clients.len() > self.most.clients
            || self.groups > self.most.groups && self.clients.len() > 1
        {
            self.mask = self.mask * 2 + 1;
            let mask = self.mask;
            self.clients.retain(|client, _| client & mask == 0);
            self.groups = self.clients.values().map(|client| client.recent.groups()).sum();
        }
    }

    fn period(&self, index: usize, peaks: &[u64], limit: u64) -> PeriodPeaks {
        let above = peaks.len() - peaks.partition_point(|peak| *peak <= limit);
        PeriodPeaks {
            period: PERIODS[index].0,
            p50: at_share(peaks, 0.5),
            p95: at_share(peaks, 0.05),
            p99: at_share(peaks, 0.01),
            max: at_share(peaks, 0.0),
            limit,
            above: above as u64,
            covered: self.covers(index),
        }
    }
}

/// The lowest number that at most this share of the peaks exceeds.
fn at_share(sorted: &[u64], share: f64) -> u64 {
    exceeded_by(sorted, (sorted.len() as f64 * share).floor() as usize)
}

/// The lowest number that at most `above` of the peaks exceed.
fn exceeded_by(sorted: &[u64], above: usize) -> u64 {
    let place = sorted.len().saturating_sub(1 + above.min(sorted.len().saturating_sub(1)));
    sorted.get(place).copied().unwrap_or(0)
}

/// Rounds up to two significant digits: 1,234 becomes 1,300.
fn round_up(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    number.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    fn peaks(most: usize) -> Peaks {
        let (clients, most) = (HashMap::new(), Most { clients: most, groups: 1_000_000 });
        Peaks { clients, mask: 0, most, groups: 0, requests: 0, without: 0, span: None, slots: Vec::new() }
    }

    #[test]
    fn a_peak_is_that_of_the_busiest_window() {
        let mut counted = peaks(10);
        // Three requests within a second across its boundary, a fourth exactly a second later, then silence, then one.
        for millis in [900, 950, 1_800, 1_900, 60_000] {
            counted.note(7, at(millis));
        }
        assert_eq!(counted.clients[&7].peaks, [3, 5, 5]);
    }

    #[test]
    fn two_bursts_further_apart_than_an_hour_are_not_added_up() {
        let mut counted = peaks(10);
        for burst in [0, 65 * 60_000] {
            (0..110).for_each(|_| counted.note(7, at(burst)));
        }
        let peak = counted.clients[&7].peaks[2];
        assert!((110..117).contains(&peak), "{peak}");
    }

    #[test]
    fn the_counts_of_busy_clients_are_bounded_too() {
        let mut counted = peaks(1_000);
        counted.most.groups = 500;
        for request in 0..1_000 {
            for client in 0..100_u64 {
                counted.note(hash(&client.to_le_bytes()), at(request));
            }
        }
        assert!(counted.groups <= 500 && counted.mask > 0, "{} groups", counted.groups);
        let kept: usize = counted.clients.values().map(|client| client.recent.groups()).sum();
        assert_eq!(kept, counted.groups);
    }

    #[test]
    fn a_limit_affects_at_most_the_share_that_was_given() {
        let mut counted = peaks(1_000);
        for client in 0..100 {
            for request in 0..=client {
                counted.note(hash(&[client as u8]), at(request));
            }
        }
        let (periods, _) = counted.suggest(0.05);
        let second = &periods[0];
        assert_eq!((second.p50, second.p95, second.max), (50, 95, 100));
        assert_eq!((second.limit, second.above), (95, 5));
    }

    #[test]
    fn limits_together_affect_at_most_the_share_that_was_given() {
        let mut counted = peaks(1_000);
        // Five clients are busy in a second, five others in a minute, and ninety are quiet.
        for client in 0..100_u64 {
            let (requests, every) = match client {
                0..5 => (10 + client, 10),
                5..10 => (30 + client, 1_500),
                _ => (2, 30_000),
            };
            for request in 0..requests {
                counted.note(hash(&client.to_le_bytes()), at(1_000 + request * every));
            }
        }
        counted.span = Some((at(0), at(90_000)));
        let (periods, affected) = counted.suggest(0.05);
        assert!(affected <= 5 && affected > 0, "{affected}: {periods:?}");
        assert!(periods[0].above > 0 && periods[1].above > 0, "{periods:?}");
        let (_, none) = counted.suggest(0.0);
        assert_eq!(none, 0);
    }

    #[test]
    fn many_clients_become_a_fair_sample() {
        let mut counted = peaks(1_000);
        for client in 0..20_000_u64 {
            for request in 0..=client % 10 {
                counted.note(hash(&client.to_le_bytes()), at(request));
            }
        }
        assert!(counted.clients.len() <= 1_000 && counted.clients.len() > 300, "{}", counted.clients.len());
        assert!(counted.mask >= 15);
        let (periods, _) = counted.suggest(0.0);
        let second = &periods[0];
        assert_eq!(second.max, 10);
        assert!((4..=6).contains(&second.p50), "{second:?}");
    }

    #[test]
    fn numbers_are_rounded_up() {
        assert_eq!([0, 7, 99, 101, 1_234, 98_765].map(round_up), [0, 7, 99, 110, 1_300, 99_000]);
    }
}
