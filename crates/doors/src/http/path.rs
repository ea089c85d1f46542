//! The last parts of a path: a rule, a key, an id.
//!
//! Keys may hold anything, even slashes, so paths are split before they are decoded. A slash in a key may be
//! sent as `%2F`, and must be if it would be taken for a separator.

use std::sync::Arc;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use tollgate_core::policy::nearest;
use tollgate_core::{Policies, Rule};
use tollgate_engine::Observer;

use super::problem::Problem;

/// A rule and a key.
pub(crate) struct Place<'s> {
    pub(crate) rule: &'s Arc<Rule>,
    pub(crate) key: Box<str>,
}

/// The parts after `/api/v1/…/`, still encoded: the rule, and the rest.
pub(crate) fn rest(uri: &Uri) -> (&str, &str) {
    let rest = uri.path().splitn(5, '/').nth(4).unwrap_or_default();
    rest.split_once('/').unwrap_or((rest, ""))
}

/// Decodes percent-encoding in a part of the path.
pub(crate) fn decode(part: &str) -> Result<String, Problem> {
    decoded(part, "path")
}

/// Decodes percent-encoding in a value of the query.
pub(crate) fn decode_query(value: &str) -> Result<String, Problem> {
    decoded(value, "query")
}

fn decoded(text: &str, what: &str) -> Result<String, Problem> {
    let decoded = percent_decode_str(text).decode_utf8();
    let wrong = |_| Problem::bad_request(format!("the {what} is not UTF-8 once it is decoded"));
    decoded.map(Into::into).map_err(wrong)
}

/// The rule of this name.
pub(crate) fn rule<'s>(policies: &'s Policies, name: &str) -> Result<&'s Arc<Rule>, Problem> {
    policies.rule(name).ok_or_else(|| {
        let near = nearest(name, policies.rules().iter().map(|rule| &*rule.name));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let name: String = name.chars().take(64).collect();
        Problem::not_found(format!("there is no rule `{name}`{hint}"))
    })
}

impl<'s> Place<'s> {
    /// The place of an encoded rule and key.
    pub(crate) fn find(
        observer: &Observer,
        policies: &'s Policies,
        name: &str,
        key: &str,
    ) -> Result<Self, Problem> {
        Self::of(observer, rule(policies, &decode(name)?)?, &decode(key)?)
    }

    /// The place of a rule's key, which is normalised. The error does not repeat the key, which may be a
    /// secret. A pseudonym is never taken for a key: it stands for the key whose pseudonym it is, and is
    /// refused if that is not known.
    pub(crate) fn of(observer: &Observer, rule: &'s Arc<Rule>, key: &str) -> Result<Self, Problem> {
        if Observer::is_pseudonym(rule, key) {
            let meant = observer.key_of_pseudonym(rule, key).ok_or_else(|| {
                let name = &rule.name;
                let detail =
                    format!("`{key}` is the pseudonym of a secret key of rule `{name}`: give the key itself");
                Problem::bad_request(detail)
            })?;
            return Ok(Self { rule, key: meant.into() });
        }
        let key = rule.key_of(key).ok_or_else(|| {
            if let [field] = &*rule.by
                && let Err(error) = field.kind.check(key)
            {
                let (name, field) = (&rule.name, &field.name);
                return Problem::bad_request(format!(
                    "this is not a key of rule `{name}`: the `{field}` {error}"
                ));
            }
            let fields: Vec<&str> = rule.by.iter().map(|field| &*field.name).collect();
            let wanted =
                if fields.is_empty() { format!("its own name, `{}`", rule.name) } else { fields.join(",") };
            Problem::bad_request(format!(
                "this is not a key of rule `{}`, whose keys are {wanted}",
                rule.name
            ))
        })?;
        Ok(Self { rule, key })
    }
}
