//! The text of a message as it comes after DATA: where it ends, and what is wrong with it.
//!
//! Only CR LF, a dot, CR LF ends a text. A server that also takes another sequence for the end lets a sender hide
//! a second message in the first one (SMTP smuggling). So a bare CR or LF makes the text malformed: it is read to
//! its end, answered, and never passed on.

use memchr::memchr3;

/// Receives one text, in pieces of any size.
#[derive(Clone, Debug)]
pub struct DataReceiver {
    state: State,
    fault: Option<DataFault>,
    /// How many bytes of text have come, and how many may.
    size: u64,
    most: u64,
    eight_bit: bool,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// It contains a CR or LF that is not part of CR LF.
    BareLineEnd,
    /// It contains a NUL.
    Nul,
    /// It is longer than it may be.
    TooLarge,
}

/// What came of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many bytes of the piece belong to the text. Those after them are commands.
    pub consumed: usize,
    /// Whether the text has ended.
    pub ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    /// A text of at most this many bytes.
    pub fn new(most: u64) -> Self {
        Self { state: State::LineStart, fault: None, size: 0, most, eight_bit: false }
    }

    /// Reads a piece, and appends to `out` what the text says: without the dots that were added for the
    /// transport, and without the end. Appends nothing once something is wrong.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Progress {
        let mut at = 0;
        while at < piece.len() && self.state != State::Ended {
            if self.state == State::Text {
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
        Progress { consumed: at, ended: self.state == State::Ended }
    }

    /// What is wrong with the text so far. The first fault is kept.
    pub fn fault(&self) -> Option<DataFault> {
        self.fault
    }

    /// Whether the text contains bytes beyond ASCII.
    pub fn is_eight_bit(&self) -> bool {
        self.eight_bit
    }

    /// How many bytes of text have come, those of a text that is too long included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads one byte that may change the state. Answers how many bytes it used: none if the byte is to be read
    /// again in the new state.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> usize {
        match (self.state, byte) {
            (State::LineStart, b'.') => self.state = State::Dot,
            (State::Dot, b'\r') => self.state = State::DotCr,
            (State::DotCr, b'\n') => self.state = State::Ended,
            (State::Cr, b'\n') => {
                self.emit(b"\r\n", out);
                self.state = State::LineStart;
            }
            (State::Cr | State::DotCr, _) => {
                self.blame(DataFault::BareLineEnd);
                // The byte is no dot at the start of a line: that CR ended none.
                self.state = State::Text;
                return 0;
            }
            (_, b'\r') => self.state = State::Cr,
            (_, b'\n') => {
                self.blame(DataFault::BareLineEnd);
                self.state = State::Text;
            }
            (_, 0) => {
                self.blame(DataFault::Nul);
                self.state = State::Text;
            }
            _ => {
                self.state = State::Text;
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
