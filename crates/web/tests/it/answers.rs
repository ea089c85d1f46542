//! How decisions are written: headers, and the bodies of refusals.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{Bench, START, rule};
use http::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tollgate_core::{Decision, OnExceed, Rule, Span};
use tollgate_engine::decision_token::DenialSettings;
use tollgate_web::answer::{Exposure, HeaderSets, Media, Response};
use tollgate_web::{AnswerSettings, Answers, Correlation};

const ALICE: [(&str, &str); 1] = [("user", "alice")];

fn correlation(id: &'static str) -> Correlation {
    let headers = [("x-correlation-id".parse().unwrap(), HeaderValue::from_static(id))];
    Correlation::of(&headers.into_iter().collect())
}

/// The response to the first refused attempt.
fn refusal(bench: &Bench, answers: &Answers, fields: &[(&str, &str)]) -> Response {
    bench.exhaust(fields);
    bench.decide(fields, |decision| answers.refusal(&bench.engine, decision, &correlation("abc-123-def")))
}

fn text(response: &Response) -> &str {
    str::from_utf8(response.body()).unwrap()
}

fn body(response: &Response) -> Value {
    serde_json::from_str(text(response)).unwrap_or_else(|error| panic!("{error}: {}", text(response)))
}

/// Headers as `name: value`, sorted.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let line =
        |(name, value): (&http::HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    let mut lines: Vec<String> = headers.iter().map(line).collect();
    lines.sort();
    lines
}

fn said(answers: &Answers, decision: &Decision<'_>) -> Vec<String> {
    let mut headers = HeaderMap::new();
    answers.headers(decision, &mut headers);
    lines(&headers)
}

#[test]
fn a_refusal_names_the_key_the_limit_and_the_retry_time() {
    let bench = Bench::new(vec![rule("login", &["user"], &["5/min burst 3"])]);
    let response = refusal(&bench, &Answers::default(), &ALICE);
    assert_eq!(response.status(), 429);
    assert_eq!(
        text(&response),
        r#"{"type":"/problems/rate-limit-exceeded","title":"Rate limit exceeded","status":429,"detail":"login alice exceeded 5/min burst 3; retry after 12 s","correlationId":"abc-123-def","error":"rate limit exceeded","allowed":false,"verdict":"deny","policy":"api","origin":"store","denied_by":"login","denied_key":"alice","retry_after":12,"retryAfter":12,"retry_after_ms":12000,"limit":5}"#
    );
    assert_eq!(
        lines(response.headers()),
        [
            "cache-control: no-store",
            "content-type: application/problem+json",
            "retry-after-ms: 12000",
            "retry-after: 12",
            "x-correlation-id: abc-123-def",
            "x-ratelimit-burst: 3",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 0",
            &format!("x-ratelimit-reset: {}", START + 36),
            "x-ratelimit-type: login",
        ]
    );
}

