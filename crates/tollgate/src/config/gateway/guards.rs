//! The guard of a route: which one, what its requests say to it, and what their responses mean.

use std::time::Duration;

use tollgate_core::policy::nearest;
use tollgate_core::{Policy, Statuses};
use tollgate_gateway::settings::GuardSettings;
use tollgate_web::facts::{Aliases, Reach};

use super::raw::{RouteGuard, RouteGuardTable};
use super::{Known, time};
use crate::config::counting;
use crate::config::problem::{Findings, hint, shown};
use crate::config::raw::{CountWhen, Named};
use crate::config::tree::Path;

pub(super) fn mean(
    written: &RouteGuard,
    known: Known<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<GuardSettings> {
    match written {
        RouteGuard::Name(name) => {
            let policy = policy(name, known, path, findings)?;
            let mut guard = GuardSettings::new(name.as_str());
            guard.fields = known.clients.aliases.clone();
            check(&guard.fields, policy, path, findings);
            Some(guard)
        }
        RouteGuard::Table(table) => {
            let policy = policy(&table.name, known, &path.key("name"), findings);
            let mut guard = GuardSettings::new(table.name.as_str());
            answers(table, &mut guard, path, findings);
            delay(table, &mut guard, path, findings);
            guard.fields = fields(table.fields.as_ref(), policy?, known, path, findings)?;
            Some(guard)
        }
    }
}

/// The policy of a guard that exists.
fn policy<'k>(name: &str, known: Known<'k>, path: &Path, findings: &mut Findings<'_>) -> Option<&'k Policy> {
    let Some(guard) = known.guards.iter().find(|guard| *guard.name == *name) else {
        // What is wrong with one that was written is told where it stands.
        let written = || known.written_guards.iter().copied();
        if !written().any(|written| written == name) {
            let near = hint(nearest(name, written()));
            findings.value(path, format!("there is no guard `{}`{near}", shown(name)));
        }
        return None;
    };
    // A guard whose policy is missing was told of where it is written.
    known.policies.iter().find(|policy| policy.name == guard.policy)
}

/// Where the fields of the policy come from: as is said here, or as for all routes.
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

/// What statuses mean. A status that was written for both means neither.
fn answers(table: &RouteGuardTable, guard: &mut GuardSettings, path: &Path, findings: &mut Findings<'_>) {
    let mut set = |name: &str, written: Option<&CountWhen>, setting: &mut Statuses| {
        let Some(written) = written else { return };
        if let Some(statuses) = counting::mean(written, &path.key(name), findings) {
            *setting = statuses;
        }
    };
    set("success", table.success.as_ref(), &mut guard.success);
    set("failure", table.failure.as_ref(), &mut guard.failure);
    let both = |status: &u16| guard.success.contains(*status) && guard.failure.contains(*status);
    if table.success.is_some()
        && table.failure.is_some()
        && let Some(status) = (100..=599).find(both)
    {
        findings.value(&path.key("failure"), format!("`{status}` is written for `success` too"));
    }
}

fn delay(table: &RouteGuardTable, guard: &mut GuardSettings, path: &Path, findings: &mut Findings<'_>) {
    let path = path.key("max_delay");
    if table.max_delay.as_deref() == Some("none") {
        guard.max_delay = Duration::ZERO;
        return;
    }
    time(table.max_delay.as_deref(), &path, findings, &mut guard.max_delay);
    let most = GuardSettings::MOST_DELAY;
    if guard.max_delay > most {
        let seconds = most.as_secs();
        findings.value(&path, format!("a login is held back for `{seconds}s` at most, and refused then"));
    }
}
