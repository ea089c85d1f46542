//! Opens configurations to fuzzing: the tree of a text, and the explanation of what it means.

pub use crate::config::tree::{Node, Value};

use crate::cli;
use crate::config::{self, Config, Format};

/// The values that a text in this format has; `None` if it is malformed.
pub fn tree(text: &str, format: Format) -> Option<Node> {
    config::read_tree(text, format, "fuzzed").ok()
}

/// What `check-config` says of a configuration, as JSON.
pub fn explained(config: &Config) -> serde_json::Value {
    cli::explained(config)
}
