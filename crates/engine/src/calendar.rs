//! The boundaries of calendar periods, in any time zone, across daylight-saving changes.

use arc_swap::ArcSwap;
use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use smallvec::SmallVec;
use tollgate_core::limit::{Page, Period, Unit};
use tollgate_core::{Charges, Timestamp};

/// The calendar pages in use. They are replaced when the store's time leaves them.
#[derive(Default)]
pub struct Calendars {
    pages: ArcSwap<SmallVec<[Page; 4]>>,
}

/// Whether a time zone of this name is known.
pub fn zone_exists(name: &str) -> bool {
    TimeZone::get(name).is_ok()
}

impl Calendars {
    /// Gives charges of calendar limits the pages they need, as far as they are cached.
    pub(crate) fn fill(&self, charges: &mut Charges<'_>) {
        let known = self.pages.load();
        let wanted = known.iter().filter(|page| charges.periods().any(|period| *period == page.period));
        charges.calendar = wanted.cloned().collect();
    }

    /// Replaces the pages by those around a moment.
    pub(crate) fn turn(&self, charges: &Charges<'_>, now: Timestamp) {
        let fresh: SmallVec<[Page; 4]> = charges.periods().map(|period| page(period, now)).collect();
        self.pages.rcu(|known| {
            let kept = known.iter().filter(|page| fresh.iter().all(|new| new.period != page.period));
            kept.chain(&fresh).cloned().collect::<SmallVec<[Page; 4]>>()
        });
    }
}

/// The page of the calendar around a moment.
pub fn page(period: &Period, now: Timestamp) -> Page {
    let zone = period.zone.as_deref().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC);
    let start = floor(period.unit, &zone, now);
    let middle = after(period.unit, &zone, now);
    let end = after(period.unit, &zone, middle);
    Page { period: period.clone(), edges: [start, middle, end] }
}

/// The start of the period around a moment.
fn floor(unit: Unit, zone: &TimeZone, at: Timestamp) -> Timestamp {
    match unit {
        Unit::Minute => floor_local(60, zone, at),
        Unit::Hour => floor_local(3_600, zone, at),
        Unit::Day | Unit::Week | Unit::Month => start_of_days(unit, &zoned(zone, at), 0),
    }
}

/// The first boundary after a moment.
fn after(unit: Unit, zone: &TimeZone, at: Timestamp) -> Timestamp {
    match unit {
        Unit::Minute => floor_local(60, zone, at) + tollgate_core::Span::from_secs(60),
        Unit::Hour => floor_local(3_600, zone, at) + tollgate_core::Span::from_secs(3_600),
        Unit::Day | Unit::Week | Unit::Month => start_of_days(unit, &zoned(zone, at), 1),
    }
}

fn floor_local(secs: i64, zone: &TimeZone, at: Timestamp) -> Timestamp {
    let moment = zoned(zone, at);
    let size = secs * 1_000_000;
    let local = moment.timestamp().as_microsecond() + i64::from(moment.offset().seconds()) * 1_000_000;
    at - tollgate_core::Span::from_micros(local.rem_euclid(size).unsigned_abs())
}

/// The start of the day, week or month around a moment, or of the one `later` after it.
fn start_of_days(unit: Unit, moment: &Zoned, later: i64) -> Timestamp {
    let date = moment.date();
    let date = match unit {
        Unit::Week => date.saturating_sub(i64::from(date.weekday().since(Weekday::Monday)).days()),
        Unit::Month => date.first_of_month(),
        Unit::Minute | Unit::Hour | Unit::Day => date,
    };
    let date = match unit {
        Unit::Week => date.saturating_add(later.weeks()),
        Unit::Month => date.saturating_add(later.months()),
        Unit::Minute | Unit::Hour | Unit::Day => date.saturating_add(later.days()),
    };
    let start = date.to_zoned(moment.time_zone().clone()).and_then(|start| start.start_of_day());
    start.map_or(Timestamp::ZERO, |start| {
        Timestamp::from_micros(start.timestamp().as_microsecond().max(0).unsigned_abs())
    })
}

fn zoned(zone: &TimeZone, at: Timestamp) -> Zoned {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    moment.to_zoned(zone.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(unit: Unit, zone: &str, at: &str) -> Vec<String> {
        let now: jiff::Timestamp = at.parse().unwrap();
        let now = Timestamp::from_micros(now.as_microsecond().unsigned_abs());
        let period = Period { unit, zone: Some(zone.into()) };
        let shown = |edge: &Timestamp| zoned(&TimeZone::UTC, *edge).strftime("%F %H:%M").to_string();
        page(&period, now).edges.iter().map(shown).collect()
    }

    #[test]
    fn days_follow_the_clocks_of_their_zone() {
        let spring = edges(Unit::Day, "Europe/Berlin", "2026-03-29T12:00:00Z");
        assert_eq!(spring, ["2026-03-28 23:00", "2026-03-29 22:00", "2026-03-30 22:00"], "a day of 23 hours");
        let autumn = edges(Unit::Day, "Europe/Berlin", "2026-10-25T12:00:00Z");
        assert_eq!(autumn, ["2026-10-24 22:00", "2026-10-25 23:00", "2026-10-26 23:00"], "a day of 25 hours");
        let skipped = edges(Unit::Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z");
        assert_eq!(skipped[0], "2018-11-04 03:00", "a day whose midnight does not exist starts at one");
    }

    #[test]
    fn weeks_start_on_monday_and_months_on_the_first() {
        let week = edges(Unit::Week, "UTC", "2026-11-15T20:00:00Z");
        assert_eq!(week, ["2026-11-09 00:00", "2026-11-16 00:00", "2026-11-23 00:00"]);
        let month = edges(Unit::Month, "UTC", "2026-12-31T23:59:59Z");
        assert_eq!(month, ["2026-12-01 00:00", "2027-01-01 00:00", "2027-02-01 00:00"]);
    }

    #[test]
    fn hours_and_minutes_follow_odd_offsets() {
        let hour = edges(Unit::Hour, "Asia/Kathmandu", "2026-06-01T10:20:30Z");
        assert_eq!(hour, ["2026-06-01 10:15", "2026-06-01 11:15", "2026-06-01 12:15"]);
        let minute = edges(Unit::Minute, "UTC", "2026-06-01T10:20:30Z");
        assert_eq!(minute, ["2026-06-01 10:20", "2026-06-01 10:21", "2026-06-01 10:22"]);
    }
}
