//! How long requests in flight may take when the program ends.

use tollgate_core::Span;

use super::limits;
use super::problem::Findings;
use super::tree::Path;

/// The default.
const DEFAULT: Span = Span::from_secs(10);
/// A longer shutdown would look like a hung program.
const MOST: Span = Span::from_secs(600);

pub(super) fn mean(written: Option<&str>, findings: &mut Findings<'_>) -> Span {
    let path = Path::of(&["drain"]);
    match written.map(str::trim) {
        None => DEFAULT,
        // Everywhere else a duration of zero is an error.
        Some("0" | "0s") => Span::ZERO,
        Some(text) => {
            let span = limits::span(text, &path, findings).unwrap_or(DEFAULT);
            if span > MOST {
                findings.value(&path, format!("`{span}` is too long: at most `{MOST}` is allowed"));
            }
            span
        }
    }
}
