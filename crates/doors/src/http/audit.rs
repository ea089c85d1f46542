//! The log of changes: one line for each, with who made it, what it was about, and from what to what.

use super::endpoint::Ask;

/// A change that was made.
#[derive(Default)]
pub(crate) struct Change<'c> {
    /// What was done, as in `route.assign`.
    pub(crate) action: &'static str,
    /// What it was done to. Keys of secret rules are veiled before they get here.
    pub(crate) what: &'c str,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

impl Change<'_> {
    /// Tells the log.
    pub(crate) fn tell(self, ask: &Ask) {
        let Self { action, what, before, after } = self;
        tracing::info!(
            component = "audit",
            actor = ask.caller(),
            action,
            what,
            before,
            after,
            "changed over the API"
        );
    }
}
