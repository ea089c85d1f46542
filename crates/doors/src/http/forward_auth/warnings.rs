//! What the log is told of proxies that ask wrongly: the client sees the answer, and who could mend it
//! sees only the log. Once a minute is enough to be found.

use std::net::IpAddr;

use axum::http::StatusCode;
use tollgate_core::{Span, Timestamp};
use tollgate_engine::log_limiter::LogLimiter;
use tollgate_web::Problem;

/// How often each line is written at most.
const PACE: Span = Span::from_secs(60);

/// The lines, each at its pace.
pub(crate) struct Warnings {
    wrong: LogLimiter,
    untrusted: LogLimiter,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { wrong: LogLimiter::new(PACE, 1), untrusted: LogLimiter::new(PACE, 1) }
    }
}

impl Warnings {
    /// A question that cannot be answered, through no fault of the client. `asked` is where it was asked.
    pub(super) fn note(&self, problem: &Problem, asked: &str, now: Timestamp) {
        if problem.status == StatusCode::INTERNAL_SERVER_ERROR && self.wrong.admits(now) {
            let asked: String = asked.chars().take(256).collect();
            tracing::warn!(
                component = "forward-auth",
                asked,
                error = problem.detail(),
                "a proxy is misconfigured; its clients get 500"
            );
        }
    }

    /// A proxy that says whom it asks for, and is not believed.
    pub(super) fn note_untrusted(&self, peer: IpAddr, now: Timestamp) {
        if self.untrusted.admits(now) {
            tracing::warn!(
                component = "forward-auth",
                %peer,
                "a proxy that is not in `clients.trusted_proxies` names its client: all clients behind it count as one"
            );
        }
    }
}
