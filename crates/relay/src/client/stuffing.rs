//! Converts a text to its form after DATA: every line ends in CRLF, and a dot at the start of a line is
//! doubled.

/// Converts one text, piece by piece.
///
/// A bare CR or LF becomes CRLF: servers disagree about them, and a text could end early at one of them.
#[derive(Debug)]
pub(super) struct Stuffing {
    at_start: bool,
    after_cr: bool,
}

impl Stuffing {
    pub(super) fn new() -> Self {
        Self { at_start: true, after_cr: false }
    }

    /// Converts a piece, and appends it to the output.
    pub(super) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        out.reserve(piece.len() + piece.len() / 32 + 2);
        for &byte in piece {
            if self.after_cr {
                out.extend_from_slice(b"\r\n");
                (self.after_cr, self.at_start) = (false, true);
                if byte == b'\n' {
                    continue;
                }
            }
            match byte {
                b'\r' => self.after_cr = true,
                b'\n' => {
                    out.extend_from_slice(b"\r\n");
                    self.at_start = true;
                }
                _ => {
                    if byte == b'.' && self.at_start {
                        out.push(b'.');
                    }
                    out.push(byte);
                    self.at_start = false;
                }
            }
        }
    }

    /// Appends the end of the text without the final dot.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if self.after_cr || !self.at_start {
            out.extend_from_slice(b"\r\n");
        }
        (self.after_cr, self.at_start) = (false, true);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stuffed(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut stuffing, mut out) = (Stuffing::new(), Vec::new());
        pieces.iter().for_each(|piece| stuffing.push(piece, &mut out));
        stuffing.end(&mut out);
        out
    }

    #[test]
    fn dots_are_doubled_and_lines_end_in_crlf() {
        for (text, expected) in [
            (&b""[..], &b""[..]),
            (b".", b"..\r\n"),
            (b"a\r\n.\r\nb\r\n", b"a\r\n..\r\nb\r\n"),
            (b"a\n.\nb", b"a\r\n..\r\nb\r\n"),
            (b"a\r.\rb", b"a\r\n..\r\nb\r\n"),
            (b"a\r\r\n.\r\n", b"a\r\n\r\n..\r\n"),
            (b"..\r\n", b"...\r\n"),
        ] {
            assert_eq!(stuffed(&[text]), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_ends_early_and_pieces_do_not_matter(
            text in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'.'), Just(b'a')], 0..40),
            at in 0..40_usize,
        ) {
            let whole = stuffed(&[&text]);
            let (one, two) = text.split_at(at.min(text.len()));
            prop_assert_eq!(&stuffed(&[one, two]), &whole);
            let mut wire = b"\r\n".to_vec();
            wire.extend_from_slice(&whole);
            for line in whole.split(|byte| *byte == b'\n') {
                prop_assert!(line != b".\r" && line != b".", "a line is a lone dot");
                prop_assert!(line.is_empty() || line.ends_with(b"\r") && !line[..line.len() - 1].contains(&b'\r'));
            }
        }
    }
}
