//! Refuses requests that name a method of their own beside the one of HTTP.
//!
//! Many frameworks (Rack and Rails, Laravel, Symfony, Spring, Express) let a `POST` name another method in a header, in
//! the query or in the body. To the gateway such a request is a login. The service may treat it as a logout, and its
//! response must not be taken for the response to a login.

use http::HeaderName;

use super::account::{self, Names};
use super::{Facts, Wrong};

/// The headers that name a method.
const HEADERS: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];
/// The member of a query, form or JSON body that names a method.
const MEMBER: &str = "_method";

const IN_HEADER: &str = "a header names another one";
const IN_QUERY: &str = "`_method` in the query names another one";
const IN_BODY: &str = "`_method` in the body names another one";

pub(super) fn check(facts: &Facts<'_>) -> Result<(), Wrong> {
    // Services that read headers as variables take `_` for `-`.
    let names_method = |name: &HeaderName| HEADERS.contains(&&*name.as_str().replace('_', "-"));
    if facts.headers.keys().any(names_method) {
        return Err(Wrong::Unclear(IN_HEADER));
    }
    let query = facts.query.unwrap_or_default();
    account::check_absent(query, &Names::of_form(MEMBER)).map_err(|_| Wrong::Unclear(IN_QUERY))?;
    match facts.body {
        Some(body) if body.may_have(MEMBER)? => Err(Wrong::Unclear(IN_BODY)),
        _ => Ok(()),
    }
}
