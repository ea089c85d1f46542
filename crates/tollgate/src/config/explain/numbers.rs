//! Numbers and durations as text for people.

use std::fmt;

use tollgate_core::Span;

/// Prints a whole number with commas between thousands.
pub(super) struct Whole(pub(super) u64);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// Units of time: microseconds and name.
const UNITS: [(u64, &str); 7] = [
    (7 * 86_400_000_000, "week"),
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
    (1_000, "millisecond"),
    (1, "microsecond"),
];

/// A duration: `90 seconds` is `1 minute 30 seconds`.
pub(super) fn spell(span: Span) -> String {
    let mut rest = span.as_micros();
    let mut words = Vec::new();
    for (size, unit) in UNITS {
        match rest / size {
            0 => {}
            1 => words.push(format!("1 {unit}")),
            count => words.push(format!("{} {unit}s", Whole(count))),
        }
        rest %= size;
    }
    if words.is_empty() { "no time".to_owned() } else { words.join(" ") }
}

/// The name of a duration that is exactly one unit.
pub(super) fn unit(span: Span) -> Option<&'static str> {
    UNITS.iter().find(|(size, _)| *size == span.as_micros()).map(|(_, unit)| *unit)
}

/// An ordinal number: `1st`, `12th`, `1,000th`.
pub(super) fn ordinal(number: u64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{}{ending}", Whole(number))
}

/// As after `any`: `hour`, or `15 minutes`.
pub(super) fn bare(span: Span) -> String {
    unit(span).map_or_else(|| spell(span), str::to_owned)
}

/// As after `of`: `an hour`, or `15 minutes`.
pub(super) fn with_article(span: Span) -> String {
    match unit(span) {
        Some("hour") => "an hour".to_owned(),
        Some(unit) => format!("a {unit}"),
        None => spell(span),
    }
}

/// As after a number: `a second`, or `every 15 minutes`.
pub(super) fn rate(span: Span) -> String {
    if unit(span).is_some() { with_article(span) } else { format!("every {}", spell(span)) }
}

#[cfg(test)]
mod tests {
    //! Spellings, case by case.

    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Whole(number).to_string(), text);
        }
    }

    #[test]
    fn lengths_of_time_are_spelled_out() {
        let table = [
            (Span::ZERO, "no time"),
            (Span::from_micros(1_500), "1 millisecond 500 microseconds"),
            (Span::from_secs(90), "1 minute 30 seconds"),
            (Span::from_secs(30 * 86_400), "4 weeks 2 days"),
        ];
        for (span, text) in table {
            assert_eq!(spell(span), text);
        }
    }
}
