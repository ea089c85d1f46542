//! Writing JSON by hand, for answers that are written again and again: pieces that never change are
//! copied, and only what changes is looked at.

/// JSON as far as it is written.
#[derive(Debug)]
pub struct Json(Vec<u8>);

impl Json {
    /// Room for so many bytes, before any is moved.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// For what can only write bytes, and writes JSON.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// A piece that is JSON already.
    #[inline]
    pub fn piece(&mut self, piece: &'static str) {
        self.0.extend_from_slice(piece.as_bytes());
    }

    /// A text in quotes.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.quote();
        self.add(text);
        self.quote();
    }

    /// A word of ours in quotes: letters alone.
    #[inline]
    pub fn word(&mut self, word: &'static str) {
        self.quote();
        self.piece(word);
        self.quote();
    }

    /// The quote that begins or ends a text of several parts.
    #[inline]
    pub fn quote(&mut self) {
        self.0.push(b'"');
    }

    /// A part of a text, inside of quotes that stand already.
    #[inline]
    pub fn add(&mut self, text: &str) {
        // Looking at every byte is faster than stopping at the first that needs an escape: nearly
        // never is there one.
        if text.bytes().fold(false, |found, byte| found | needs_escape(byte)) {
            self.escape(text);
        } else {
            self.0.extend_from_slice(text.as_bytes());
        }
    }

    /// A whole number.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// A number, or null.
    #[inline]
    pub fn maybe(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.piece("null"),
        }
    }

    /// True or false.
    #[inline]
    pub fn truth(&mut self, truth: bool) {
        self.piece(if truth { "true" } else { "false" });
    }

    #[cold]
    fn escape(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.0.extend_from_slice(&[b'\\', byte]),
                0..0x20 => {
                    let digit = |value: u8| char::from_digit(u32::from(value), 16).map_or(b'0', |c| c as u8);
                    let (high, low) = (digit(byte >> 4), digit(byte & 15));
                    self.0.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
                }
                byte => self.0.push(byte),
            }
        }
    }
}

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
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
            json.piece("]");
            let read: (String, u64, bool, Option<u64>) = serde_json::from_slice(&json.into_bytes()).unwrap();
            prop_assert_eq!(read, (text, number, truth, none));
        }
    }
}
