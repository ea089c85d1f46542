//! Decisions as HTTP responses: headers, denials, and all other problems.

mod detail;
mod header_sink;
pub mod headers;
mod problem;
mod refusal;
mod template;

use bytes::Bytes;
use http::StatusCode;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::de::IgnoredAny;
use tollgate_core::{Decision, Limit, Reading, Rule};
use tollgate_engine::Engine;

use crate::correlation::{CORRELATION_ID, Correlation};
use crate::json;
use crate::words;
use detail::Detail;
pub use header_sink::{HeaderSink, Lines, Name};
use headers::whole_secs;
pub use problem::{PROBLEM_JSON, Problem, ProblemBody};
pub use refusal::{Refusal, RefusalBody};
pub use template::BadTemplate;
use template::{Blank, BlankValue, Form, Template};

/// A complete response.
pub type Response = http::Response<Bytes>;

/// The configured form of decisions. `type`, `title`, `detail` and `body` apply to attempts that exceed a limit
/// (429). A client that an outage refuses did nothing wrong, and gets a fixed text instead.
#[derive(Clone, Debug, Default)]
pub struct AnswerSettings {
    /// The media type of refusals.
    pub media: Media,
    /// The `type` of refusals: a URI.
    pub type_uri: Option<String>,
    /// Their `title`.
    pub title: Option<String>,
    /// Their `detail`: a sentence with placeholders. If a placeholder has no value, such as a time to wait,
    /// the default detail is written instead.
    pub detail: Option<String>,
    /// Their whole body: JSON with placeholders. Texts must be inside quotes and numbers outside; a missing
    /// number is `null`. A text that contains a missing number or period is replaced by the default detail.
    pub body: Option<String>,
    /// The rate-limit headers to send.
    pub headers: HeaderSets,
    /// Whether scripts of other origins may read these headers (CORS).
    pub expose: Exposure,
}

/// The media type of refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Media {
    /// `application/problem+json` (RFC 9457).
    #[default]
    ProblemJson,
    /// `application/json`.
    Json,
}

/// The rate-limit headers to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSets {
    /// `X-RateLimit-Limit`, `-Burst`, `-Remaining`, `-Reset` and `-Type`.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit`, as the IETF drafts them.
    pub ietf: bool,
}

/// Whether scripts of other origins may read the headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// They may not, unless the service itself allows it.
    #[default]
    Hidden,
    /// They may: `Access-Control-Expose-Headers` names them, beside the names that it already has.
    Exposed,
}

/// Writes decisions as HTTP responses.
#[derive(Clone, Debug)]
pub struct Answers {
    media: Media,
    type_uri: Box<str>,
    title: Box<str>,
    detail: Option<Template>,
    body: Option<Template>,
    headers: HeaderSets,
    exposed: Option<HeaderValue>,
}

impl Default for HeaderSets {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: false }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::new(AnswerSettings::default()).expect("without templates nothing can be wrong")
    }
}

impl Media {
    #[inline]
    pub fn name(self) -> &'static str {
        match self {
            Self::ProblemJson => PROBLEM_JSON,
            Self::Json => "application/json",
        }
    }
}

impl Answers {
    /// Reads the settings.
    pub fn new(settings: AnswerSettings) -> Result<Self, BadTemplate> {
        let AnswerSettings { media, type_uri, title, detail, body, headers, expose } = settings;
        let type_uri = type_uri.unwrap_or_else(|| "/problems/rate-limit-exceeded".to_owned());
        let title = title.unwrap_or_else(|| "Rate limit exceeded".to_owned());
        let detail = detail.map(|text| Template::parse("detail", &text, Form::Sentence)).transpose()?;
        let body = body.map(|text| body_template(&text)).transpose()?;
        Ok(Self {
            media,
            type_uri: type_uri.into(),
            title: title.into(),
            detail,
            body,
            headers,
            exposed: (expose == Exposure::Exposed).then(|| exposed(headers)),
        })
    }

    /// Writes the rate-limit headers. They replace headers of the same names.
    pub fn headers(&self, decision: &Decision<'_>, headers: &mut impl HeaderSink) {
        self.say_left(decision, decision.binding_of_rule(), headers);
    }

    /// Writes the headers when the binding limit is already known.
    fn say_left(
        &self,
        decision: &Decision<'_>,
        binding: Option<(&Rule, &Limit, Reading)>,
        headers: &mut impl HeaderSink,
    ) {
        if let Some((rule, limit, reading)) = binding.filter(|_| self.headers.x_ratelimit) {
            headers::rate_limit_and_type(rule, limit, reading, headers);
        }
        if self.headers.ietf {
            headers::ietf(decision, headers);
        }
        if let Some(exposed) = &self.exposed {
            headers.add(EXPOSED, exposed);
        }
    }

