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

    /// Goes on where something was written before.
    pub fn after(bytes: Vec<u8>) -> Self {
        Self(bytes)
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

    /// Appends what another one holds.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// A text in quotes.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.quote();
        self.add(text);
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
        if needs_escapes(text.as_bytes()) {
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

/// Whether some byte needs an escape. Nearly never does one, so all are looked at, eight at once.
#[inline]
fn needs_escapes(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().chain([last]).any(|word| word_needs_escapes(u64::from_le_bytes(*word)))
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// The top bit of some byte is set in the result if, and only if, some byte of the word is less than this.
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

/// Whether all bytes are visible ASCII or blanks, eight at once.
#[inline]
pub(crate) fn is_visible(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().chain([last]).all(|word| {
        let word = u64::from_le_bytes(*word);
        // Beyond ASCII, below the blank, or the one behind `~`.
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
