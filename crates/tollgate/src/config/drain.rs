//! How long requests that are under way may take once the program was told to end.

use tollgate_core::Span;

use super::limits;
use super::problem::Findings;
use super::tree::Path;

/// Unless it is said otherwise.
const DEFAULT: Span = Span::from_secs(10);
/// Whoever waits longer for an end takes the program for one that hangs.
const MOST: Span = Span::from_secs(600);

pub(super) fn mean(written: Option<&str>, findings: &mut Findings<'_>) -> Span {
    let path = Path::of(&["drain"]);
    match written.map(str::trim) {
        None => DEFAULT,
        // A duration is more than nothing everywhere else.
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
