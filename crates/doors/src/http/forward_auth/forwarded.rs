//! What a proxy says about a request: in the query of its question, and in headers.

use std::borrow::Cow;

use axum::http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use tollgate_web::{Problem, method, path};

use super::dialect::Dialect;

/// The query of a question.
pub(super) struct Query<'q> {
    pub(super) dialect: Dialect,
    /// The name of the route; empty if there is none.
    pub(super) route: Cow<'q, str>,
}

/// The request that a proxy describes. Its parts are parsed only if a rule needs them, since a service may
/// accept paths that others do not.
pub(super) struct Forwarded<'h> {
    pub(super) method: Method,
    uri: &'h [u8],
    host: &'h [u8],
}

impl<'q> Query<'q> {
    pub(super) fn read(query: Option<&'q str>) -> Result<Self, Problem> {
        let mut dialect = None;
        let mut route = None;
        for member in query.unwrap_or_default().split('&').filter(|member| !member.is_empty()) {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            let value = percent_decode_str(value).decode_utf8();
            let value =
                value.map_err(|_| Problem::misconfigured("the query is not UTF-8 once it is decoded"))?;
            let again = match name {
                "route" => route.replace(value).is_some(),
                "dialect" => dialect.replace(Dialect::of(&value).ok_or_else(no_dialect)?).is_some(),
                _ => {
                    let name: String = name.chars().take(64).collect();
                    let detail = format!("`{name}` is not a query parameter here; known are: route, dialect");
                    return Err(Problem::misconfigured(detail));
                }
            };
            if again {
                return Err(Problem::misconfigured(format!("`{name}` is there twice")));
            }
        }
        Ok(Self { dialect: dialect.unwrap_or(Dialect::Plain), route: route.unwrap_or_default() })
    }
}

fn no_dialect() -> Problem {
    Problem::misconfigured("`dialect` is `plain` or `nginx`")
}

impl<'h> Forwarded<'h> {
    pub(super) fn read(dialect: Dialect, headers: &'h HeaderMap) -> Result<Self, Problem> {
        let names = dialect.names();
        let method = only(headers, names.method)?.ok_or_else(|| missing(names.method))?;
        let method = Method::from_bytes(method).map_err(|_| Problem::bad_request("this is not a method"))?;
        method::check(&method)?;
        let uri = only(headers, names.uri)?.ok_or_else(|| missing(names.uri))?;
        Ok(Self { method, uri, host: only(headers, names.host)?.unwrap_or_default() })
    }

    /// The path in its normal form.
    pub(super) fn path(&self) -> Result<Cow<'h, str>, Problem> {
        let raw = self.uri.split(|byte| *byte == b'?').next().unwrap_or_default();
        let raw = str::from_utf8(raw).map_err(|_| Problem::bad_request("the path is not UTF-8"))?;
        Ok(path::normal(raw)?)
    }

    /// The query, if there is one.
    pub(super) fn query(&self) -> Result<Option<&'h str>, Problem> {
        let Some(mark) = self.uri.iter().position(|byte| *byte == b'?') else { return Ok(None) };
        let query = str::from_utf8(&self.uri[mark + 1..]);
        query.map(Some).map_err(|_| Problem::bad_request("the query is not UTF-8"))
    }

    /// The host in its normal form; empty if the proxy sent none.
    pub(super) fn host(&self) -> Result<Cow<'h, str>, Problem> {
        if self.host.is_empty() {
            return Ok(Cow::Borrowed(""));
        }
        let raw = str::from_utf8(self.host).map_err(|_| Problem::bad_request("the host is not UTF-8"))?;
        Ok(path::normal_host(raw)?)
    }
}

/// The only value of a header that the proxy writes. Of two values one is the client's, and they cannot be
/// told apart.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h [u8]>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        let detail = format!("`{name}` is there twice: the proxy must replace the client's own header");
        return Err(Problem::misconfigured(detail));
    }
    Ok(first.map(|value| value.as_bytes()))
}

fn missing(name: &str) -> Problem {
    Problem::misconfigured(format!("`{name}` is missing: the proxy must describe its client's request"))
}
