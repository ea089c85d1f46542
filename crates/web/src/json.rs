//! Writes JSON piece by piece: constants, numbers, and texts that `serde_json` escapes.
//!
//! Templates and the sentences of refusals consist of many parts. They are written one behind the other into one
//! buffer. With a value for `serde_json` alone, each sentence would first be a text of its own.

/// A JSON text that is being written.
#[derive(Debug)]
pub struct Json(Vec<u8>);

impl Json {
    /// Starts with capacity for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Continues behind text that is already written.
    pub fn after(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The written text.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The buffer, for code that writes bytes of JSON itself.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Writes a constant that is valid JSON.
    #[inline]
    pub fn piece(&mut self, piece: &'static str) {
        self.0.extend_from_slice(piece.as_bytes());
    }

    /// Appends the text of another one.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Writes a quoted text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        serde_json::to_writer(&mut self.0, text).expect("every text can be written as JSON");
    }

    /// Writes a quote, at the start or end of a text in several parts.
    #[inline]
    pub fn quote(&mut self) {
        self.0.push(b'"');
    }

    /// Writes part of a text between quotes.
    #[inline]
    pub fn add(&mut self, text: &str) {
        let start = self.0.len();
        self.text(text);
        self.0.pop();
        self.0.remove(start);
    }

    /// Writes a whole number.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes a number or `null`.
    #[inline]
    pub fn maybe(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.piece("null"),
        }
    }

    /// Writes a boolean.
    #[inline]
    pub fn truth(&mut self, truth: bool) {
        self.piece(if truth { "true" } else { "false" });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            text in prop_oneof!["\\PC{0,40}", "[\\x00-\\x7f]{0,40}"], number: u64, truth: bool, none in prop::option::of(any::<u64>()),
        ) {
            let mut json = Json::with_capacity(0);
            json.piece("[");
            json.text(&text);
            json.piece(",");
            json.number(number);
            json.piece(",");
            json.truth(truth);
            json.piece(",");
            json.maybe(none);
            json.piece(",");
            json.quote();
            json.add(&text);
            json.add(&text);
            json.quote();
            json.piece("]");
            let read: (String, u64, bool, Option<u64>, String) = serde_json::from_slice(&json.into_bytes()).unwrap();
            let twice = text.repeat(2);
            prop_assert_eq!(read, (text, number, truth, none, twice));
        }
    }
}
