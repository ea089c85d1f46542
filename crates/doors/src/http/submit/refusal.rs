//! The relay's refusals as HTTP responses.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::{Span, When};
use tollgate_relay::acceptance::{Limited as Exceeded, NotAccepted, RefusalReason};
use tollgate_relay::session::TextFault;
use tollgate_relay::session::data::DataFault;
use tollgate_relay::session::headers::HeaderFault;
use tollgate_web::answer::headers;

use crate::http::endpoint::Answered;
use crate::http::problem::{PROBLEM_JSON, Problem};

/// A limit is exceeded: a problem with the members of a mail server's refusal.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageLimited")]
pub(super) struct Limited<'r> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(rename = "correlationId")]
    correlation_id: &'r str,
    /// Always `rate limit exceeded`.
    error: &'static str,
    /// The level that is exceeded.
    denied_by: &'r str,
    /// The key at this level; null if it counts all together.
    denied_key: Option<&'r str>,
    /// Seconds until a submission may succeed; null if that is not known, or if the message has more recipients than the
    /// limit ever allows.
    retry_after: Option<u64>,
}

/// The answer to a message that is not accepted. After a longer wait than `retry_within`, the caller should not retry by
/// itself.
pub(super) fn answer(refused: &NotAccepted, retry_within: Span) -> Answered {
    let detail = refused.reason.to_string();
    Err(match &refused.reason {
        RefusalReason::Limited(limited) => return Ok(exceeded(refused, limited, retry_within)),
        RefusalReason::Blocked { .. } => Problem::forbidden("the client is on the blocklist".to_owned()),
        RefusalReason::SenderNotAllowed { .. }
        | RefusalReason::Text(TextFault::Header(HeaderFault::ForeignAuthor)) => Problem::forbidden(detail),
        RefusalReason::NoAccount { account: Some(_), .. } => {
            Problem::no_account(format!("{detail}: name another one in `account`, or none"))
        }
        RefusalReason::NoAccount { account: None, .. } => Problem::no_account(format!("{detail}: add one")),
        RefusalReason::Outage | RefusalReason::NoMemory | RefusalReason::Full | RefusalReason::Failed => {
            Problem::unavailable(format!("{detail}: try again later"))
        }
        RefusalReason::Misconfigured => Problem::misconfigured(detail),
        RefusalReason::NoRecipients | RefusalReason::TooManyRecipients { .. } => Problem::bad_request(detail),
        RefusalReason::Text(TextFault::Data(DataFault::TooLarge)) => Problem::message_too_large(),
        RefusalReason::Text(fault) => Problem::bad_request(format!("the message is not accepted: {fault}")),
        RefusalReason::Conflict => Problem::reused_key(),
    })
}

fn exceeded(refused: &NotAccepted, limited: &Exceeded, retry_within: Span) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let body = Limited {
        r#type: "/problems/rate-limit-exceeded",
        title: "Rate limit exceeded",
        status: status.as_u16(),
        detail: match limited.never_fits {
            true => format!("too many recipients for {limited}: send it in parts"),
            false => limited.to_string(),
        },
        correlation_id: &refused.correlation,
        error: "rate limit exceeded",
        denied_by: &limited.rule,
        denied_key: limited.key.as_deref(),
        retry_after: limited.retry_secs,
    };
    let bytes = serde_json::to_vec(&body).expect("texts and numbers can be written");
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    let when = match limited.retry_secs {
        Some(secs) => When::After(Span::from_secs(secs)),
        None if limited.never_fits => When::Never,
        None => When::OnRelease,
    };
    headers::retry(when, retry_within, headers);
    response
}
