//! The audit log: one line for each change, with its author, its object, and the values before and after.

use super::endpoint::Ask;

/// A change.
#[derive(Default)]
pub(crate) struct Change<'c> {
    /// The kind of change, as in `route.assign`.
    pub(crate) action: &'static str,
    /// The changed object. Keys of secret rules are already pseudonyms.
    pub(crate) what: &'c str,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

impl Change<'_> {
    /// Writes the change to the log.
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
