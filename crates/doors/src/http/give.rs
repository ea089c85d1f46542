//! `POST /api/v1/give`: what an allowed attempt took is given back, once.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::store::Given;
use tollgate_engine::engine::GiveFault;

use super::App;
use super::auth::Role;
use super::body::{self, Text};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::problem::Problem;
use super::shown::json;

/// What to give back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GiveRequest")]
struct GiveBody<'b> {
    /// The receipt that came with the decision.
    #[serde(borrow)]
    receipt: Text<'b>,
}

/// What came of it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Given")]
struct GivenShown {
    /// `back`; `already` if it was before; `too_old` if that is no longer known.
    given: &'static str,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let operation = Operation::new("/api/v1/give", "Give back what an allowed attempt took, once")
        .takes::<GiveBody<'_>>()
        .answers::<GivenShown>();
    vec![Endpoint::new(Method::POST, "/api/v1/give", Some(Role::Check), give).does(operation)]
}

async fn give(app: Arc<App>, ask: Ask) -> Answered {
    let wanted: GiveBody<'_> = body::read(&ask.body)?;
    let pinned = app.engine.pin();
    let given = app.engine.give(&pinned, wanted.receipt.as_str()).await.map_err(|fault| match fault {
        GiveFault::Forged => Problem::bad_request("that is no receipt of this server"),
        GiveFault::Ticket => {
            Problem::bad_request("that is the ticket of a guard, and no receipt: finish it instead")
        }
        GiveFault::Store(error) => error.into(),
    })?;
    let given = match given {
        Given::Back => "back",
        Given::Already => "already",
        Given::TooOld => "too_old",
    };
    Ok(json(&GivenShown { given }))
}
