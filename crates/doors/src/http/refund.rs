//! `POST /api/v1/refund`: refunds what an allowed attempt took, or a part of it, once.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::store::Refunded;
use tollgate_engine::engine::{RefundFault, RefundPart};

use super::App;
use super::auth::Role;
use super::body::{self, Text, Whole};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::problem::Problem;
use super::shown::json;

/// A refund.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RefundRequest")]
struct RefundBody<'b> {
    /// The receipt of the decision.
    #[serde(borrow)]
    receipt: Text<'b>,
    /// How much of the attempt's cost to refund, at every rule that counts it. Everything, if both this and
    /// `counts` are absent.
    amount: Option<Whole>,
    /// How much to refund at rules that count a field, by the field, as in `{"recipients": 3}`.
    counts: Option<BTreeMap<String, Whole>>,
}

/// The result of a refund.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refund")]
struct RefundAnswer {
    /// `back`; `already` if it was refunded before; `too_old` if the charges are no longer known.
    refunded: &'static str,
    /// The same value, under the former name of this member.
    given: &'static str,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let path = "/api/v1/refund";
    let summary = "Refund what an allowed attempt took, or a part of it, once";
    let operation = Operation::new(path, summary).takes::<RefundBody<'_>>().answers::<RefundAnswer>();
    vec![Endpoint::new(Method::POST, path, Some(Role::Check), refund).serves_tenants().does(operation)]
}

async fn refund(app: Arc<App>, ask: Ask) -> Answered {
    let wanted: RefundBody<'_> = body::read(&ask.body)?;
    let counts = wanted.counts.iter().flatten().map(|(field, amount)| (field.as_str(), amount.0));
    let counts: Vec<(&str, u64)> = counts.collect();
    let part = if wanted.amount.is_none() && wanted.counts.is_none() {
        RefundPart::All
    } else {
        RefundPart::Some { amount: wanted.amount.map_or(0, |amount| amount.0), counts: &counts }
    };
    let pinned = app.engine.pin();
    if ask.has_tenant() {
        for (rule, key) in app.engine.counters_of_receipt(wanted.receipt.as_str()) {
            // A rule that is gone refunds nothing.
            if let Some(rule) = pinned.policies.rule(&rule) {
                ask.check_counter(rule, &key)?;
            }
        }
    }
    let refunded = app.engine.refund(&pinned, wanted.receipt.as_str(), part).await;
    let refunded = refunded.map_err(|fault| match fault {
        RefundFault::Forged => Problem::bad_request("this is not a receipt of this server"),
        RefundFault::Ticket => {
            Problem::bad_request("this is the ticket of a guard, not a receipt: finish it instead")
        }
        RefundFault::Store(error) => error.into(),
    })?;
    let refunded = match refunded {
        Refunded::Done => "back",
        Refunded::Already => "already",
        Refunded::TooOld => "too_old",
    };
    Ok(json(&RefundAnswer { refunded, given: refunded }))
}