#[test]
fn a_rule_that_has_a_code_says_it_beside_the_number_of_its_limit() {
    let code = Some("MAX_ACTIVE_DEALS".parse().unwrap());
    let coded = Bench::new(vec![Rule { code, ..rule("deals", &["user"], &["2 at once", "100/day"]) }]);
    let said = body(&refusal(&coded, &Answers::default(), &ALICE));
    assert_eq!((&said["code"], &said["limit"]), (&json!("MAX_ACTIVE_DEALS"), &json!(2)), "{said}");
    let detail = Some("{code}: at most {number}".to_owned());
    let template = Some(r#"{"error": "{code}", "limit": {number}, "detail": "{detail}"}"#.to_owned());
    let answers = Answers::new(AnswerSettings { detail, body: template, ..AnswerSettings::default() });
    let answers = answers.unwrap();
    let said = body(&refusal(&coded, &answers, &ALICE));
    let expected =
        json!({ "error": "MAX_ACTIVE_DEALS", "limit": 2, "detail": "MAX_ACTIVE_DEALS: at most 2" });
    assert_eq!(said, expected);
    let plain = Bench::new(vec![rule("deals", &["user"], &["2 at once"])]);
    let said = body(&refusal(&plain, &answers, &ALICE));
    assert_eq!((&said["error"], &said["limit"]), (&json!(""), &json!(2)));
    assert!(said["detail"].as_str().unwrap().starts_with("deals alice exceeded"), "{said}");
    assert_eq!(body(&refusal(&plain, &Answers::default(), &ALICE)).get("code"), None);
}

#[test]
fn keys_of_secret_rules_are_veiled() {
    let bench = Bench::new(vec![Rule { secret: true, ..rule("user", &["user"], &["1/min"]) }]);
    let template = Some(r#"{"key": "{key}", "detail": "{detail}"}"#.to_owned());
    for body in [None, template] {
        let answers = Answers::new(AnswerSettings { body, ..AnswerSettings::default() }).unwrap();
        let response = refusal(&bench, &answers, &ALICE);
        assert!(!text(&response).contains("alice"), "{}", text(&response));
    }
}

#[test]
fn a_deferral_says_until_when() {
    let deferring =
        Rule { on_exceed: OnExceed::Defer(Default::default()), ..rule("mail", &["user"], &["1/hour"]) };
    let response = refusal(&Bench::new(vec![deferring]), &Answers::default(), &ALICE);
    let body = body(&response);
    assert_eq!((&body["verdict"], &body["defer_until"]), (&json!("defer"), &json!("2026-01-15T11:00:00Z")));
    assert_eq!(response.headers()["retry-after"], "3600");
}

#[test]
fn a_denial_without_end_says_no_retry_time() {
    let bench = Bench::new(vec![rule("user", &["user"], &["3/min"])]);
    let response = bench.decide_costing(4, &ALICE, |decision| {
        Answers::default().refusal(&bench.engine, decision, &correlation("x"))
    });
    let body = body(&response);
    assert_eq!(body["detail"], "user alice exceeded 3/min; it can never pass");
    for absent in ["retry_after", "retryAfter", "retry_after_ms"] {
        assert_eq!(body.get(absent), None);
    }
    assert_eq!(response.headers().get("retry-after"), None);
    assert_eq!(response.headers()["x-should-retry"], "false");
}

#[test]
fn client_programs_are_told_not_to_wait_longer_than_the_operator_allows() {
    let told = |limit: &str, within: Option<u64>| {
        let bench = Bench::new(vec![rule("user", &["user"], &[limit])]);
        if let Some(within) = within {
            let retry_within = Span::from_secs(within);
            bench.engine.observer.set_denials(DenialSettings { retry_within, ..DenialSettings::default() });
        }
        let response = refusal(&bench, &Answers::default(), &ALICE);
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        (header("retry-after-ms").unwrap(), header("x-should-retry"))
    };
    let no = Some("false".to_owned());
    assert_eq!(told("1/min", None), ("60000".to_owned(), None), "a minute is short enough");
    assert_eq!(told("1/61s", None), ("61000".to_owned(), no.clone()));
    assert_eq!(told("1/61s", Some(61)), ("61000".to_owned(), None));
    assert_eq!(told("1/day", Some(3_600)), ("86400000".to_owned(), no));
    // Sooner than a second, which `Retry-After` cannot say.
    assert_eq!(told("5/s burst 1", None), ("200".to_owned(), None));
}

#[test]
fn whatever_stands_in_a_key_is_escaped() {
    let bench = Bench::new(vec![rule("user", &["user"], &["1/min"])]);
    let evil = "a\"},\"b\\\n\u{1}é";
    let template = r#"{"key": "{key}", "detail": "{detail}"}"#.to_owned();
    let answers = Answers::new(AnswerSettings {
        detail: Some("{key} {{\"{rule}\"}".to_owned()),
        body: Some(template),
        ..AnswerSettings::default()
    });
    let shown = body(&refusal(&bench, &answers.unwrap(), &[("user", evil)]));
    assert_eq!(shown, json!({ "key": evil, "detail": format!("{evil} {{\"user\"}}") }));
    let shown = body(&refusal(&bench, &Answers::default(), &[("user", evil)]));
    assert_eq!(shown["denied_key"], evil);
}

#[test]
fn the_refusals_of_an_ad_market_come_out_to_the_letter() {
    let answers = Answers::new(AnswerSettings {
        type_uri: Some("https://api.admarketplace.com/errors/rate-limit-exceeded".to_owned()),
        title: Some("Rate Limit Exceeded".to_owned()),
        detail: Some("You have exceeded the rate limit of {number} requests per {period}".to_owned()),
        body: Some(
            r#"{
  "type": "{type}",
  "title": "{title}",
  "status": {status},
  "detail": "{detail}",
  "retryAfter": {retry_after}
}"#
            .to_owned(),
        ),
        ..AnswerSettings::default()
    })
    .unwrap();
    let bench = Bench::new(vec![rule("user", &["user"], &["60/min"])]);
    bench.exhaust(&ALICE);
    bench.advance(30);
    let response = refusal(&bench, &answers, &ALICE);
    assert_eq!(
        text(&response),
        r#"{
  "type": "https://api.admarketplace.com/errors/rate-limit-exceeded",
  "title": "Rate Limit Exceeded",
  "status": 429,
  "detail": "You have exceeded the rate limit of 60 requests per minute",
  "retryAfter": 30
}"#
    );
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["retry-after"], "30");
}

