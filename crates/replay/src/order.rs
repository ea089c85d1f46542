//! Puts lines in order of time, within a bound, and spreads lines with whole seconds over their second.
//!
//! Lines are collected by the second of their time. A second is complete once every log is beyond it by the
//! bound. Then those of its lines that have only whole seconds are spread over it evenly, in the order in which
//! they were read. If a log has the time at which a request ended, the duration is subtracted, and the lines
//! are ordered once more.
//!
//! A line that comes later than the bound allows is replayed at the earliest moment that is still open. Room
//! for waiting lines is bounded too; if it is full, the earliest second is closed early.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};

const SECOND: u64 = 1_000_000;
/// The number of empty buckets that are kept for reuse, and the largest size of one.
const MOST_SPARE: usize = 16;
const MOST_SPARE_BYTES: usize = 4 << 20;

/// Lines that wait for earlier lines.
pub struct Order {
    /// By the time in the log.
    logged: Seconds,
    /// By the time at which the request began; `None` if that is the same.
    begun: Option<Seconds>,
    /// The most by which lines may be out of order, in seconds.
    bound: u64,
    room: Room,
    /// The number of lines that came too late.
    pub late: u64,
}

/// The size of waiting lines, or the bound on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The number of lines.
    pub lines: usize,
    /// The number of bytes in memory.
    pub bytes: usize,
}

/// One line, ready to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'b> {
    /// The time at which its request began.
    pub at: Timestamp,
    /// The duration of its request.
    pub duration: Span,
    /// The status of the response; 0 if that is unknown.
    pub status: u16,
    /// The hash of the client's user agent; 0 if that is unknown.
    pub agent: u64,
    /// Whether it was further out of order than the bound: `at` is then later than its own time.
    pub late: bool,
    text: &'b str,
    lengths: &'b [u16],
}

/// The data of a line other than the values of its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// In microseconds.
    pub(crate) at: u64,
    /// Whether the time is in whole seconds.
    pub(crate) whole: bool,
    /// In microseconds.
    pub(crate) duration: u64,
    pub(crate) status: u16,
    pub(crate) agent: u64,
    /// Whether it came too late for its time.
    pub(crate) late: bool,
}

/// Lines by their seconds.
#[derive(Default)]
struct Seconds {
    open: BTreeMap<u64, Bucket>,
    /// The bucket that was used last. It is not in the map.
    current: Option<(u64, Bucket)>,
    spare: Vec<Bucket>,
    /// All seconds before this one are closed.
    closed: u64,
    held: Room,
}

/// The lines of one second.
#[derive(Default)]
struct Bucket {
    /// The head of each line, and the position of its values in `text`.
    lines: Vec<(Head, usize)>,
    text: String,
    /// The length of each value of each line; [`ABSENT`] if the line lacks it.
    lengths: Vec<u16>,
}

/// Stands for the length of a value that a line does not have.
pub(crate) const ABSENT: u16 = u16::MAX;

/// The texts and lengths of one line's values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    pub(crate) text: String,
    pub(crate) lengths: Vec<u16>,
}

impl Order {
    /// Orders lines that are out of order by at most `bound`, as far as `room` allows. With
    /// `Shift::ByDuration`, durations are subtracted from the times.
    pub fn new(bound: Span, room: Room, shifted: Shift) -> Self {
        let begun = (shifted == Shift::ByDuration).then(Seconds::default);
        let bound = bound.as_micros().div_ceil(SECOND);
        Self { logged: Seconds::default(), begun, bound, room, late: 0 }
    }

    /// Adds a line.
    #[inline]
    pub(crate) fn push(&mut self, mut head: Head, values: &Values) {
        if head.at / SECOND < self.logged.closed {
            head.at = self.logged.closed * SECOND;
            head.late = true;
            self.late += 1;
        }
        self.logged.push(head, &values.text, &values.lengths);
    }

    /// Whether times are those of the ends of requests.
    pub(crate) fn shifts(&self) -> bool {
        self.begun.is_some()
    }

