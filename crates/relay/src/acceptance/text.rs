//! Checks the rules for every text, whatever door it comes through: lines end in CR LF, no NUL, not too long.
//!
//! The next hop reads the text line by line. A bare CR or LF would let a sender hide a second message in it.

use memchr::memchr3;

use crate::session::data::DataFault;

/// Checks one text, in pieces of any size.
#[derive(Debug)]
pub(super) struct TextChecker {
    /// The last byte, to find a CR LF across two pieces. It is LF before the first piece.
    last: u8,
    size: u64,
    most: u64,
    eight_bit: bool,
}

impl TextChecker {
    /// Makes a checker for a text of at most this many bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { last: b'\n', size: 0, most, eight_bit: false }
    }

    /// Checks the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), DataFault> {
        self.size = self.size.saturating_add(piece.len() as u64);
        if self.size > self.most {
            return Err(DataFault::TooLarge);
        }
        self.eight_bit |= !piece.is_ascii();
        let mut at = 0;
        // A CR at the end of the last piece must be followed by LF.
        if self.last == b'\r' && !piece.is_empty() {
            if piece[0] != b'\n' {
                return Err(DataFault::BareLineEnd);
            }
            at = 1;
        }
        while let Some(found) = memchr3(b'\r', b'\n', 0, &piece[at..]) {
            match (piece[at + found], piece.get(at + found + 1)) {
                (0, _) => return Err(DataFault::Nul),
                (b'\r', Some(b'\n')) => at += found + 2,
                (b'\r', None) => break,
                _ => return Err(DataFault::BareLineEnd),
            }
        }
        self.last = piece.last().copied().unwrap_or(self.last);
        Ok(())
    }

    /// Ends the text. Returns the bytes that its last line lacks.
    pub(super) fn finish(&self) -> Result<&'static [u8], DataFault> {
        match self.last {
            b'\r' => Err(DataFault::BareLineEnd),
            b'\n' => Ok(b""),
            _ => Ok(b"\r\n"),
        }
    }

    /// Whether the text contains bytes beyond ASCII.
    pub(super) fn is_eight_bit(&self) -> bool {
        self.eight_bit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a text whole and cut into two pieces at every position. All results must be equal.
    fn check(text: &[u8]) -> Result<&'static [u8], DataFault> {
        let mut found = None;
        for at in 0..=text.len() {
            let mut checker = TextChecker::new(100);
            let one = [&text[..at], &text[at..]].iter().try_for_each(|piece| checker.push(piece));
            let one = one.and_then(|()| checker.finish());
            assert_eq!(*found.get_or_insert(one), one, "cut at {at}");
        }
        found.unwrap()
    }

    #[test]
    fn lines_end_in_cr_lf_wherever_a_text_is_cut() {
        assert_eq!(check(b""), Ok(&b""[..]));
        assert_eq!(check(b"a\r\nb\r\n"), Ok(&b""[..]));
        assert_eq!(check(b"a\r\n\r\nb"), Ok(&b"\r\n"[..]), "the last line gets its end");
        for bare in [&b"a\nb"[..], b"a\rb", b"a\r", b"\n", b"a\r\r\n", b"a\r\n\nb", b"a\n\r\n"] {
            assert_eq!(check(bare), Err(DataFault::BareLineEnd), "{bare:?}");
        }
        assert_eq!(check(b"a\0b"), Err(DataFault::Nul));
        assert_eq!(check(&[b'x'; 101]), Err(DataFault::TooLarge));
    }
}