#[test]
fn the_refusals_of_an_api_gateway_come_out_to_the_letter() {
    let answers = Answers::new(AnswerSettings {
        media: Media::Json,
        type_uri: Some("https://api.gateway/errors/rate-limit-exceeded".to_owned()),
        title: Some("Too Many Requests".to_owned()),
        detail: Some("Rate limit exceeded. Try again in {retry_after} seconds.".to_owned()),
        body: Some(
            r#"{
    "type": "{type}",
    "title": "{title}",
    "status": {status},
    "detail": "{detail}",
    "correlationId": "{correlation_id}"
}"#
            .to_owned(),
        ),
        ..AnswerSettings::default()
    })
    .unwrap();
    let bench = Bench::new(vec![rule("orders", &["route", "ip"], &["1/3s burst 1"])]);
    let response = refusal(&bench, &answers, &[("route", "orders"), ("ip", "192.0.2.1")]);
    assert_eq!(
        text(&response),
        r#"{
    "type": "https://api.gateway/errors/rate-limit-exceeded",
    "title": "Too Many Requests",
    "status": 429,
    "detail": "Rate limit exceeded. Try again in 3 seconds.",
    "correlationId": "abc-123-def"
}"#
    );
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["x-ratelimit-type"], "route");
}

#[test]
fn type_title_and_detail_can_be_chosen_without_a_body() {
    let answers = Answers::new(AnswerSettings {
        type_uri: Some("urn:slow-down".to_owned()),
        title: Some("\"Slow\" down".to_owned()),
        detail: Some(
            "{limit} for {key} by {rule} of {policy}, {remaining} of {burst} left, {status}".to_owned(),
        ),
        ..AnswerSettings::default()
    });
    let bench = Bench::new(vec![rule("user", &["user"], &["10/15m"])]);
    let body = body(&refusal(&bench, &answers.unwrap(), &ALICE));
    assert_eq!((&body["type"], &body["title"]), (&json!("urn:slow-down"), &json!("\"Slow\" down")));
    assert_eq!(body["detail"], "10/15m for alice by user of api, 0 of 10 left, 429");
    assert_eq!(body["denied_by"], "user", "the reasons stand beside it as always");
}

