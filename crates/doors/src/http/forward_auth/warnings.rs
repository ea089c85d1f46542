//! Logs proxies that ask wrongly. The response goes to the client, so the operator sees only the log. One
//! line a minute is enough.

use std::net::IpAddr;

use axum::http::StatusCode;
use tollgate_core::{Span, Timestamp};
use tollgate_engine::log_limiter::LogLimiter;
use tollgate_web::Problem;

/// The least time between two lines of one kind.
const PACE: Span = Span::from_secs(60);

/// The rate-limited log lines.
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
    /// Logs a question that cannot be answered and is not the client's fault. `asked` is its path.
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

    /// Logs a proxy that names a client but is not trusted.
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
