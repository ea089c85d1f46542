//! Small binary records: numbers, texts with their lengths, and lists.

/// A record being written.
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    /// Lists end before the record is longer than this.
    most: usize,
}

impl Writer {
    /// A record that begins with these bytes.
    pub(crate) fn new(start: &[u8], most: usize) -> Self {
        Self { bytes: start.to_vec(), most }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        let length = u16::try_from(text.len()).expect("names and keys are shorter than 64 KiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes all items: 1 before each, and 0 after the last.
    pub(crate) fn all<T>(&mut self, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Self, T)) {
        for item in items {
            self.byte(1);
            write(self, item);
        }
        self.byte(0);
    }

    /// Writes as many items as fit, in the same form. Returns whether all did.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Self, T),
    ) -> bool {
        let mut complete = true;
        for item in items {
            let start = self.bytes.len();
            self.bytes.push(1);
            write(self, item);
            if self.bytes.len() > self.most {
                self.bytes.truncate(start);
                complete = false;
                break;
            }
        }
        self.bytes.push(0);
        complete
    }
}

/// Reads a byte.
pub(crate) fn byte(body: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = body.split_first()?;
    *body = rest;
    Some(*byte)
}

/// Reads a number.
pub(crate) fn number(body: &mut &[u8]) -> Option<u64> {
    let (number, rest) = body.split_first_chunk::<8>()?;
    *body = rest;
    Some(u64::from_le_bytes(*number))
}

/// Reads a text.
pub(crate) fn text(body: &mut &[u8]) -> Option<String> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    *body = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// Reads a list.
pub(crate) fn list<T>(body: &mut &[u8], mut read: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    while byte(body)? != 0 {
        items.push(read(body)?);
    }
    Some(items)
}