#[test]
fn a_detail_that_cannot_be_filled_is_said_in_our_own_words() {
    let answers = |detail: &str| {
        Answers::new(AnswerSettings { detail: Some(detail.to_owned()), ..AnswerSettings::default() }).unwrap()
    };
    let bench = Bench::new(vec![rule("trial", &["user"], &["2 in total"])]);
    let said = |detail: &str| body(&refusal(&bench, &answers(detail), &ALICE))["detail"].clone();
    assert_eq!(said("come back in {retry_after} s"), "trial alice exceeded 2 in total; it can never pass");
    assert_eq!(said("{number} per {period}"), "trial alice exceeded 2 in total; it can never pass");
    assert_eq!(said("{number} and no more"), "2 and no more");
}

#[test]
fn a_text_of_a_body_that_cannot_be_filled_is_the_usual_detail() {
    let template = r#"{"say": "At most {number} requests per {period}", "wait": "{retry_after} s, \"{rule}\"", "period": "{period}", "code": "x-{code}"}"#;
    let answers =
        Answers::new(AnswerSettings { body: Some(template.to_owned()), ..AnswerSettings::default() });
    let answers = answers.unwrap();
    let said = |limit: &str| {
        let bench = Bench::new(vec![rule("user", &["user"], &[limit])]);
        body(&refusal(&bench, &answers, &ALICE))
    };
    assert_eq!(
        said("2/min"),
        json!({ "say": "At most 2 requests per minute", "wait": "60 s, \"user\"", "period": "minute", "code": "x-" })
    );
    let usual = "user alice exceeded 2 at once; retry when a hold has ended";
    assert_eq!(said("2 at once"), json!({ "say": usual, "wait": usual, "period": "", "code": "x-" }));
}

#[test]
fn a_number_that_there_is_none_of_is_null() {
    let template = r#"{"retry": {retry_after}, "number": {number}, "period": "{period}"}"#;
    let answers =
        Answers::new(AnswerSettings { body: Some(template.to_owned()), ..AnswerSettings::default() });
    let bench = Bench::new(vec![rule("trial", &["user"], &["2 in total"])]);
    let response = refusal(&bench, &answers.unwrap(), &ALICE);
    assert_eq!(text(&response), r#"{"retry": null, "number": 2, "period": ""}"#);
}

#[test]
fn periods_are_said_as_people_say_them() {
    let answers =
        Answers::new(AnswerSettings { detail: Some("{period}".to_owned()), ..AnswerSettings::default() });
    let answers = answers.unwrap();
    for (limit, period) in [
        ("1/s", "second"),
        ("1/min", "minute"),
        ("1/60s", "minute"),
        ("1/15m", "15 minutes"),
        ("1/90s sliding", "90 seconds"),
        ("1/hour", "hour"),
        ("1/day calendar", "day"),
        ("1/week", "week"),
        ("1/month calendar", "month"),
        ("1/250ms", "250 milliseconds"),
        ("1/1500us", "1500 microseconds"),
    ] {
        let bench = Bench::new(vec![rule("user", &["user"], &[limit])]);
        assert_eq!(body(&refusal(&bench, &answers, &ALICE))["detail"], period, "{limit}");
    }
}

#[test]
fn the_type_header_names_the_kind_of_the_binding_rule() {
    let rules = || {
        vec![
            rule("per route", &["route", "ip"], &["10/s burst 50"]),
            rule("per consumer", &["consumer"], &["3/min"]),
            rule("everybody", &[], &["100/min"]),
        ]
    };
    let route = [("route", "orders"), ("ip", "192.0.2.1")];
    let both = [route[0], route[1], ("consumer", "acme")];
    let bench = Bench::new(rules());
    let kind = |decision: &Decision<'_>| said(&Answers::default(), decision).pop().unwrap();
    assert_eq!(bench.decide(&route, kind), "x-ratelimit-type: route");
    assert_eq!(bench.decide(&both, kind), "x-ratelimit-type: consumer", "it has the least left");
    assert_eq!(bench.decide(&[], kind), "x-ratelimit-type: everybody");
    bench.exhaust(&both);
    assert_eq!(bench.decide(&both, kind), "x-ratelimit-type: consumer", "it is the one exceeded");
}

#[test]
fn rate_limit_headers_of_the_service_are_replaced() {
    let bench = Bench::new(vec![rule("trial", &["user"], &["5 in total"])]);
    let mut headers = HeaderMap::new();
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-burst",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-ratelimit-type",
    ] {
        headers.append(name, HeaderValue::from_static("7"));
        headers.append(name, HeaderValue::from_static("8"));
    }
    headers.insert("ratelimit", HeaderValue::from_static("other"));
    bench.decide(&ALICE, |decision| Answers::default().headers(decision, &mut headers));
    let expected =
        ["ratelimit: other", "x-ratelimit-limit: 5", "x-ratelimit-remaining: 4", "x-ratelimit-type: trial"];
    assert_eq!(lines(&headers), expected);
}

