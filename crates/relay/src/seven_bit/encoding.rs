//! Quoted-printable and base64 (RFC 2045), fed piece by piece.

use data_encoding::BASE64;

/// The longest line that an encoding writes, without its end.
const LINE: usize = 76;
/// The number of bytes in a line of base64.
const GROUP: usize = LINE / 4 * 3;

/// Encodes lines as quoted-printable.
#[derive(Debug, Default)]
pub(super) struct QuotedPrintable {
    column: usize,
    /// A space, tab or CR whose meaning the next byte tells: at the end of a line they are encoded.
    pending: Option<u8>,
}

impl QuotedPrintable {
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            match (self.pending.take(), byte) {
                (Some(b'\r'), b'\n') => {
                    out.extend_from_slice(b"\r\n");
                    self.column = 0;
                    continue;
                }
                (Some(space @ (b' ' | b'\t')), b'\r' | b'\n') => self.put_encoded(space, out),
                (Some(b'\r'), _) => self.put_encoded(b'\r', out),
                (Some(other), _) => self.put(&[other], out),
                (None, _) => {}
            }
            match byte {
                b' ' | b'\t' | b'\r' => self.pending = Some(*byte),
                b'=' => self.put_encoded(*byte, out),
                b'!'..=b'~' => self.put(&[*byte], out),
                _ => self.put_encoded(*byte, out),
            }
        }
    }

    /// Writes what is left at the end of a body.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if let Some(last) = self.pending.take() {
            self.put_encoded(last, out);
        }
        self.column = 0;
    }

    fn put_encoded(&mut self, byte: u8, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        self.put(&[b'=', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]], out);
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // The last column is for the soft line break.
        if self.column + bytes.len() > LINE - 1 {
            out.extend_from_slice(b"=\r\n");
            self.column = 0;
        }
        out.extend_from_slice(bytes);
        self.column += bytes.len();
    }
}

/// Encodes bytes as base64. The end of the last line belongs to the boundary that follows, and not to the body.
#[derive(Debug, Default)]
pub(super) struct Base64 {
    group: Vec<u8>,
    /// The end of the last line.
    held: &'static [u8],
}

impl Base64 {
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        self.take(held, out);
        let body = bytes.strip_suffix(b"\r\n");
        if body.is_some() {
            self.held = b"\r\n";
        }
        self.take(body.unwrap_or(bytes), out);
    }

    /// Writes what is left at the end of a body.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.held = b"";
        if !self.group.is_empty() {
            write_line(&std::mem::take(&mut self.group), out);
        }
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let count = bytes.len().min(GROUP - self.group.len());
            self.group.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.group.len() == GROUP {
                write_line(&self.group, out);
                self.group.clear();
            }
        }
    }
}

fn write_line(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
}
