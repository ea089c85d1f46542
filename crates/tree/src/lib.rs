//! Texts in YAML and TOML as values with their positions.
//!
//! A configuration and the files of other programs become the same tree, so that all that follows can say where
//! something is. The parsers bound nesting, size, anchors and aliases. What the values mean is not known here.

mod problems;
pub mod toml;
mod tree;
pub mod yaml;

pub use problems::Problems;
pub use tree::{Entry, Node, Path, Place, Value};

/// A text that is not valid YAML or TOML, or exceeds a bound. Its author's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where the error is.
    pub place: Place,
    /// What is wrong, and how to correct it.
    pub message: String,
}
