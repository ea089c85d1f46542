//! Logs as they are given to a feed: streams that can be read once, and files that are opened when their turn comes.

use std::io::{self, Read};

/// A log to read.
pub enum Input {
    /// It can be read once, and stays open until its end.
    Stream(Box<dyn Read>),
    /// It can be opened several times. It is closed while its turn has not come.
    File(OpenLog),
}

/// Opens a log.
pub type OpenLog = Box<dyn Fn(Pass) -> io::Result<Box<dyn Read>>>;

/// What a log is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// To recognise its format, and the time at which it begins.
    Recognise,
    /// To read all of it.
    Read,
}

impl From<Box<dyn Read>> for Input {
    fn from(reader: Box<dyn Read>) -> Self {
        Self::Stream(reader)
    }
}
