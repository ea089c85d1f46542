//! The logs that a feed reads: streams that can be read once, and files that are opened when the feed needs
//! them.

use std::io::{self, Read};

/// A log to read.
pub enum Input {
    /// A log that can be read once. It stays open until its end.
    Stream(Box<dyn Read>),
    /// A log that can be opened several times. It is closed until the feed needs its lines.
    File(OpenLog),
}

/// Opens a log.
pub type OpenLog = Box<dyn Fn(Pass) -> io::Result<Box<dyn Read>>>;

/// The purpose for which a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// To recognise its format and the time of its first lines.
    Recognise,
    /// To read all of it.
    Read,
}

impl From<Box<dyn Read>> for Input {
    fn from(reader: Box<dyn Read>) -> Self {
        Self::Stream(reader)
    }
}
