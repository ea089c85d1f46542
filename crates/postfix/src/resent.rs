//! Remembers the requests that were allowed lately. Postfix sends a request again if it got no answer, and the
//! repetition must not count a second time.
//!
//! The engine cannot recognise a repetition: each attempt has a new ticket, and only holds know an id. A denied
//! request took nothing, so only allowed ones are remembered: as hashes, in two generations of bounded size and
//! age. Postfix gives up on a request before it sends it again, so the first one is already decided.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashSet;
use parking_lot::Mutex;
use tollgate_core::{Span, Timestamp};

/// A request is remembered for at least this long, unless there are too many. Postfix repeats one within two
/// minutes.
const AGE: Span = Span::from_secs(300);
/// After this, also the previous generation is too old.
const TWICE_AGE: Span = Span::from_secs(600);
/// The most requests of one generation.
const MOST: usize = 250_000;

pub(crate) struct Resent {
    hashing: RandomState,
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    current: HashSet<u64>,
    previous: HashSet<u64>,
    /// When the current generation began.
    began: Timestamp,
}

impl Resent {
    pub(crate) fn new() -> Self {
        Self { hashing: RandomState::new(), generations: Mutex::default() }
    }

    /// The hash by which a request is remembered. Its secret is random, so that no client can choose a collision.
    pub(crate) fn hash_of(&self, request: impl Hash) -> u64 {
        self.hashing.hash_one(request)
    }

    /// Whether a request was allowed lately.
    pub(crate) fn contains(&self, hash: u64, now: Timestamp) -> bool {
        let mut generations = self.generations.lock();
        generations.age(now);
        generations.current.contains(&hash) || generations.previous.contains(&hash)
    }

    pub(crate) fn remember(&self, hash: u64, now: Timestamp) {
        let mut generations = self.generations.lock();
        generations.age(now);
        if generations.current.len() >= MOST {
            generations.begin(now);
        }
        generations.current.insert(hash);
    }
}

impl Generations {
    /// Begins a new generation if the current one is old enough.
    fn age(&mut self, now: Timestamp) {
        // If the clock went back, a generation from the future counts as begun now.
        self.began = self.began.min(now);
        let age = now.since(self.began);
        if age < AGE {
            return;
        }
        let all_old = age >= TWICE_AGE;
        self.begin(now);
        if all_old {
            self.previous.clear();
        }
    }

    /// Makes the current generation the previous one, and forgets the old previous one.
    fn begin(&mut self, now: Timestamp) {
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros((1_000_000 + second) * 1_000_000)
    }

    #[test]
    fn a_request_is_remembered_for_five_minutes_and_forgotten_after_ten() {
        let resent = Resent::new();
        assert!(!resent.contains(7, at(0)));
        resent.remember(7, at(0));
        resent.remember(8, at(299));
        assert!(resent.contains(7, at(299)) && resent.contains(7, at(300)) && resent.contains(8, at(599)));
        assert!(!resent.contains(7, at(900)) && !resent.contains(8, at(900)));
    }

    #[test]
    fn a_flood_forgets_the_oldest_first_and_grows_no_further() {
        let resent = Resent::new();
        for hash in 0..2 * MOST as u64 + 1 {
            resent.remember(hash, at(0));
        }
        let generations = resent.generations.lock();
        assert_eq!((generations.current.len(), generations.previous.len()), (1, MOST));
        drop(generations);
        assert!(!resent.contains(0, at(0)) && resent.contains(MOST as u64, at(0)));
    }

    #[test]
    fn a_clock_that_goes_back_forgets_nothing_early() {
        let resent = Resent::new();
        resent.remember(7, at(10_000));
        assert!(resent.contains(7, at(0)) && resent.contains(7, at(299)));
        assert!(!resent.contains(7, at(600)));
    }
}
