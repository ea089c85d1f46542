//! Warns of guarded routes whose settings let a guesser clear a ladder or get guesses refunded.

use tollgate_gateway::settings::{GuardSettings, RouteSettings};
use tollgate_web::Statuses;

use super::{Config, Warning};

/// The redirects that services send before they check a password, or after a wrong one.
const DOUBTFUL_SUCCESS: &str = "[301, 302, 307, 308]";
/// The statuses that services send for a wrong password.
const DOUBTFUL_NEUTRAL: &str = "[2xx, 3xx, 400, 401, 403, 422]";

impl Config {
    /// The warnings about the responses of guarded routes.
    pub(super) fn doubtful_logins(&self) -> Vec<Warning> {
        let routes = self.gateway.iter().flat_map(|gateway| &gateway.routes);
        let guarded = routes.filter_map(|route| Some((route, route.guard.as_ref()?)));
        guarded
            .flat_map(|(route, guard)| [doubtful_success(route, guard), doubtful_neutral(route, guard)])
            .flatten()
            .collect()
    }
}

fn doubtful_success(route: &RouteSettings, guard: &GuardSettings) -> Option<Warning> {
    let success = &guard.success;
    if !success.headers.is_empty() || success.cookie.is_some() {
        return None;
    }
    let status = first_of_both(&success.statuses, DOUBTFUL_SUCCESS)?;
    Some(Warning {
        policy: None,
        message: format!(
            "route {}: {status} clears the failures of guard {}, but services redirect for other reasons: another host, a missing slash, a wrong password",
            route.name, guard.name
        ),
        remedy: format!(
            "name what only a success has, as in `success: {{ status: {status}, cookie: session }}` or `success: {{ status: {status}, header: {{ location: /home }} }}`"
        ),
    })
}

fn doubtful_neutral(route: &RouteSettings, guard: &GuardSettings) -> Option<Warning> {
    let status = first_of_both(guard.neutral.as_ref()?, DOUBTFUL_NEUTRAL)?;
    Some(Warning {
        policy: None,
        message: format!(
            "route {}: a login that is answered with {status} is refunded by guard {}, but many services answer a wrong password with it",
            route.name, guard.name
        ),
        remedy: format!("leave {status} out of `neutral` unless the service checks no password then"),
    })
}

fn first_of_both(statuses: &Statuses, doubtful: &str) -> Option<u16> {
    let doubtful: Statuses = doubtful.parse().expect("these are statuses");
    (100..=599).find(|status| statuses.contains(*status) && doubtful.contains(*status))
}
