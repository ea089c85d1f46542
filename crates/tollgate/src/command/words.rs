//! Values as text for people: times in two units, and texts without control characters.

pub(crate) use crate::printable::plain;

/// A duration, rounded up so that a wait is never too short: `29m 59s`, `1d 4h`.
pub(crate) fn span(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let seconds = millis.div_ceil(1_000);
    let first = UNITS.iter().position(|(size, _)| seconds >= *size).unwrap_or(UNITS.len() - 1);
    let (large, large_unit) = UNITS[first];
    let Some((small, small_unit)) = UNITS.get(first + 1) else { return format!("{seconds}{large_unit}") };
    let parts = seconds.div_ceil(*small);
    let (whole, rest) = (parts / (large / small), parts % (large / small));
    // Rounding up can fill the larger unit: 23h 59m 59s becomes a day.
    if first > 0 && whole * large == UNITS[first - 1].0 {
        return format!("1{}", UNITS[first - 1].1);
    }
    if rest == 0 { format!("{whole}{large_unit}") } else { format!("{whole}{large_unit} {rest}{small_unit}") }
}

/// A number with separated thousands: `1,234,567`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_put_in_two_units_and_never_too_short() {
        let table = [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_001, "2s"),
            (59_001, "1m"),
            (1_799_000, "29m 59s"),
            (1_799_001, "30m"),
            (3_600_000, "1h"),
            (3_601_000, "1h 1m"),
            (86_399_000, "1d"),
            (86_400_000, "1d"),
            (100_000_000, "1d 4h"),
            (8_640_000_000, "100d"),
        ];
        for (millis, expected) in table {
            assert_eq!(span(millis), expected, "{millis}");
        }
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([7, 1_000, 1_234_567].map(number), ["7", "1,000", "1,234,567"]);
    }
}