#[test]
fn where_nothing_is_limited_nothing_is_said() {
    let bench = Bench::new(vec![rule("user", &["user"], &["5/min"])]);
    assert!(bench.decide(&[], |decision| said(&Answers::default(), decision)).is_empty());
}

#[test]
fn which_headers_are_sent_is_a_choice() {
    let answers = |x_ratelimit: bool, ietf: bool, expose| {
        let headers = HeaderSets { x_ratelimit, ietf };
        Answers::new(AnswerSettings { headers, expose, ..AnswerSettings::default() }).unwrap()
    };
    let said = |answers: Answers| {
        let bench = Bench::new(vec![rule("user", &["user"], &["5/min"])]);
        bench.decide(&ALICE, |decision| said(&answers, decision))
    };
    assert!(said(answers(false, false, Exposure::Hidden)).is_empty());
    assert_eq!(
        said(answers(false, true, Exposure::Hidden)),
        [r#"ratelimit-policy: "user";q=5;w=60"#, r#"ratelimit: "user";r=4;t=60"#]
    );
    assert_eq!(
        said(answers(false, false, Exposure::Exposed)),
        ["access-control-expose-headers: Retry-After, Retry-After-Ms, X-Should-Retry, X-Correlation-ID"]
    );
    let all = said(answers(true, true, Exposure::Exposed));
    assert_eq!(
        all[0],
        "access-control-expose-headers: Retry-After, Retry-After-Ms, X-Should-Retry, X-Correlation-ID, \
         X-RateLimit-Limit, X-RateLimit-Burst, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Type, RateLimit-Policy, RateLimit"
    );
    // Every header is exposed.
    for line in &all[1..] {
        let name = line.split(':').next().unwrap();
        assert!(all[0].to_lowercase().contains(name), "{name}");
    }
}

#[test]
fn headers_exposed_by_the_service_stay_exposed() {
    let answers =
        Answers::new(AnswerSettings { expose: Exposure::Exposed, ..AnswerSettings::default() }).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("access-control-expose-headers", HeaderValue::from_static("ETag"));
    let bench = Bench::new(vec![rule("user", &["user"], &["5/min"])]);
    bench.decide(&ALICE, |decision| answers.headers(decision, &mut headers));
    let exposed: Vec<_> = headers.get_all("access-control-expose-headers").iter().collect();
    assert_eq!(exposed[0], "ETag");
    assert_eq!(exposed.len(), 2);
}

#[test]
fn a_wait_is_refused_with_its_time() {
    let pacing =
        Rule { on_exceed: OnExceed::Wait(Span::from_secs(5)), ..rule("pace", &["user"], &["1/s burst 1"]) };
    let response = refusal(&Bench::new(vec![pacing]), &Answers::default(), &ALICE);
    assert_eq!((response.status().as_u16(), &body(&response)["verdict"]), (429, &json!("wait")));
}
