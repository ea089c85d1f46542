//! Moments as log lines show them.

use tollgate_core::Timestamp;

/// A moment as RFC 3339 has it.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).to_string()
}
