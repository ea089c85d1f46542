//! The text of a message after DATA: finds its end, and the reasons to refuse it.
//!
//! Only CR LF, a dot, CR LF ends a text. If a server accepts another sequence as the end, a sender can hide a
//! second message in the first one (SMTP smuggling). So a bare CR or LF makes the text malformed: it is read to
//! its end, refused, and never passed on.

use memchr::memchr3;

/// Receives one text, in pieces of any size.
#[derive(Clone, Debug)]
pub struct DataReceiver {
    state: TextState,
    fault: Option<DataFault>,
    /// The number of text bytes received, and the most that are allowed.
    size: u64,
    most: u64,
    eight_bit: bool,
}

/// The reason why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// It contains a CR or LF that is not part of CR LF.
    BareLineEnd,
    /// It contains a NUL.
    Nul,
    /// It is longer than allowed.
    TooLarge,
}

/// The result of reading a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceRead {
    /// The number of bytes of the piece that belong to the text. Those after them are commands.
    pub consumed: usize,
    /// Whether the text has ended.
    pub ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextState {
    /// After CR LF, or before the first byte.
    LineStart,
    /// After a dot that begins a line.
    Dot,
    /// After a dot that begins a line, and CR.
    DotCr,
    /// Inside a line.
    Text,
    /// After CR.
    Cr,
    /// After the end.
    Ended,
}

impl DataReceiver {
    /// Makes a receiver for a text of at most this many bytes.
    pub fn new(most: u64) -> Self {
        Self { state: TextState::LineStart, fault: None, size: 0, most, eight_bit: false }
    }

    /// Reads a piece, and appends its text to `out`: without the dots that were added for the transport, and
    /// without the end. After a fault it appends nothing.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> PieceRead {
        let mut at = 0;
        while at < piece.len() && self.state != TextState::Ended {
            if self.state == TextState::Text {
                let run = memchr3(b'\r', b'\n', 0, &piece[at..]).unwrap_or(piece.len() - at);
                self.emit(&piece[at..at + run], out);
                at += run;
                if at == piece.len() {
                    break;
                }
            }
            at += self.step(piece[at], out);
        }
        self.eight_bit |= !piece[..at].is_ascii();
        PieceRead { consumed: at, ended: self.state == TextState::Ended }
    }

    /// The first fault of the text that was found so far.
    pub fn fault(&self) -> Option<DataFault> {
        self.fault
    }

    /// Whether the text contains bytes beyond ASCII.
    pub fn is_eight_bit(&self) -> bool {
        self.eight_bit
    }

    /// The number of text bytes received, including those beyond the bound.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Handles one byte that may change the state. Returns the number of bytes used: zero if the byte must be
    /// handled again in the new state.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> usize {
        match (self.state, byte) {
            (TextState::LineStart, b'.') => self.state = TextState::Dot,
            (TextState::Dot, b'\r') => self.state = TextState::DotCr,
            (TextState::DotCr, b'\n') => self.state = TextState::Ended,
            (TextState::Cr, b'\n') => {
                self.emit(b"\r\n", out);
                self.state = TextState::LineStart;
            }
            (TextState::Cr | TextState::DotCr, _) => {
                self.blame(DataFault::BareLineEnd);
                // The byte is not a dot at the start of a line, so the CR before it did not end the text.
                self.state = TextState::Text;
                return 0;
            }
            (_, b'\r') => self.state = TextState::Cr,
            (_, b'\n') => {
                self.blame(DataFault::BareLineEnd);
                self.state = TextState::Text;
            }
            (_, 0) => {
                self.blame(DataFault::Nul);
                self.state = TextState::Text;
            }
            _ => {
                self.state = TextState::Text;
                return 0;
            }
        }
        1
    }

    fn emit(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.size = self.size.saturating_add(text.len() as u64);
        if self.size > self.most {
            self.blame(DataFault::TooLarge);
        }
        if self.fault.is_none() {
            out.extend_from_slice(text);
        }
    }

    fn blame(&mut self, fault: DataFault) {
        self.fault.get_or_insert(fault);
    }
}
