//! Which policies fit a place in the program: they must exist, and use only fields that are known there.

use tollgate_core::Policy;
use tollgate_core::policy::nearest;

use super::problem::{Findings, hint, listed, shown};
use super::tree::Path;

/// A place where a policy decides, and the fields known there.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    /// What it decides, in messages.
    pub(super) what: &'static str,
    pub(super) fields: &'static [&'static str],
}

/// The policy of this name, which must exist and fit the stage. `written` has the names that the file has, whether or not
/// their definitions are valid.
pub(super) fn policy_at<'p>(
    name: &str,
    stage: Stage,
    (policies, written): (&'p [Policy], &[&str]),
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<&'p Policy> {
    let Some(policy) = policies.iter().find(|policy| *policy.name == *name) else {
        // An invalid definition is reported where it is written.
        if !written.contains(&name) {
            let near = hint(nearest(name, written.iter().copied()));
            findings.value(path, format!("there is no policy `{}`{near}", shown(name)));
        }
        return None;
    };
    check_fields(policy, stage, path, findings);
    Some(policy)
}

/// A rule whose field is never known would never apply.
pub(super) fn check_fields(policy: &Policy, stage: Stage, path: &Path, findings: &mut Findings<'_>) {
    let derived: Vec<&str> = policy.derived().map(|(_, source)| source).collect();
    let strange = policy.fields().find(|field| !stage.fields.contains(field) && !derived.contains(field));
    if let Some(field) = strange {
        let fields = listed(stage.fields.iter().copied().filter(|field| *field != "client_ip"));
        findings.value(
            path,
            format!(
                "policy `{}` uses the field `{}`, which no {} has: the fields here are {fields}",
                policy.name,
                shown(field),
                stage.what
            ),
        );
    }
}
