//! Counts the events of the last second, minute or hour, nearly exactly, in little memory: an *exponential
//! histogram* (Datar, Gionis, Indyk, Motwani).
//!
//! Events are kept in groups of 1, 2, 4, … events; later groups are smaller, and each has the time of its last
//! event. A window counts every group whose last event is inside. So a count is never too low, and too high by
//! less than the oldest group. There are at least sixteen groups of every smaller size, so the error is less
//! than a sixteenth of the true count.

/// The groups of one client, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    groups: Vec<Group>,
}

/// Happenings that are counted together: the time of the youngest, and the number as a power of two.
#[derive(Clone, Copy, Debug)]
struct Group(u64);

/// The most groups of one size. With one more, the two oldest are merged to a group of the next size, so that
/// sixteen stay.
const MOST_ALIKE: usize = 17;
/// The bits of the power in a group. A time in microseconds is below 2^53.
const POWER_BITS: u32 = 6;

impl Group {
    fn new(at: u64, power: u64) -> Self {
        Self(at << POWER_BITS | power)
    }

    fn at(self) -> u64 {
        self.0 >> POWER_BITS
    }

    fn power(self) -> u64 {
        self.0 & ((1 << POWER_BITS) - 1)
    }
}

impl Recent {
    /// Notes that it happened, at no earlier time than before, and forgets what is older than `longest`.
    pub(crate) fn note(&mut self, at: u64, longest: u64) {
        let old = self.groups.iter().take_while(|group| group.at() + longest <= at).count();
        self.groups.drain(..old);
        self.groups.push(Group::new(at, 0));
        let mut end = self.groups.len();
        for power in 0.. {
            let alike = self.groups[..end].iter().rev().take_while(|group| group.power() == power).count();
            if alike <= MOST_ALIKE {
                break;
            }
            let oldest = end - alike;
            self.groups[oldest] = Group::new(self.groups[oldest + 1].at(), power + 1);
            self.groups.remove(oldest + 1);
            end = oldest + 1;
        }
    }

    /// The number of events in the window of this length that ends with the latest event. `length` is at most
    /// the longest.
    pub(crate) fn count(&self, length: u64) -> u64 {
        let Some(latest) = self.groups.last() else { return 0 };
        let inside = self.groups.iter().rev().take_while(|group| group.at() + length > latest.at());
        inside.map(|group| 1_u64 << group.power()).sum()
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    /// A sequence of pseudorandom numbers.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn a_count_is_never_too_low_and_less_than_a_sixteenth_too_high() {
        for seed in 0..40 {
            let (mut state, mut at, mut times, mut recent) = (seed, 0, Vec::new(), Recent::default());
            for _ in 0..1_500 {
                // Bursts, quiet times, and many at one moment.
                at += match next(&mut state) % 10 {
                    0 => next(&mut state) % (HOUR / 4),
                    1..5 => next(&mut state) % 1_000_000,
                    _ => 0,
                };
                times.push(at);
                recent.note(at, HOUR);
                for length in [1_000_000, 60_000_000, HOUR] {
                    let exact = times.iter().rev().take_while(|time| **time + length > at).count() as u64;
                    let count = recent.count(length);
                    assert!(
                        exact <= count && 16 * (count - exact) < exact,
                        "seed {seed}: {count} for {exact}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_million_happenings_take_few_hundred_groups() {
        let mut recent = Recent::default();
        for at in 0..1_000_000 {
            recent.note(at, HOUR);
            assert!(recent.groups() <= 300, "{}", recent.groups());
        }
        assert_eq!(recent.count(16), 16, "the youngest are alone");
    }

    #[test]
    fn few_happenings_are_counted_exactly() {
        let mut recent = Recent::default();
        for at in [10, 10, 20, 1_000_009, 1_000_010] {
            recent.note(at, HOUR);
        }
        assert_eq!((recent.count(1), recent.count(1_000_000), recent.count(HOUR)), (1, 3, 5));
    }
}
