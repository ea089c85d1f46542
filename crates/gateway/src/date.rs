//! The `Date` header.

use bytes::Bytes;
use tollgate_core::Timestamp;

const NAME: &str = "date: ";
const LENGTH: &str = "\r\ncontent-length: ";

/// The `Date` line of HTTP/1, followed by the start of the `Content-Length` line.
#[derive(Default)]
pub(crate) struct Date(Bytes);

impl Date {
    pub(crate) fn at(now: Timestamp) -> Self {
        let micros = i64::try_from(now.as_micros()).unwrap_or_default();
        let now = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
        let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
        Self(format!("{NAME}{}{LENGTH}", text.unwrap_or_default()).into())
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`
    pub(crate) fn value(&self) -> Bytes {
        self.0.slice(NAME.len()..self.0.len() - LENGTH.len())
    }

    /// The `Date` line and `content-length: `, which are always written together.
    pub(crate) fn before_length(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_headers_have_them() {
        let date = Date::at(Timestamp::from_micros(784_111_777_000_000));
        assert_eq!(date.value(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.before_length(), b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: ");
    }
}