    /// The size of the waiting lines.
    pub fn held(&self) -> Room {
        let begun = self.begun.as_ref().map_or(Room::default(), |begun| begun.held);
        let Room { lines, bytes } = self.logged.held;
        Room { lines: lines + begun.lines, bytes: bytes + begun.bytes }
    }

    fn is_too_full(&self) -> bool {
        let held = self.held();
        held.lines > self.room.lines || held.bytes > self.room.bytes
    }

    /// Hands over every line that no later line can precede, given that all logs have reached `reached`, in
    /// microseconds.
    pub(crate) fn release(&mut self, reached: u64, each: &mut dyn FnMut(&Entry<'_>)) {
        self.close((reached / SECOND).saturating_sub(self.bound), each);
        while self.is_too_full() {
            let Some(first) = self.first() else { return };
            self.close(first + 1, each);
            self.close_begun(first + 1, each);
        }
    }

    /// Hands over all lines.
    pub(crate) fn finish(&mut self, each: &mut dyn FnMut(&Entry<'_>)) {
        self.close(u64::MAX, each);
        self.close_begun(u64::MAX, each);
    }

    fn first(&self) -> Option<u64> {
        let begun = self.begun.as_ref().and_then(Seconds::first);
        self.logged.first().into_iter().chain(begun).min()
    }

    fn close(&mut self, until: u64, each: &mut dyn FnMut(&Entry<'_>)) {
        let bound = self.bound;
        let Self { logged, begun, late, .. } = self;
        let Some(begun) = begun else {
            return logged.close(until, &mut |bucket| {
                bucket.spread();
                bucket.hand_over(each);
            });
        };
        logged.close(until, &mut |bucket| {
            bucket.spread();
            let closed = begun.closed * SECOND;
            for (index, (head, _)) in bucket.lines.iter().enumerate() {
                let start = head.at.saturating_sub(head.duration);
                *late += u64::from(start < closed && !head.late);
                let is_late = head.late || start < closed;
                let shifted = Head { at: start.max(closed), whole: false, late: is_late, ..*head };
                let (text, lengths) = bucket.values(index);
                begun.push(shifted, text, lengths);
            }
        });
        self.close_begun(until.saturating_sub(bound), each);
    }

    /// Hands over the lines that begin before `until`, in the order of their beginnings.
    fn close_begun(&mut self, until: u64, each: &mut dyn FnMut(&Entry<'_>)) {
        if let Some(begun) = &mut self.begun {
            begun.close(until, &mut |bucket| {
                bucket.sort();
                bucket.hand_over(each);
            });
        }
    }
}

/// Whether durations are subtracted from times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// A time is the moment at which a request began.
    None,
    /// A time is the moment at which a request ended.
    ByDuration,
}

impl Seconds {
    #[inline]
    fn push(&mut self, head: Head, text: &str, lengths: &[u16]) {
        let second = head.at / SECOND;
        if !matches!(&self.current, Some((current, _)) if *current == second) {
            self.turn_to(second);
        }
        let (_, bucket) = self.current.as_mut().expect("a bucket was chosen");
        bucket.lines.push((head, bucket.text.len()));
        bucket.text.push_str(text);
        bucket.lengths.extend_from_slice(lengths);
        self.held.lines += 1;
        self.held.bytes += size_of::<(Head, usize)>() + text.len() + size_of_val(lengths);
    }

    fn turn_to(&mut self, second: u64) {
        let next = self.open.remove(&second).or_else(|| self.spare.pop()).unwrap_or_default();
        if let Some((before, bucket)) = self.current.replace((second, next)) {
            self.open.insert(before, bucket);
        }
    }

    fn first(&self) -> Option<u64> {
        let current = self.current.as_ref().map(|(second, _)| *second);
        self.open.keys().next().copied().into_iter().chain(current).min()
    }

    /// Hands over and removes every second before `until`, in order.
    fn close(&mut self, until: u64, each: &mut dyn FnMut(&mut Bucket)) {
        if until <= self.closed {
            return;
        }
        self.closed = until;
        if let Some((second, bucket)) = self.current.take_if(|(second, _)| *second < until) {
            self.open.insert(second, bucket);
        }
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() >= until {
                break;
            }
            let mut bucket = entry.remove();
            self.held.lines -= bucket.lines.len();
            self.held.bytes -= bucket.bytes();
            each(&mut bucket);
            bucket.clear();
            if self.spare.len() < MOST_SPARE && bucket.text.capacity() <= MOST_SPARE_BYTES {
                self.spare.push(bucket);
            }
        }
    }
}

impl Bucket {
    /// Spreads the lines with whole seconds evenly over their second, and sorts all lines.
    fn spread(&mut self) {
        let whole = self.lines.iter().filter(|(head, _)| head.whole).count() as u64;
        let spread = self.lines.iter_mut().filter(|(head, _)| head.whole);
        for ((head, _), index) in spread.zip(0..) {
            head.at += SECOND * index / whole;
        }
        self.sort();
    }

    fn sort(&mut self) {
        if self.lines.is_sorted_by_key(|(head, _)| head.at) {
            return;
        }
        let width = self.lengths.len() / self.lines.len().max(1);
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        order.sort_by_key(|index| self.lines[*index].0.at);
        self.lines = order.iter().map(|index| self.lines[*index]).collect();
        self.lengths =
            order.iter().flat_map(|index| self.lengths[index * width..][..width].to_vec()).collect();
    }

    fn values(&self, index: usize) -> (&str, &[u16]) {
        let width = self.lengths.len() / self.lines.len().max(1);
        let lengths = &self.lengths[index * width..][..width];
        let from = self.lines[index].1;
        let length: usize = lengths.iter().filter(|length| **length != ABSENT).map(|l| usize::from(*l)).sum();
        (&self.text[from..from + length], lengths)
    }

    fn hand_over(&self, each: &mut dyn FnMut(&Entry<'_>)) {
        let width = self.lengths.len() / self.lines.len().max(1);
        for (index, (head, from)) in self.lines.iter().enumerate() {
            each(&Entry {
                at: Timestamp::from_micros(head.at),
                duration: Span::from_micros(head.duration),
                status: head.status,
                agent: head.agent,
                late: head.late,
                text: &self.text[*from..],
                lengths: &self.lengths[index * width..][..width],
            });
        }
    }

    /// The size of its lines in memory.
    fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + self.text.len() + size_of_val(&*self.lengths)
    }

    fn clear(&mut self) {
        self.lines.clear();
        self.text.clear();
        self.lengths.clear();
    }
}

impl<'b> Entry<'b> {
    /// A line without values.
    pub(crate) fn bare(at: Timestamp, duration: Span, status: u16, agent: u64) -> Self {
        Self { at, duration, status, agent, late: false, text: "", lengths: &[] }
    }

    /// The values of the line's fields, in the order of the layout.
    #[inline]
    pub(crate) fn values(&self) -> impl Iterator<Item = Option<&'b str>> {
        let (text, mut at) = (self.text, 0);
        self.lengths.iter().map(move |length| {
            (*length != ABSENT).then(|| {
                let from = at;
                at += usize::from(*length);
                &text[from..at]
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Room = Room { lines: 1_000, bytes: 1 << 20 };

    fn line(at: u64, whole: bool, duration: u64, name: &str) -> (Head, Values) {
        let lengths = vec![u16::try_from(name.len()).expect("a short name")];
        let values = Values { text: name.to_owned(), lengths };
        (Head { at, whole, duration, status: 200, agent: 0, late: false }, values)
    }

    fn ordered(order: &mut Order, lines: &[(Head, Values)]) -> Vec<(u64, String)> {
        let mut seen = Vec::new();
        let mut each = |entry: &Entry<'_>| {
            let name = entry.values().next().flatten().unwrap_or("").to_owned();
            seen.push((entry.at.as_micros(), name));
        };
        let mut reached = 0;
        for (head, values) in lines {
            order.push(*head, values);
            reached = reached.max(head.at);
            order.release(reached, &mut each);
        }
        order.finish(&mut each);
        seen
    }

    fn pairs(seen: &[(u64, String)]) -> Vec<(u64, &str)> {
        seen.iter().map(|(at, name)| (*at, &**name)).collect()
    }

    #[test]
    fn whole_seconds_are_spread_evenly_over_their_second() {
        let mut order = Order::new(Span::from_secs(5), WIDE, Shift::None);
        let lines: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| line(7_000_000, true, 0, name)).collect();
        let seen = ordered(&mut order, &lines);
        assert_eq!(pairs(&seen), [(7_000_000, "a"), (7_250_000, "b"), (7_500_000, "c"), (7_750_000, "d")]);
    }

    #[test]
    fn lines_out_of_order_within_the_bound_are_put_in_order() {
        let mut order = Order::new(Span::from_secs(5), WIDE, Shift::None);
        let lines = [(3, "b"), (9, "d"), (1, "a"), (5, "c")];
        let lines = lines.map(|(second, name)| line(second * SECOND, false, 0, name));
        // The line at 9 closes everything before 4, so the line at 1 comes too late and is replayed at 4.
        let seen = ordered(&mut order, &lines);
        assert_eq!(
            pairs(&seen),
            [(3 * SECOND, "b"), (4 * SECOND, "a"), (5 * SECOND, "c"), (9 * SECOND, "d")]
        );
        assert_eq!(order.late, 1);
    }

    #[test]
    fn a_time_at_the_end_is_shifted_by_the_duration() {
        let mut order = Order::new(Span::from_secs(30), WIDE, Shift::ByDuration);
        let lines = [line(10_000_000, false, 0, "quick"), line(11_000_000, false, 9_500_000, "slow")];
        let seen = ordered(&mut order, &lines);
        assert_eq!(pairs(&seen), [(1_500_000, "slow"), (10_000_000, "quick")]);
    }

    #[test]
    fn the_lines_that_wait_are_bounded() {
        let mut order = Order::new(Span::from_secs(1_000), Room { lines: 10, ..WIDE }, Shift::ByDuration);
        let mut most = 0;
        for second in 0..500 {
            let (head, values) = line(second * SECOND, true, 500_000, "x");
            order.push(head, &values);
            order.release(second * SECOND, &mut |_| {});
            most = most.max(order.held().lines);
        }
        assert!(most <= 11, "{most}");
    }

    #[test]
    fn lines_without_room_are_handed_over_in_order_of_their_beginnings() {
        let mut order = Order::new(Span::from_secs(1_000), Room { lines: 3, ..WIDE }, Shift::ByDuration);
        // All requests end in one second: the later one ends, the earlier it began.
        let lines: Vec<_> = (0..8_u64)
            .map(|number| line(10 * SECOND + number * 1_000, false, number * 50_000, &number.to_string()))
            .collect();
        let seen = ordered(&mut order, &lines);
        assert_eq!(seen.len(), 8);
        assert!(seen.is_sorted_by_key(|(at, _)| *at), "{seen:?}");
    }

    #[test]
    fn the_bytes_of_the_lines_that_wait_are_bounded() {
        let room = Room { lines: 1_000_000, bytes: 64 << 10 };
        let mut order = Order::new(Span::from_secs(1_000), room, Shift::None);
        let (text, mut most, mut seen) = ("x".repeat(1_000), 0, 0);
        for second in 0..500 {
            let (head, values) = line(second / 100 * SECOND, true, 0, &text);
            order.push(head, &values);
            order.release(second * SECOND, &mut |_| seen += 1);
            most = most.max(order.held().bytes);
        }
        order.finish(&mut |_| seen += 1);
        assert!(most <= room.bytes + 2_000, "{most}");
        assert_eq!((seen, order.held()), (500, Room::default()), "no line is lost, and nothing is left");
    }
}
