//! Parses the times of logs. The shape of the text decides which form it has.
//!
//! A time without a zone is in the zone that the caller gives. A time without a year is in the latest year for
//! which it is not in the future.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tollgate_core::Timestamp;

/// A time in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// In microseconds since the epoch.
    pub micros: u64,
    /// Whether the text has only whole seconds.
    pub whole: bool,
}

pub struct Stamps {
    zone: Option<TimeZone>,
    /// The end of the last second that is not in the future.
    latest: u64,
    /// The last lookup of the zone: the hour, and its offset in seconds.
    known: Option<(i64, i64)>,
    last: LastRead,
}

/// The latest parsed time. Many lines of a log have the same time as the line before.
#[derive(Clone, Copy, Default)]
struct LastRead {
    text: [u8; 32],
    length: usize,
    stamp: Option<Stamp>,
}

/// A log's clock may be ahead by this many seconds.
const MOST_AHEAD: u64 = 86_400;
const SECOND: u64 = 1_000_000;

/// A parsed time whose zone may be unknown.
struct Written {
    /// Seconds since the epoch, as if the time were in UTC.
    seconds: i64,
    micros: u64,
    whole: bool,
    zoned: bool,
}

impl Stamps {
    /// Makes a parser as of `now`. Times without a zone are in `zone`, or else in UTC.
    pub fn new(now: Timestamp, zone: Option<TimeZone>) -> Self {
        Self { zone, latest: now.as_micros() / SECOND + MOST_AHEAD, known: None, last: LastRead::default() }
    }

    /// Whether a time is so far in the future that the line must be damaged.
    pub fn is_future(&self, stamp: Stamp) -> bool {
        stamp.micros / SECOND > self.latest
    }

    /// Parses a time; `None` if the text is not one.
    #[inline]
    pub fn read(&mut self, text: &[u8]) -> Option<Stamp> {
        if text.len() == self.last.length && *text == self.last.text[..text.len()] {
            return self.last.stamp;
        }
        let stamp = self.parse(text);
        if let Some(kept) = self.last.text.get_mut(..text.len()) {
            kept.copy_from_slice(text);
            (self.last.length, self.last.stamp) = (text.len(), stamp);
        }
        stamp
    }

    fn parse(&mut self, text: &[u8]) -> Option<Stamp> {
        let text = text.strip_prefix(b"[").unwrap_or(text);
        let text = text.strip_suffix(b"]").unwrap_or(text);
        let written = match text {
            [_, _, b'/', ..] => common(text),
            [_, _, _, _, b'-', ..] => iso(text),
            [b'A'..=b'Z', ..] => self.syslog(text),
            _ => return epoch(text),
        }?;
        let seconds = if written.zoned { written.seconds } else { self.in_zone(written.seconds)? };
        let seconds = u64::try_from(seconds).ok()?;
        Some(Stamp { micros: seconds * SECOND + written.micros, whole: written.whole })
    }

    fn in_zone(&mut self, seconds: i64) -> Option<i64> {
        let Some(zone) = &self.zone else { return Some(seconds) };
        let hour = seconds.div_euclid(3_600);
        // Offsets change at most once an hour, but at any quarter of it, so the offset is kept for one UTC
        // hour.
        if let Some((known, offset)) = self.known
            && known == hour
        {
            return Some(seconds - offset);
        }
        let civil: DateTime = jiff::Timestamp::from_second(seconds).ok()?.to_zoned(TimeZone::UTC).datetime();
        let at = |seconds: i64| -> Option<i64> {
            let civil = jiff::Timestamp::from_second(seconds).ok()?.to_zoned(TimeZone::UTC).datetime();
            Some(zone.to_ambiguous_timestamp(civil).compatible().ok()?.as_second())
        };
        let real = zone.to_ambiguous_timestamp(civil).compatible().ok()?.as_second();
        let (first, last) = (at(hour * 3_600)?, at(hour * 3_600 + 3_599)?);
        let steady = last - first == 3_599;
        self.known = steady.then_some((hour, seconds - real));
        Some(real)
    }

