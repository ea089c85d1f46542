//! The guard of a route: its name, the fields that it reads from requests, and the meaning of responses.
//!
//! No response is taken for a success unless the settings describe it: a redirect to another host or a page
//! below the login's path must not clear a ladder. A response that the settings do not describe counts as a
//! failure, because an attempt was counted when it began and nothing says that it was none.

mod success;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tollgate_engine::guard::Ending;
use tollgate_web::Aliases;
use tollgate_web::Statuses;

use crate::h1::response::{ResponseHead, is_status};
pub use success::Success;

/// The guard of a route.
///
/// # Defaults
/// [`GuardSettings::new`] sets the default that each field states.
#[derive(Clone, Debug)]
pub struct GuardSettings {
    /// Its name.
    pub name: Arc<str>,
    /// Names for parts of requests, which the rules of its policy may use as fields. Its own names come first
    /// and may refer to the body; those for all routes follow. Default: none.
    pub fields: Aliases,
    /// The responses to a successful login.
    pub success: Success,
    /// The statuses of responses for which the service checked no password. Such an attempt is refunded. They
    /// take precedence over `success`. Default: none.
    pub neutral: Option<Statuses>,
    /// What happens to logins that a page of another site made a browser send. Default: refused.
    pub cross_site: CrossSite,
    /// The longest delay of a request, if the guard's ladders ask for one. Default: 5 s.
    pub max_delay: Duration,
}

/// What happens to logins that a page of another site made a browser send. The browser says so in
/// `Sec-Fetch-Site`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossSite {
    /// They get a 403 and are not counted.
    Refused,
    /// They are treated like other logins.
    Allowed,
}

impl GuardSettings {
    /// The upper bound of `max_delay`.
    pub const MOST_DELAY: Duration = Duration::from_secs(60);

    /// The guard of this name, with the defaults.
    pub fn new(name: impl Into<Arc<str>>, success: Success) -> Self {
        Self {
            name: name.into(),
            fields: Aliases::default(),
            success,
            neutral: None,
            cross_site: CrossSite::Refused,
            max_delay: Duration::from_secs(5),
        }
    }

    /// How a login ended, by its method and path and the response of the service.
    pub(crate) fn ending(&self, method: &Method, path: &str, response: &ResponseHead) -> Ending {
        match () {
            () if self.is_neutral(response.status) => Ending::Abandoned,
            () if self.success.covers(method, path, response) => Ending::Success,
            () => Ending::Failure,
        }
    }

    /// How a login ended that the gateway itself answered with this status, after the service may have seen
    /// it.
    pub(crate) fn ending_unanswered(&self, status: u16) -> Ending {
        if self.is_neutral(status) { Ending::Abandoned } else { Ending::Failure }
    }

    /// [`Statuses`] contains numbers that are no statuses; such a number must not refund anything.
    fn is_neutral(&self, status: u16) -> bool {
        is_status(&status) && self.neutral.is_some_and(|neutral| neutral.contains(status))
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::h1::response;

    fn answered(text: &str) -> ResponseHead {
        let mut head = ResponseHead::default();
        let whole = response::take(&mut BytesMut::from(text), &Method::POST, &mut head);
        assert_eq!(whole, Ok(true), "{text}");
        head
    }

    fn guard(success: Success) -> GuardSettings {
        GuardSettings::new("login", success)
    }

    fn success() -> Success {
        Success::new("[200, 303]".parse().unwrap(), vec!["/login".parse().unwrap()])
    }

    fn with_status(status: u16) -> ResponseHead {
        answered(&format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"))
    }

    #[test]
    fn only_a_described_response_succeeds_and_every_other_one_fails() {
        let guard = guard(success());
        let ending = |status| guard.ending(&Method::POST, "/login", &with_status(status));
        for status in [200, 303] {
            assert_eq!(ending(status), Ending::Success, "{status}");
        }
        for status in [101, 201, 204, 301, 302, 307, 308, 400, 401, 403, 404, 429, 500, 503] {
            assert_eq!(ending(status), Ending::Failure, "{status}");
        }
        let impossible = ResponseHead { status: 999, ..ResponseHead::default() };
        assert_eq!(guard.ending(&Method::POST, "/login", &impossible), Ending::Failure);
    }

    #[test]
    fn only_the_method_and_the_path_of_the_login_succeed() {
        let guard = guard(success());
        for (method, path) in [
            (Method::GET, "/login"),
            (Method::PUT, "/login"),
            (Method::POST, "/login/"),
            (Method::POST, "/login/forgot"),
            (Method::POST, "/"),
        ] {
            assert_eq!(guard.ending(&method, path, &with_status(200)), Ending::Failure, "{method} {path}");
        }
    }

    #[test]
    fn a_neutral_status_gives_the_attempt_back_and_wins() {
        let mut guard = guard(success());
        guard.neutral = Some("[303, 5xx]".parse().unwrap());
        let ending = |status| guard.ending(&Method::POST, "/login", &with_status(status));
        assert_eq!([ending(503), ending(303)], [Ending::Abandoned; 2]);
        assert_eq!([ending(200), ending(401)], [Ending::Success, Ending::Failure]);
        assert_eq!(guard.ending_unanswered(502), Ending::Abandoned);
        assert_eq!([guard.ending_unanswered(408), guard.ending_unanswered(999)], [Ending::Failure; 2]);
    }

    #[test]
    fn a_header_and_a_cookie_must_be_there_if_they_are_described() {
        let mut success = success();
        success.headers = vec![crate::settings::HeaderMatch {
            name: http::header::LOCATION,
            value: Some(http::HeaderValue::from_static("/home")),
        }];
        success.cookie = Some("sid".into());
        let guard = guard(success);
        let ending = |lines: &str| {
            let text = format!("HTTP/1.1 303 X\r\nContent-Length: 0\r\n{lines}\r\n");
            guard.ending(&Method::POST, "/login", &answered(&text))
        };
        for lines in [
            "Location: /home\r\nSet-Cookie: sid=7\r\n",
            "set-cookie: a=b\r\nSET-COOKIE:  sid = 7 ; Path=/; Max-Age=60\r\nlocation: /home\r\n",
        ] {
            assert_eq!(ending(lines), Ending::Success, "{lines}");
        }
        for lines in [
            "Location: /home\r\n",
            "Set-Cookie: sid=7\r\n",
            "Location: /login\r\nSet-Cookie: sid=7\r\n",
            "Location: /home\r\nSet-Cookie: SID=7\r\n",
            "Location: /home\r\nSet-Cookie: a=b; sid=7\r\n",
            "Location: /home\r\nSet-Cookie: sid=\r\n",
            "Location: /home\r\nSet-Cookie: sid=\"\"; Path=/\r\n",
            "Location: /home\r\nSet-Cookie: sid=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0\r\n",
            "Location: /home\r\nSet-Cookie: sid=7; max-age=-1\r\n",
            "Location: /home\r\nCookie: sid=7\r\n",
        ] {
            assert_eq!(ending(lines), Ending::Failure, "{lines}");
        }
    }
}
