//! The guard of a route: which one it is, what requests say to it, and what their responses mean.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Statuses;
use tollgate_engine::guard::Ending;
use tollgate_web::Aliases;

/// The guard of a route.
///
/// # Defaults
/// [`GuardSettings::new`] gives what is said at each setting.
#[derive(Clone, Debug)]
pub struct GuardSettings {
    /// Its name.
    pub name: Arc<str>,
    /// Names for parts of requests, which the rules of its policy may use as fields: those that hold for
    /// all routes, and before them its own, which may lie in the body. Default: none.
    pub fields: Aliases,
    /// The statuses of a login that succeeded. Default: 2xx and 3xx.
    pub success: Statuses,
    /// The statuses of a login that failed, which win where both have one. Default: 401 and 403. With
    /// any other status nobody found out.
    pub failure: Statuses,
    /// How long a request is held back at most, if the guard's ladders ask for it. Default: 5 s.
    pub max_delay: Duration,
}

impl GuardSettings {
    /// The longest that a request may be held back.
    pub const MOST_DELAY: Duration = Duration::from_secs(60);

    /// The guard of this name, with the defaults.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let statuses = |text: &str| text.parse().expect("these are statuses");
        Self {
            name: name.into(),
            fields: Aliases::default(),
            success: statuses("[2xx, 3xx]"),
            failure: statuses("[401, 403]"),
            max_delay: Duration::from_secs(5),
        }
    }

    /// How a login ended that was answered with this status.
    pub(crate) fn ending(&self, status: u16) -> Ending {
        match status {
            status if self.failure.contains(status) => Ending::Failure,
            status if self.success.contains(status) => Ending::Success,
            _ => Ending::Abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_tell_how_a_login_ended() {
        let guard = GuardSettings::new("login");
        for (status, ending) in [
            (200, Ending::Success),
            (303, Ending::Success),
            (401, Ending::Failure),
            (403, Ending::Failure),
            (400, Ending::Abandoned),
            (404, Ending::Abandoned),
            (503, Ending::Abandoned),
            (101, Ending::Abandoned),
            // What is no status at all must not clear anything.
            (999, Ending::Failure),
        ] {
            assert_eq!(guard.ending(status), ending, "{status}");
        }
    }
}
