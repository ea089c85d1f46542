//! Values as text for people.

use std::time::Duration;

/// A duration, as in `0.04ms`, `12ms` or `1.2s`.
pub(super) fn time(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        ..10.0 => format!("{millis:.2}ms"),
        ..1000.0 => format!("{millis:.0}ms"),
        _ => format!("{:.1}s", millis / 1e3),
    }
}

/// A number of bytes, as in `1.5 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// A number and its noun, in the plural unless it is one.
pub(super) fn count(number: u64, noun: &str) -> String {
    match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_as_many_digits_as_matter() {
        let times = [40, 9_990, 12_345, 1_250_000].map(|micros| time(Duration::from_micros(micros)));
        assert_eq!(times, ["0.04ms", "9.99ms", "12ms", "1.2s"]);
        assert_eq!([900, 1536, 3 << 20].map(bytes), ["900 bytes", "1.5 KiB", "3.0 MiB"]);
        assert_eq!([0, 1, 2].map(|number| count(number, "key")), ["no keys", "1 key", "2 keys"]);
    }
}
