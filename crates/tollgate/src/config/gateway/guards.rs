//! The guard of a route: its name, the fields of its requests, and the meaning of their responses.

mod success;

use std::time::Duration;

use tollgate_core::Policy;
use tollgate_core::policy::nearest;
use tollgate_gateway::settings::{CrossSite, GuardSettings, RouteSettings};
use tollgate_web::facts::{Aliases, Reach};

use super::raw::RouteGuard;
use super::{Known, time};
use crate::config::counting;
use crate::config::problem::{Findings, hint, shown};
use crate::config::raw::Named;
use crate::config::tree::Path;

pub(super) fn mean(
    written: &RouteGuard,
    route: &RouteSettings,
    known: Known<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<GuardSettings> {
    let policy = policy(&written.name, known, &path.key("name"), findings);
    let fields = policy.and_then(|policy| fields(written.fields.as_ref(), policy, known, path, findings));
    let success = success::mean(written.success.as_ref(), route, path, findings);
    let neutral = written
        .neutral
        .as_ref()
        .and_then(|statuses| counting::mean(statuses, &path.key("neutral"), findings));
    let mut guard = GuardSettings::new(written.name.as_str(), success?);
    guard.neutral = neutral;
    if written.cross_site == Some(true) {
        guard.cross_site = CrossSite::Allowed;
    }
    check_statuses_differ(&guard, path, findings);
    delay(written, &mut guard, path, findings);
    guard.fields = fields?;
    Some(guard)
}

/// The policy of an existing guard.
fn policy<'k>(name: &str, known: Known<'k>, path: &Path, findings: &mut Findings<'_>) -> Option<&'k Policy> {
    let Some(guard) = known.guards.iter().find(|guard| *guard.name == *name) else {
        // An error in the guard itself is reported where the guard is.
        let written = || known.written_guards.iter().copied();
        if !written().any(|written| written == name) {
            let near = hint(nearest(name, written()));
            findings.value(path, format!("there is no guard `{}`{near}", shown(name)));
        }
        return None;
    };
    // A missing policy of a guard is reported where the guard is.
    known.policies.iter().find(|policy| policy.name == guard.policy)
}

/// The sources of the policy's fields: those given here, or else those for all routes.
fn fields(
    written: Option<&Named<String>>,
    policy: &Policy,
    known: Known<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Aliases> {
    let pairs = written.iter().flat_map(|named| &named.0);
    let all = match known.clients.aliases.with(pairs.map(|(name, source)| (name.as_str(), source.as_str()))) {
        Ok(all) => all,
        Err(error) => {
            findings.value(&path.key("fields"), error.to_string());
            return None;
        }
    };
    for (name, _) in written.into_iter().flat_map(|named| &named.0) {
        if !policy.fields().any(|field| field == name) {
            let near = hint(nearest(name, policy.fields()));
            let message = format!("no rule of policy `{}` counts by `{}`{near}", policy.name, shown(name));
            findings.key(&path.key("fields").key(name), message);
        }
    }
    check(&all, policy, path, findings);
    Some(all)
}

fn check(fields: &Aliases, policy: &Policy, path: &Path, findings: &mut Findings<'_>) {
    if let Err(unknown) = fields.check(policy, Reach::Body) {
        let field = shown(&unknown.field);
        findings.value(path, format!("{unknown}, as in `fields: {{ {field}: form.{field} }}`"));
    }
}

/// Reports a status that is both a success and neutral.
fn check_statuses_differ(guard: &GuardSettings, path: &Path, findings: &mut Findings<'_>) {
    let Some(neutral) = &guard.neutral else { return };
    let both = |status: &u16| guard.success.statuses.contains(*status) && neutral.contains(*status);
    if let Some(status) = (100..=599).find(both) {
        findings.value(&path.key("neutral"), format!("`{status}` is one of the statuses of `success` too"));
    }
}

fn delay(table: &RouteGuard, guard: &mut GuardSettings, path: &Path, findings: &mut Findings<'_>) {
    let path = path.key("max_delay");
    if table.max_delay.as_deref() == Some("none") {
        guard.max_delay = Duration::ZERO;
        return;
    }
    time(table.max_delay.as_deref(), &path, findings, &mut guard.max_delay);
    let most = GuardSettings::MOST_DELAY;
    if guard.max_delay > most {
        let seconds = most.as_secs();
        findings.value(&path, format!("a login can be delayed for `{seconds}s` at most"));
    }
}
