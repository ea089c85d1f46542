//! The response to a successful login, from its written form to its meaning.

use http::Method;
use tollgate_gateway::settings::{PathPattern, RouteSettings, Success};
use tollgate_web::Statuses;

use crate::config::counting;
use crate::config::gateway::raw::{SuccessForm, SuccessTable};
use crate::config::gateway::routes;
use crate::config::problem::{Findings, listed, shown};
use crate::config::raw::CountWhen;
use crate::config::tree::Path;

/// Converts `success`, for the guard at `guard` of a route.
pub(super) fn mean(
    written: Option<&SuccessForm>,
    route: &RouteSettings,
    guard: &Path,
    findings: &mut Findings<'_>,
) -> Option<Success> {
    let path = guard.key("success");
    let (table, status) = match written {
        None => {
            findings.key(
                guard,
                "which responses mean that a login succeeded? Add `success`, as in `success: 303` or `success: { status: 303, cookie: session }`; every other response counts as a failure",
            );
            return None;
        }
        Some(SuccessForm::Statuses(statuses)) => (&SuccessTable::default(), Some((statuses, path.clone()))),
        Some(SuccessForm::Table(table)) => {
            (&**table, table.status.as_ref().map(|statuses| (statuses, path.key("status"))))
        }
    };
    let statuses = statuses(table, status, &path, findings);
    let mut success = Success::new(statuses?, paths(table, route, &path, findings)?);
    success.headers = routes::headers(table.header.as_ref(), &path.key("header"), findings);
    success.cookie = cookie(table, &path, findings);
    if table.method.is_some() {
        success.methods = routes::methods(table.method.as_ref(), &path.key("method"), findings);
    }
    check_methods(&success.methods, route, &path, findings);
    Some(success)
}

fn statuses(
    table: &SuccessTable,
    written: Option<(&CountWhen, Path)>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Statuses> {
    if let Some((statuses, path)) = written {
        return counting::mean(statuses, &path, findings);
    }
    if table.header.is_none() && table.cookie.is_none() {
        findings.value(path, "`success` is empty: add `status`, `header` or `cookie`");
        return None;
    }
    Some("[2xx, 3xx]".parse().expect("these are statuses"))
}

/// The paths of requests that can succeed. Pages below the login path do not count.
fn paths(
    table: &SuccessTable,
    route: &RouteSettings,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Vec<PathPattern>> {
    if table.path.is_none() {
        if route.paths.is_empty() || route.paths.iter().any(PathPattern::is_all) {
            findings.value(
                path,
                "the route takes every path, and not every path is a login: name the login's, as in `success: { status: 303, path: /login }`",
            );
            return None;
        }
        return Some(route.paths.iter().flat_map(PathPattern::without_below).collect());
    }
    let path = path.key("path");
    let paths: Vec<PathPattern> = routes::parsed(table.path.as_ref(), &path, findings);
    let taken = |own: &&PathPattern| {
        let text = own.to_string();
        let literal = !text.contains(['*', '{']);
        !literal || route.paths.is_empty() || route.paths.iter().any(|pattern| pattern.matches(&text))
    };
    if let Some(other) = paths.iter().find(|own| !taken(own)) {
        findings.value(&path, format!("the route does not take `{}`", shown(&other.to_string())));
    }
    Some(paths)
}

fn cookie(table: &SuccessTable, path: &Path, findings: &mut Findings<'_>) -> Option<Box<str>> {
    let name = table.cookie.as_deref()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(fits) {
        findings.value(&path.key("cookie"), format!("`{}` cannot name a cookie", shown(name)));
    }
    Some(name.into())
}

fn check_methods(methods: &[Method], route: &RouteSettings, path: &Path, findings: &mut Findings<'_>) {
    if route.methods.is_empty() || methods.iter().any(|method| route.methods.contains(method)) {
        return;
    }
    let own = listed(methods.iter().map(Method::as_str));
    let taken = listed(route.methods.iter().map(Method::as_str));
    findings.value(
        path,
        format!("a request with {own} can succeed, and the route takes {taken}: add `method` to `success`"),
    );
}
