//! What an import found in each line.

use std::fmt;

use tollgate_tree::Place;

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it is in the files.
    pub place: Place,
    /// What became of it.
    pub verdict: Verdict,
    /// What it says there, and here, and the reason if they differ.
    pub message: String,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It decides here as it does there.
    Exact,
    /// It decides differently here.
    Differs,
    /// The file does not say enough; the message tells what was assumed, and the option that answers.
    Answer,
    /// It is not imported.
    LeftOut,
}

impl Verdict {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Differs => "differs",
            Self::Answer => "answer",
            Self::LeftOut => "left_out",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::Differs => "differs",
            Self::Answer => "answer?",
            Self::LeftOut => "left out",
        })
    }
}
