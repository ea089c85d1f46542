//! A key at every rule that it can be a key of: for operators who know a user or an address, and not the
//! rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_engine::Observer;

use super::App;
use super::auth::Role;
use super::counters::{self, KeyShown};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::path::{self, Place};
use super::shown::json;

/// How many rules are looked at. Each is a call of the store.
const MOST_RULES: usize = 64;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyEverywhere")]
struct KeyEverywhere<'k> {
    /// The rules that the text is a key of, in their order. A rule whose keys are secret is left out if the
    /// text is the pseudonym of a key, unless that key has limits of its own.
    rules: Vec<KeyAtRule<'k>>,
    /// How many further rules were not looked at.
    left_out: usize,
    /// Whether the text is the pseudonym of a secret key: to see its counts, ask for the key itself.
    pseudonym: bool,
}

/// The counts of a key at one rule.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyAtRule")]
struct KeyAtRule<'k> {
    #[serde(flatten)]
    counts: KeyShown<'k>,
    /// The fields of the key with their values; empty if keys of the rule are secret.
    fields: BTreeMap<String, String>,
    /// Whether keys of the rule are secret: `key` is a pseudonym then.
    secret: bool,
    /// What happens when the rule is exceeded.
    on_exceed: String,
    /// Whether the rule is enabled.
    enabled: bool,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let look = Operation::new(
        "/api/v1/keys/{key}",
        "Show the counts of a key at every rule that it can be a key of",
    )
    .answers::<KeyEverywhere<'_>>();
    vec![
        Endpoint::new(Method::GET, "/api/v1/keys/{*key}", Some(Role::Read), show).serves_tenants().does(look),
    ]
}

async fn show(app: Arc<App>, ask: Ask) -> Answered {
    let pinned = app.engine.pin();
    let rest = ask.uri.path().strip_prefix("/api/v1/keys/").unwrap_or_default();
    let key = path::decode(rest)?;
    let observer = &app.engine.observer;
    let places = counters::shown_rules(&pinned).filter_map(|rule| Place::of(observer, rule, &key).ok());
    let places = places.filter(|place| ask.check_place(place).is_ok());
    let mut places: Vec<Place<'_>> = places.collect();
    let left_out = places.len().saturating_sub(MOST_RULES);
    places.truncate(MOST_RULES);
    let mut rules = Vec::new();
    for place in &places {
        let values = place.rule.values_of(&place.key).filter(|_| !place.rule.secret);
        rules.push(KeyAtRule {
            counts: counters::key_counts(&app, place).await?,
            fields: values.into_iter().flatten().map(|(name, value)| (name.to_string(), value)).collect(),
            secret: place.rule.secret,
            on_exceed: place.rule.on_exceed.to_string(),
            enabled: place.rule.enabled,
        });
    }
    let pseudonym =
        !ask.has_tenant() && counters::shown_rules(&pinned).any(|rule| Observer::is_pseudonym(rule, &key));
    Ok(json(&KeyEverywhere { rules, left_out, pseudonym }))
}