    /// `Nov 17 09:08:55`: without a year.
    fn syslog(&self, text: &[u8]) -> Option<Written> {
        let month = month(text.get(..3)?)?;
        let rest = text.get(3..)?.trim_ascii_start();
        let (day, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?)?;
        let day = number(day)?;
        let time = clock(rest.get(1..9)?)?;
        let year = jiff::Timestamp::from_second(i64::try_from(self.latest).ok()?).ok()?;
        let year = i64::from(year.to_zoned(TimeZone::UTC).year());
        // 29 February exists only in leap years, which are at most eight years apart.
        let mut years = (0..=8).filter_map(|back| Some(days(year - back, month, day)? * 86_400 + time));
        let seconds = years.find(|seconds| u64::try_from(*seconds).is_ok_and(|at| at <= self.latest))?;
        Some(Written { seconds, micros: 0, whole: true, zoned: false })
    }
}

/// `17/Nov/2026:09:08:55 +0100`.
#[inline]
fn common(text: &[u8]) -> Option<Written> {
    if text.len() < 20 || text[2] != b'/' || text[6] != b'/' || text[11] != b':' {
        return None;
    }
    let date = days(number(&text[7..11])?, month(&text[3..6])?, number(&text[..2])?)?;
    let seconds = date * 86_400 + clock(&text[12..20])?;
    let rest = &text[20..];
    let (micros, whole, rest) = fraction(rest)?;
    let zone = offset(rest.trim_ascii_start())?;
    Some(Written { seconds: seconds - zone.unwrap_or(0), micros, whole, zoned: zone.is_some() })
}

/// `2026-11-17T09:08:55.123Z`, with a space instead of the `T`, or without a zone.
fn iso(text: &[u8]) -> Option<Written> {
    if text.len() < 19 || text[7] != b'-' || !matches!(text[10], b'T' | b' ' | b't') {
        return None;
    }
    let date = days(number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?)?;
    let seconds = date * 86_400 + clock(&text[11..19])?;
    let (micros, whole, rest) = fraction(&text[19..])?;
    let zone = offset(rest.trim_ascii_start())?;
    Some(Written { seconds: seconds - zone.unwrap_or(0), micros, whole, zoned: zone.is_some() })
}

/// `1794906535.123`: seconds since the epoch, or milli-, micro- or nanoseconds if the number is that large.
fn epoch(text: &[u8]) -> Option<Stamp> {
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (whole, rest) = text.split_at(point);
    if whole.len() > 19 || whole.is_empty() {
        return None;
    }
    let count = u64::try_from(number(whole)?).ok()?;
    let (fraction, is_whole, rest) = fraction(rest)?;
    if !rest.is_empty() {
        return None;
    }
    Some(match count {
        0..=99_999_999_999 => Stamp { micros: count * SECOND + fraction, whole: is_whole },
        100_000_000_000..=99_999_999_999_999 => Stamp { micros: count * 1_000, whole: false },
        100_000_000_000_000..=99_999_999_999_999_999 => Stamp { micros: count, whole: false },
        _ => Stamp { micros: count / 1_000, whole: false },
    })
}

