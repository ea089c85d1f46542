//! Explains the errors of a file that belongs to another program: it is not to be corrected, but to be imported.

use std::path::Path;

use tollgate_import::{Input, recognise};

use super::ConfigError;

/// The command that imports the file, if it belongs to another program; otherwise the error.
pub(super) fn or_explain(path: &Path, text: &str, error: ConfigError) -> ConfigError {
    let source = path.display().to_string();
    let Some(system) = recognise(&Input { name: &source, text }) else { return error };
    let message = format!(
        "this is a configuration of {system}, not of tollgate: translate it with `tollgate import {} -o tollgate.yaml`",
        quoted(&source)
    );
    ConfigError::of_source(&source, message)
}

/// A path as a word of a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    if !path.is_empty() && path.chars().all(plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}
