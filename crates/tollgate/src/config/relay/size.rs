//! Sizes and numbers.

use crate::config::problem::{Findings, shown};
use crate::config::tree::Path;

/// The units of sizes, the longest first.
const UNITS: [(&str, u64); 14] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("B", 1),
];

/// Larger numbers do not fit the counters of the disk.
const MOST: u64 = 1 << 53;

/// A size in bytes, as in `50MiB`.
pub(in crate::config) fn bytes(text: &str, path: &Path, findings: &mut Findings<'_>) -> Option<u64> {
    let trimmed = text.trim();
    let unit = UNITS.iter().find_map(|(unit, worth)| Some((trimmed.strip_suffix(unit)?, *worth)));
    let (digits, worth) = unit.unwrap_or((trimmed, 1));
    let size =
        number(digits.trim()).and_then(|number| number.checked_mul(worth)).filter(|size| *size <= MOST);
    if size.is_none() {
        findings.value(path, format!("`{}` is not a size, as in `50MiB` or `1GiB`", shown(text)));
    }
    size
}

/// A number of at least one, as in `1_000_000`.
pub(in crate::config) fn count(text: &str, path: &Path, findings: &mut Findings<'_>) -> Option<u64> {
    let count = number(text.trim()).filter(|count| (1..=MOST).contains(count));
    if count.is_none() {
        findings.value(path, format!("`{}` is not a number of at least 1, as in `1000000`", shown(text)));
    }
    count
}

fn number(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// The configured number, if it is in this range.
pub(in crate::config) fn between(
    written: Option<u64>,
    (least, most): (u64, u64),
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<u64> {
    let number = written?;
    if !(least..=most).contains(&number) {
        let message = format!("`{number}` is too little or too much: write a number from {least} to {most}");
        findings.value(path, message);
        return None;
    }
    Some(number)
}