/// Parses an optional fraction of a second: its microseconds, whether it was absent, and the rest.
fn fraction(text: &[u8]) -> Option<(u64, bool, &[u8])> {
    let [b'.' | b',', rest @ ..] = text else { return Some((0, true, text)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let padded = rest[..digits].iter().map(|digit| u64::from(digit - b'0')).chain(std::iter::repeat(0));
    let micros = padded.take(6).fold(0, |micros, digit| micros * 10 + digit);
    (digits > 0).then(|| (micros, false, &rest[digits..]))
}

/// The offset of a zone in seconds: `Z`, `+0100`, `-05:30`, or nothing.
#[inline]
fn offset(text: &[u8]) -> Option<Option<i64>> {
    let (sign, digits) = match text {
        [] => return Some(None),
        [b'Z' | b'z'] => return Some(Some(0)),
        b"UTC" | b"GMT" => return Some(Some(0)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        2 => (digits, &b"00"[..]),
        4 => digits.split_at(2),
        5 if digits[2] == b':' => (&digits[..2], &digits[3..]),
        _ => return None,
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 18 && minutes < 60).then_some(Some(sign * (hours * 3_600 + minutes * 60)))
}

/// `09:08:55` in seconds.
#[inline]
fn clock(text: &[u8]) -> Option<i64> {
    if text.len() != 8 || text[2] != b':' || text[5] != b':' {
        return None;
    }
    let (hours, minutes, seconds) = (number(&text[..2])?, number(&text[3..5])?, number(&text[6..8])?);
    // A leap second counts as the first of the next minute.
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(hours * 3_600 + minutes * 60 + seconds)
}

#[inline]
fn number(digits: &[u8]) -> Option<i64> {
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    (!digits.is_empty() && value >= 0).then_some(value)
}

#[inline]
fn month(name: &[u8]) -> Option<i64> {
    const NAMES: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    NAMES.iter().position(|known| *known == name).map(|index| index as i64 + 1)
}

/// The days since the epoch of a date in the proleptic Gregorian calendar.
#[inline]
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month - 1).ok()?)?;
    if !(1970..=9_999).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last of a year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-17T09:08:55Z.
    const NOW: u64 = 1_794_906_535;

    fn read(text: &str) -> Option<(u64, bool)> {
        read_in(text, None)
    }

    fn read_in(text: &str, zone: Option<&str>) -> Option<(u64, bool)> {
        let zone = zone.map(|zone| TimeZone::get(zone).expect("a zone"));
        let mut stamps = Stamps::new(Timestamp::from_micros(NOW * SECOND), zone);
        let stamp = stamps.read(text.as_bytes())?;
        Some((stamp.micros, stamp.whole))
    }

    #[test]
    fn every_form_is_the_same_moment() {
        let whole = Some((NOW * SECOND, true));
        assert_eq!(read("17/Nov/2026:09:08:55 +0000"), whole);
        assert_eq!(read("[17/Nov/2026:10:08:55 +0100]"), whole);
        assert_eq!(read("2026-11-17T04:08:55-05:00"), whole);
        assert_eq!(read("2026-11-17 09:08:55"), whole);
        assert_eq!(read("Nov 17 09:08:55"), whole);
        assert_eq!(read("1794906535"), whole);
        let finer = Some((NOW * SECOND + 120_000, false));
        assert_eq!(read("2026-11-17T09:08:55.12Z"), finer);
        assert_eq!(read("1794906535.12"), finer);
        assert_eq!(read("1794906535120"), finer);
        assert_eq!(read("1794906535120000"), finer);
        assert_eq!(read("1794906535120000000"), finer);
    }

    #[test]
    fn a_time_without_a_zone_is_in_the_named_one() {
        let berlin = Some("Europe/Berlin");
        assert_eq!(read_in("Nov 17 10:08:55", berlin), Some((NOW * SECOND, true)));
        assert_eq!(read_in("2026-07-01T12:00:00", berlin), read("2026-07-01T10:00:00Z"));
        assert_eq!(read_in("2026-07-01T12:00:00Z", berlin), read("2026-07-01T12:00:00Z"));
        assert_eq!(read_in("2026-10-25T01:59:59", berlin), read("2026-10-24T23:59:59Z"));
        assert_eq!(read_in("2026-10-25T03:00:00", berlin), read("2026-10-25T02:00:00Z"));
    }

    #[test]
    fn a_time_without_a_year_is_not_in_the_future() {
        assert_eq!(read("Dec 31 23:59:59"), read("2025-12-31T23:59:59Z"));
        assert_eq!(read("Nov 17 23:00:00"), read("2026-11-17T23:00:00Z"), "clocks may differ a little");
        assert_eq!(read("Feb 29 00:00:00"), read("2024-02-29T00:00:00Z"));
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for text in [
            "",
            "-",
            "[",
            "[]",
            "17/Nov/2026",
            "32/Nov/2026:09:08:55 +0000",
            "17/Nov/2026:24:08:55 +0000",
            "17/Nox/2026:09:08:55 +0000",
            "2026-02-30T00:00:00Z",
            "2026-11-17T09:08",
            "Nov",
            "Nov 17",
            "99999999999999999999999",
            "1794906535x",
            "2026-11-17T09:08:55+99:00",
            "1960-01-01T00:00:00Z",
            "1794906535.",
            "-1",
            "\u{661}7/Nov/2026:09:08:55 +0000",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
