//! The keys denied most often, in bounded memory: *space-saving* (Metwally, Agrawal, El Abbadi).
//!
//! While there are fewer keys than places, all counts are exact. When the table is full, a new key takes the place of
//! the one with the least count and inherits that count as its possible error. So a count is never too low, and
//! `error` says by how much it may be too high.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;
use tollgate_core::Timestamp;

/// The most frequent keys.
#[derive(Clone, Debug)]
pub struct Top {
    places: HashMap<Box<str>, usize>,
    keys: Vec<TopKey>,
    /// Places by their counts. If a count has grown since it was pushed, it is pushed again when it is popped.
    least: BinaryHeap<Reverse<(u64, usize)>>,
    most: usize,
}

/// A key and its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The key.
    pub key: Box<str>,
    /// The number of times that the key was counted; too high by at most `error`.
    pub count: u64,
    /// The most by which `count` may be too high.
    pub error: u64,
    /// The first time it was counted since it has its place.
    pub first: Timestamp,
    /// The last time it was counted.
    pub last: Timestamp,
    /// The number of its requests that had been answered with 2xx or 3xx.
    pub good: u64,
    /// The user agents as a set of bits. The number of set bits gives an estimate of the number of user agents.
    pub agents: u64,
    /// The users as a set of bits, in the same way.
    pub users: u64,
}

/// One attempt of a key to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence {
    /// The time.
    pub at: Timestamp,
    /// The status of the response; 0 if that is unknown.
    pub status: u16,
    /// The hash of the user agent; 0 if that is unknown.
    pub agent: u64,
    /// The hash of the user; 0 if that is unknown.
    pub user: u64,
}

impl Top {
    /// A table of at most this many keys.
    pub fn new(most: usize) -> Self {
        Self { places: HashMap::new(), keys: Vec::new(), least: BinaryHeap::new(), most: most.max(1) }
    }

    /// Counts a key.
    pub fn note(&mut self, key: &str, seen: Occurrence) {
        if let Some(place) = self.places.get(key) {
            return self.keys[*place].count_one(seen);
        }
        let fresh = |count| TopKey {
            key: key.into(),
            count,
            error: count,
            first: seen.at,
            last: seen.at,
            good: 0,
            agents: 0,
            users: 0,
        };
        let place = if self.keys.len() < self.most {
            self.keys.push(fresh(0));
            self.keys.len() - 1
        } else {
            let (count, place) = self.least_place();
            self.places.remove(&self.keys[place].key);
            self.keys[place] = fresh(count);
            place
        };
        self.keys[place].count_one(seen);
        self.places.insert(key.into(), place);
        self.least.push(Reverse((self.keys[place].count, place)));
    }

    /// Takes the place with the lowest count.
    fn least_place(&mut self) -> (u64, usize) {
        loop {
            let Reverse((count, place)) = self.least.pop().expect("every place is in the heap");
            let now = self.keys[place].count;
            if now == count {
                return (count, place);
            }
            self.least.push(Reverse((now, place)));
        }
    }

    /// The most frequent keys, most frequent first.
    pub fn ranked(&self, most: usize) -> Vec<TopKey> {
        let mut keys = self.keys.clone();
        keys.sort_by(|a, b| b.count.cmp(&a.count).then(a.first.cmp(&b.first)).then(a.key.cmp(&b.key)));
        keys.truncate(most);
        keys
    }

    /// Whether every key has a place, so that all counts are exact.
    pub fn is_exact(&self) -> bool {
        self.keys.iter().all(|key| key.error == 0)
    }
}

impl TopKey {
    fn count_one(&mut self, seen: Occurrence) {
        self.count += 1;
        self.last = self.last.max(seen.at);
        self.good += u64::from((200..400).contains(&seen.status));
        self.agents |= bit(seen.agent);
        self.users |= bit(seen.user);
    }

    /// About how many user agents used this key: up to a few dozen.
    pub fn agent_count(&self) -> u64 {
        members(self.agents)
    }

    /// About how many users used this key.
    pub fn user_count(&self) -> u64 {
        members(self.users)
    }
}

fn bit(hash: u64) -> u64 {
    if hash == 0 { 0 } else { 1 << (hash % 61) }
}

/// The most likely number of values that set these of 61 bits (linear counting).
fn members(bits: u64) -> u64 {
    let empty = f64::from(61 - bits.count_ones().min(60));
    (-61.0 * (empty / 61.0).ln()).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: u64) -> Occurrence {
        Occurrence { at: Timestamp::from_micros(at), status: 200, agent: at, user: 0 }
    }

    #[test]
    fn counts_are_exact_while_there_is_room() {
        let mut top = Top::new(3);
        for (at, key) in ["a", "b", "a", "c", "a"].into_iter().enumerate() {
            top.note(key, seen(at as u64 + 1));
        }
        let ranked = top.ranked(2);
        assert_eq!((&*ranked[0].key, ranked[0].count, ranked[0].error), ("a", 3, 0));
        assert_eq!((ranked[0].first, ranked[0].last), (Timestamp::from_micros(1), Timestamp::from_micros(5)));
        assert_eq!((ranked[0].agent_count(), ranked[0].user_count(), ranked[0].good), (3, 0, 3));
        assert!(top.is_exact());
    }

    #[test]
    fn a_full_table_keeps_the_frequent_and_says_how_wrong_it_may_be() {
        let mut top = Top::new(10);
        for at in 0..1_000 {
            top.note("heavy", seen(at));
            top.note(&format!("rare {at}"), seen(at));
        }
        let heavy = &top.ranked(1)[0];
        assert_eq!(&*heavy.key, "heavy");
        assert!(heavy.count >= 1_000 && heavy.count - heavy.error <= 1_000, "{heavy:?}");
        assert!(!top.is_exact());
        assert_eq!(top.keys.len(), 10);
    }
}
