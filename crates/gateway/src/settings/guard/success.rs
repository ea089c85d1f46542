//! Recognises the response to a successful login.

use http::Method;
use tollgate_web::Statuses;

use super::super::{HeaderMatch, PathPattern};
use crate::h1::response::{ResponseHead, is_status};

/// The response to a successful login. Every condition must hold, and the request must have one of the paths
/// and one of the methods.
///
/// # Defaults
/// [`Success::new`] sets the default that each field states.
#[derive(Clone, Debug)]
pub struct Success {
    /// The statuses.
    pub statuses: Statuses,
    /// Headers that the response must have. Default: none.
    pub headers: Vec<HeaderMatch>,
    /// The cookie that the response must set, with a value and without expiring at once. Default: none.
    pub cookie: Option<Box<str>>,
    /// The methods of requests that can succeed. Default: `POST`.
    pub methods: Vec<Method>,
    /// The paths of requests that can succeed, in their normal form.
    pub paths: Vec<PathPattern>,
}

impl Success {
    /// These statuses for a `POST` to one of these paths.
    pub fn new(statuses: Statuses, paths: Vec<PathPattern>) -> Self {
        Self { statuses, headers: Vec::new(), cookie: None, methods: vec![Method::POST], paths }
    }

    /// Whether a login with this method, path and response succeeded.
    pub(super) fn covers(&self, method: &Method, path: &str, response: &ResponseHead) -> bool {
        let has = |wanted: &HeaderMatch| {
            let name = wanted.name.as_str().as_bytes();
            let mut lines = response.lines.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
            lines.any(|line| wanted.value.as_ref().is_none_or(|value| line.value == value.as_bytes()))
        };
        let sets = |name: &str| {
            let lines = response.lines.iter().filter(|line| line.name.eq_ignore_ascii_case(b"set-cookie"));
            lines.into_iter().any(|line| sets_cookie(line.value, name.as_bytes()))
        };
        is_status(&response.status)
            && self.statuses.contains(response.status)
            && self.methods.contains(method)
            && self.paths.iter().any(|pattern| pattern.matches(path))
            && self.headers.iter().all(has)
            && self.cookie.as_deref().is_none_or(sets)
    }
}

/// Whether a `Set-Cookie` value sets this cookie. An empty value or an immediate expiry deletes a cookie.
fn sets_cookie(line: &[u8], name: &[u8]) -> bool {
    let mut parts = line.split(|byte| *byte == b';');
    let Some((own, value)) = parts.next().and_then(pair) else { return false };
    let ends_at_once = |part: &[u8]| {
        pair(part).is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case(b"max-age")
                && (value.starts_with(b"-") || value.iter().all(|byte| *byte == b'0'))
        })
    };
    own == name && !matches!(value, b"" | b"\"\"") && !parts.any(ends_at_once)
}

/// The two sides of the first `=`.
fn pair(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = part.iter().position(|byte| *byte == b'=')?;
    Some((part[..equals].trim_ascii(), part[equals + 1..].trim_ascii()))
}
