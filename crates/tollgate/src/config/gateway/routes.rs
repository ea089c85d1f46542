//! The routes of the gateway, and their limits.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tollgate_core::policy::nearest;
use tollgate_gateway::settings::{HeaderMatch, Rewrite, RouteSettings};

use super::raw::{HeaderForm, Route, Texts};
use super::{Known, guards, policy, time};
use crate::config::problem::{Findings, hint, shown};
use crate::config::raw::Named;
use crate::config::rules::check_name;
use crate::config::tree::Path;

pub(super) fn mean(
    written: &Named<Route>,
    upstreams: &[&str],
    known: Known<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Vec<RouteSettings>> {
    if written.0.is_empty() {
        findings.value(path, "there is no route: name one, as in `{ all: { path: /*, upstream: shop } }`");
        return None;
    }
    let mut routes = Vec::new();
    let mut all_lead_somewhere = true;
    for (name, route) in &written.0 {
        let path = path.key(name);
        if let Err(message) = check_name(name) {
            findings.key(&path, message);
        }
        if !upstreams.contains(&route.upstream.as_str()) {
            let near = hint(nearest(&route.upstream, upstreams.iter().copied()));
            findings.value(
                &path.key("upstream"),
                format!("there is no upstream `{}`{near}", shown(&route.upstream)),
            );
            all_lead_somewhere = false;
        }
        routes.push(one(name, route, known, &path, findings));
    }
    all_lead_somewhere.then_some(routes)
}

fn one(
    name: &str,
    written: &Route,
    known: Known<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> RouteSettings {
    let mut route = RouteSettings::new(name, written.upstream.as_str());
    route.hosts = parsed(written.host.as_ref(), &path.key("host"), findings);
    route.paths = parsed(written.path.as_ref(), &path.key("path"), findings);
    route.methods = methods(written.method.as_ref(), &path.key("method"), findings);
    route.headers = headers(written.headers.as_ref(), &path.key("headers"), findings);
    route.policy =
        written.policy.as_ref().and_then(|name| policy(name, known, &path.key("policy"), findings));
    route.guard = written
        .guard
        .as_ref()
        .and_then(|guard| guards::mean(guard, &route, known, &path.key("guard"), findings));
    route.rewrite = rewrite(written, path, findings);
    if let Some(text) = &written.response_timeout {
        let mut timeout = Duration::ZERO;
        time(Some(text), &path.key("response_timeout"), findings, &mut timeout);
        route.response_timeout = Some(timeout);
    }
    route.body_bytes = written.body_bytes;
    route
}

/// Parses each of these texts.
pub(super) fn parsed<T: FromStr<Err: Display>>(
    written: Option<&Texts>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Vec<T> {
    each(written, path, findings, |text| text.parse().map_err(|error: T::Err| error.to_string()))
}

fn each<T>(
    written: Option<&Texts>,
    path: &Path,
    findings: &mut Findings<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let Some(written) = written else { return Vec::new() };
    let several = matches!(written, Texts::Several(_));
    if written.as_slice().is_empty() {
        findings.value(path, "this list is empty, so nothing would match: leave it out to match everything");
    }
    let mut found = Vec::new();
    for (index, text) in written.as_slice().iter().enumerate() {
        match parse(text) {
            Ok(meant) => found.push(meant),
            Err(message) if several => findings.value(&path.index(index), message),
            Err(message) => findings.value(path, message),
        }
    }
    found
}

pub(super) fn methods(written: Option<&Texts>, path: &Path, findings: &mut Findings<'_>) -> Vec<Method> {
    each(written, path, findings, |text| {
        let upper = text.to_ascii_uppercase();
        if text != upper {
            return Err(format!("methods are written in capitals: `{}`", shown(&upper)));
        }
        Method::from_bytes(text.as_bytes())
            .map_err(|_| format!("`{}` is not a method, as in `GET`", shown(text)))
    })
}

pub(super) fn headers(
    written: Option<&Named<HeaderForm>>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Vec<HeaderMatch> {
    let mut headers = Vec::new();
    for (name, form) in written.into_iter().flat_map(|named| &named.0) {
        let path = path.key(name);
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            findings.key(&path, format!("`{}` cannot name a header", shown(name)));
            continue;
        };
        let value = match form {
            HeaderForm::Present(true) => None,
            HeaderForm::Present(false) => {
                findings.value(&path, "write the value that the header must have, or `true` for any");
                continue;
            }
            HeaderForm::Value(text) => match HeaderValue::from_str(text) {
                Ok(value) => Some(value),
                Err(_) => {
                    findings.value(&path, format!("`{}` cannot be a header's value", shown(text)));
                    continue;
                }
            },
        };
        headers.push(HeaderMatch { name: header, value });
    }
    headers
}

fn rewrite(written: &Route, path: &Path, findings: &mut Findings<'_>) -> Option<Rewrite> {
    let mut prefix = |name: &str, written: Option<&String>| -> Box<str> {
        let text = written.map_or("", |text| text.trim_end_matches('/'));
        if !(text.is_empty() || text.starts_with('/')) || text.contains(['?', '#', '*', '{']) {
            findings.value(&path.key(name), format!("`{}` is not a path, as in `/api`", shown(text)));
        }
        text.into()
    };
    let taken = prefix("strip_prefix", written.strip_prefix.as_ref());
    let put = prefix("add_prefix", written.add_prefix.as_ref());
    (!taken.is_empty() || !put.is_empty()).then_some(Rewrite { prefix: taken, replacement: put })
}
