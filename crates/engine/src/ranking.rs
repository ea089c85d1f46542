//! The most frequent keys, in bounded memory: of refused attempts, or of all.

use std::cmp::Ordering;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tollgate_core::Timestamp;

/// The keys recorded most often lately.
#[derive(Default)]
pub struct Ranking {
    counts: Mutex<Counts>,
}

/// One key and how often it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// The number of times that the key was recorded. It is too low for keys that came when the table was full.
    pub count: u64,
    /// When it was last recorded.
    pub last: Timestamp,
}

/// By rule and key.
type Counts = HashMap<(Box<str>, Box<str>), Count>;

struct Count {
    noted: u64,
    last: Timestamp,
}

const MOST: usize = 2_048;

impl Ranking {
    /// Records a key. If two threads meet, one is left out: the numbers need not be exact.
    pub(crate) fn note(&self, rule: &str, key: &str, now: Timestamp) {
        let Some(mut counts) = self.counts.try_lock() else { return };
        if let Some(count) = counts.get_mut(&Pair(rule, key)) {
            count.noted += 1;
            count.last = now;
            return;
        }
        if counts.len() >= MOST {
            halve(&mut counts);
        }
        counts.insert((rule.into(), key.into()), Count { noted: 1, last: now });
    }

    /// The most frequent keys, most frequent first.
    pub fn top(&self, most: usize) -> Vec<Ranked> {
        let counts = self.counts.lock();
        let mut all: Vec<Ranked> = counts
            .iter()
            .map(|((rule, key), count)| Ranked {
                rule: rule.to_string(),
                key: key.to_string(),
                count: count.noted,
                last: count.last,
            })
            .collect();
        drop(counts);
        all.sort_by(Ranked::order);
        all.truncate(most);
        all
    }
}

impl Ranked {
    /// Most frequent first, and of equals the latest first.
    pub fn order(a: &Self, b: &Self) -> Ordering {
        b.count.cmp(&a.count).then(b.last.cmp(&a.last)).then_with(|| a.key.cmp(&b.key))
    }
}

/// Makes room: halves all counts, and drops the least frequent keys, at least a quarter of them.
fn halve(counts: &mut Counts) {
    let mut sizes: Vec<u64> = counts.values().map(|count| count.noted).collect();
    let (_, cut, _) = sizes.select_nth_unstable(MOST / 4);
    let cut = *cut;
    let mut room = MOST / 2;
    counts.retain(|_, count| {
        let keep = count.noted > cut || (count.noted == cut && room > 0);
        room = room.saturating_sub(usize::from(keep && count.noted == cut));
        count.noted = count.noted.div_ceil(2);
        keep
    });
}

/// A rule and a key, to find an entry by.
#[derive(Hash)]
pub(crate) struct Pair<'p>(pub(crate) &'p str, pub(crate) &'p str);

impl hashbrown::Equivalent<(Box<str>, Box<str>)> for Pair<'_> {
    fn equivalent(&self, key: &(Box<str>, Box<str>)) -> bool {
        *self.0 == *key.0 && *self.1 == *key.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_stay_on_top_in_a_crowd() {
        let offenders = Ranking::default();
        for round in 0..100_000_u64 {
            let now = Timestamp::from_micros(round);
            offenders.note("ip", &format!("passer-by-{round}"), now);
            if round % 10 == 0 {
                offenders.note("ip", "culprit", now);
            }
        }
        assert!(offenders.counts.lock().len() <= MOST);
        assert_eq!(offenders.top(1)[0].key, "culprit");
    }
}