    /// The complete response to a refused attempt: 429, 503 if an outage denies, 403 if the blocklist does.
    pub fn refusal(&self, engine: &Engine, decision: &Decision<'_>, correlation: &Correlation) -> Response {
        let mut headers = HeaderMap::with_capacity(ROOM);
        let mut body = Vec::with_capacity(Refusal::USUAL_BYTES);
        let status = self.refuse(engine, decision, correlation, &mut headers, &mut body);
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// As [`Answers::refusal`], but writes headers and body to the given places. Returns the status.
    pub fn refuse(
        &self,
        engine: &Engine,
        decision: &Decision<'_>,
        correlation: &Correlation,
        headers: &mut impl HeaderSink,
        body: &mut Vec<u8>,
    ) -> StatusCode {
        let refusal = Refusal::new(engine, decision);
        let id = correlation.id_of(decision);
        let id = id.as_str();
        self.write(&refusal, id, body);
        // Two calls, so that each text has a constant length.
        match self.media {
            Media::ProblemJson => headers.fixed(TYPE, Media::ProblemJson.name()),
            Media::Json => headers.fixed(TYPE, Media::Json.name()),
        }
        headers.fixed(CACHING, "no-store");
        headers.text(ID, id);
        refusal.write_retry(headers);
        self.say_left(decision, refusal.binding_of_rule(), headers);
        refusal.status()
    }

    fn write(&self, refusal: &Refusal<'_>, id: &str, out: &mut Vec<u8>) {
        let values = Values { answers: self, refusal, id };
        let mut body = refusal.body(id);
        if refusal.status() == StatusCode::TOO_MANY_REQUESTS {
            if let Some(template) = &self.body {
                return template.write_body(&|blank| values.find(blank), out);
            }
            (body.r#type, body.title, body.detail) = (&self.type_uri, &self.title, values.detail());
        }
        json::write(&body, out);
    }
}

/// The values of the placeholders in one refusal.
#[derive(Clone, Copy)]
struct Values<'r> {
    answers: &'r Answers,
    refusal: &'r Refusal<'r>,
    id: &'r str,
}

impl<'r> Values<'r> {
    fn detail(self) -> Detail<'r> {
        let configured = self.answers.detail.as_ref();
        let filled = configured.filter(|detail| detail.blanks().all(|blank| self.find(blank).is_some()));
        filled.map_or(Detail::Default(self.refusal), |detail| Detail::Configured(detail, self))
    }

    /// The value of a placeholder, if it has one.
    fn find(self, blank: Blank) -> Option<BlankValue<'r>> {
        let Self { answers, refusal, id } = self;
        let binding = refusal.binding();
        Some(match blank {
            Blank::RetryAfter => BlankValue::Number(whole_secs(refusal.wait()?)),
            Blank::Number => BlankValue::Number(binding?.1.number()),
            Blank::Burst => BlankValue::Number(binding?.1.capacity()),
            Blank::Remaining => BlankValue::Number(binding?.2.remaining),
            Blank::Status => BlankValue::Number(refusal.status().as_u16().into()),
            Blank::Period => BlankValue::Period(words::period(binding?.1)?),
            Blank::Limit => BlankValue::Text(binding?.0),
            Blank::Rule => BlankValue::Text(&refusal.named.as_ref()?.0.rule.name),
            Blank::Code => BlankValue::Text(refusal.code()?),
            Blank::Key => BlankValue::Text(&refusal.named.as_ref()?.1),
            Blank::Policy => BlankValue::Text(refusal.policy()),
            Blank::CorrelationId => BlankValue::Text(id),
            Blank::Decision => BlankValue::Text(&refusal.token.as_ref()?.1),
            Blank::Title => BlankValue::Text(&answers.title),
            Blank::Type => BlankValue::Text(&answers.type_uri),
            Blank::Detail => BlankValue::Detail(self.detail()),
        })
    }
}

const TYPE: Name = Name::new(CONTENT_TYPE, "content-type: ");
const CACHING: Name = Name::new(CACHE_CONTROL, "cache-control: ");
const ID: Name = Name::new(CORRELATION_ID, "x-correlation-id: ");
const EXPOSED: Name = Name::new(ACCESS_CONTROL_EXPOSE_HEADERS, "access-control-expose-headers: ");

/// Capacity for every header of a refusal, so that the map does not grow.
const ROOM: usize = 14;

/// Reads a body template and makes sure that it is JSON with any values.
fn body_template(text: &str) -> Result<Template, BadTemplate> {
    let template = Template::parse("body", text, Form::Json)?;
    for number in [Some(1), None] {
        let mut json = Vec::with_capacity(text.len());
        let value = |blank: Blank| match blank.is_number() {
            true => number.map(BlankValue::Number),
            // Neither a number nor a JSON word, so it must be inside quotes.
            false => Some(BlankValue::Text("a \"text\"")),
        };
        template.write_body(&value, &mut json);
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(&json) {
            let problem = format!(
                "once it is filled in this is not JSON ({error}); placeholders of text must be inside quotes, as in \"{{detail}}\""
            );
            return Err(BadTemplate { setting: "body", character: None, problem });
        }
    }
    Ok(template)
}

/// The names of the headers that scripts of other origins may read.
fn exposed(sets: HeaderSets) -> HeaderValue {
    const X_RATELIMIT: &str =
        "X-RateLimit-Limit, X-RateLimit-Burst, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Type";
    let mut names = vec!["Retry-After, Retry-After-Ms, X-Should-Retry, X-Correlation-ID"];
    names.extend(sets.x_ratelimit.then_some(X_RATELIMIT));
    names.extend(sets.ietf.then_some("RateLimit-Policy, RateLimit"));
    HeaderValue::try_from(names.join(", ")).expect("names fit into a header")
}
