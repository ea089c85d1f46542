//! Writes JSON for frequent responses: constant pieces are copied, and only variable texts are checked for
//! escapes.

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
        self.quote();
        self.add(text);
        self.quote();
    }

    /// Writes a quote, at the start or end of a text in several parts.
    #[inline]
    pub fn quote(&mut self) {
        self.0.push(b'"');
    }

    /// Writes part of a text between quotes.
    #[inline]
    pub fn add(&mut self, text: &str) {
        if needs_escapes(text.as_bytes()) {
            self.escape(text);
        } else {
            self.0.extend_from_slice(text.as_bytes());
        }
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

/// Whether any byte needs an escape, eight at a time. Hardly any text does.
#[inline]
fn needs_escapes(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().chain([last]).any(|word| word_needs_escapes(u64::from_le_bytes(*word)))
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// The top bit of some byte of the result is set if and only if some byte of the word is less than `than`.
#[inline]
fn less(word: u64, than: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(than)) & !word
}

/// Whether one of eight bytes needs an escape.
#[inline]
fn word_needs_escapes(word: u64) -> bool {
    let is = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    (less(word, 0x20) | is(b'"') | is(b'\\')) & (ONES << 7) != 0
}

/// Whether all bytes are visible ASCII or blanks, eight at a time.
#[inline]
pub(crate) fn is_visible(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().chain([last]).all(|word| {
        let word = u64::from_le_bytes(*word);
        // Not ASCII, below the blank, or DEL.
        (word | less(word, 0x20) | less(word ^ (ONES * 0x7f), 1)) & (ONES << 7) == 0
    })
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

        #[test]
        fn text_is_visible_if_each_of_its_bytes_is(bytes in prop::collection::vec(prop_oneof![9 => 0x1e_u8..0x82, 1 => any::<u8>()], 0..20)) {
            prop_assert_eq!(is_visible(&bytes), bytes.iter().all(|byte| (b' '..=b'~').contains(byte)));
        }

        #[test]
        fn text_that_is_mostly_visible_is_not_visible(mut bytes in prop::collection::vec(b' '..=b'~', 1..30), at: prop::sample::Index, odd: u8) {
            prop_assert!(is_visible(&bytes));
            *at.get_mut(&mut bytes) = odd;
            prop_assert_eq!(is_visible(&bytes), (b' '..=b'~').contains(&odd));
        }
    }
}
