//! How many decisions operators can look back at.

use tollgate_engine::journal::USUAL_MOST;

use super::problem::Findings;
use super::raw::JournalForm;
use super::tree::Path;

/// The fewest decisions that a journal keeps.
const FEWEST: usize = 100;
/// The most.
const MOST: usize = 100_000;

pub(super) fn mean(written: &JournalForm, findings: &mut Findings<'_>) -> usize {
    let Some(decisions) = written.decisions else { return USUAL_MOST };
    let known = usize::try_from(decisions).ok().filter(|decisions| (FEWEST..=MOST).contains(decisions));
    known.unwrap_or_else(|| {
        let path = Path::of(&["journal"]).key("decisions");
        findings.value(&path, format!("a journal keeps {FEWEST} to {MOST} decisions, not {decisions}"));
        USUAL_MOST
    })
}
