//! One call of a webhook: a signed POST over its own connection, with a time-out. It follows no redirect, so
//! data about accounts goes only to the configured address.

use std::collections::BTreeMap;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::time::timeout;
use tollgate_core::Timestamp;
use tollgate_engine::Notice;
use tollgate_web::words::Moment;

use super::signature;
use crate::client::{dial, exchange, fault_in_words, tls};
use crate::config::{BodyBlank, BodyTemplate, Webhook};

/// The body for a webhook, the same at every try.
pub(super) struct WebhookMessage(Bytes);

/// A notice as JSON.
#[derive(Serialize)]
struct Body<'n> {
    /// The same at every try of one notice, and different for every other.
    id: String,
    event: &'static str,
    guard: &'n str,
    rule: &'n str,
    fields: BTreeMap<&'n str, &'n str>,
    failures: u64,
    at: Moment,
    locked_until: Option<Moment>,
}

impl WebhookMessage {
    /// The notice in a webhook's own form, or as it is.
    pub(super) fn of(notice: &Notice, template: Option<&BodyTemplate>) -> Self {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the system gives random numbers");
        let body = Body {
            id: data_encoding::HEXLOWER.encode(&id),
            event: if notice.locked_until.is_some() { "locked" } else { "attacked" },
            guard: &notice.guard,
            rule: &notice.rule,
            fields: notice.fields.iter().map(|(name, value)| (&**name, value.as_str())).collect(),
            failures: notice.failures,
            at: Moment(notice.at),
            locked_until: notice.locked_until.map(Moment),
        };
        let written = match template {
            None => serde_json::to_vec(&body),
            Some(template) => serde_json::to_vec(&template.fill(&|blank| body.text(blank))),
        };
        Self(written.expect("texts and numbers can be written").into())
    }
}

impl Body<'_> {
    /// The text at a placeholder.
    fn text(&self, blank: &BodyBlank) -> String {
        match blank {
            BodyBlank::Id => self.id.clone(),
            BodyBlank::Event => self.event.to_owned(),
            BodyBlank::Guard => self.guard.to_owned(),
            BodyBlank::Rule => self.rule.to_owned(),
            BodyBlank::Failures => self.failures.to_string(),
            BodyBlank::At => self.at.to_string(),
            BodyBlank::LockedUntil => self.locked_until.as_ref().map(ToString::to_string).unwrap_or_default(),
            BodyBlank::Field(name) => self.fields.get(&**name).copied().unwrap_or_default().to_owned(),
        }
    }
}

/// Posts a message once. A 2xx acknowledges it; otherwise the error says why not.
pub(super) async fn post(webhook: &Webhook, message: &WebhookMessage, now: Timestamp) -> Result<(), String> {
    match timeout(webhook.timeout, send(webhook, message, now)).await {
        Ok(Ok(status)) if (200..300).contains(&status) => Ok(()),
        Ok(Ok(status)) => Err(format!("status {status}")),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(format!("no answer within {} ms", webhook.timeout.as_millis())),
    }
}

async fn send(webhook: &Webhook, message: &WebhookMessage, now: Timestamp) -> Result<u16, String> {
    let tls = if webhook.is_encrypted() { Some(tls()?) } else { None };
    let stream = dial(webhook.host(), webhook.port(), tls.as_ref()).await;
    let stream = stream.map_err(|error| fault_in_words(&error))?;
    let status = exchange(stream, request(webhook, message, now), async |response| Ok(response.status()));
    status.await.map(|status| status.as_u16()).map_err(|error| error.to_string())
}

fn request(webhook: &Webhook, message: &WebhookMessage, now: Timestamp) -> Request<Full<Bytes>> {
    let seconds = now.as_micros() / 1_000_000;
    let target = webhook.uri().path_and_query().map_or("/", |target| target.as_str());
    let authority = webhook.uri().authority().expect("checked when it was read");
    let mut request = Request::post(target)
        .header("host", authority.as_str())
        .header("content-type", "application/json")
        .header("user-agent", concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .header("connection", "close");
    if let Some(secret) = &webhook.secret {
        let signature = signature::sign(secret.bytes(), seconds, &message.0);
        request = request
            .header("x-tollgate-timestamp", seconds)
            .header("x-tollgate-signature", format!("sha256={signature}"));
    }
    request.body(Full::new(message.0.clone())).expect("the address is checked")
}
