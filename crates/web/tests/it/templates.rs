//! Templates are parsed at load. An error says where it is and how to correct it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use tollgate_web::{AnswerSettings, Answers};

fn body(body: &str) -> Result<(), String> {
    let settings = AnswerSettings { body: Some(body.to_owned()), ..AnswerSettings::default() };
    Answers::new(settings).map(|_| ()).map_err(|error| error.to_string())
}

fn detail(detail: &str) -> Result<(), String> {
    let settings = AnswerSettings { detail: Some(detail.to_owned()), ..AnswerSettings::default() };
    Answers::new(settings).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn json_can_be_written_as_it_is() {
    for text in [
        "{}",
        r#"{"a": {"b": [{"c": "{limit}"}, { "d": {retry_after} }]}}"#,
        r#"{{"a": "{{limit}"}"#,
        "\"{detail}\"",
        "{\n  \"status\": {status}\n}\n",
        "[{number}, {burst}, {remaining}, \"{rule} {code} {key} {policy} {correlation_id} {title} {type} {period}\"]",
    ] {
        assert_eq!(body(text), Ok(()), "{text}");
    }
}

#[test]
fn an_unknown_placeholder_is_refused_with_its_place_and_the_known_ones() {
    assert_eq!(
        body(r#"{"é": {retry_aftr}}"#).unwrap_err(),
        "`body`, character 7: there is no `{retry_aftr}` (did you mean `{retry_after}`?); there are {retry_after} \
         {limit} {number} {period} {burst} {remaining} {rule} {code} {key} {policy} {correlation_id} {decision} {status} {title} \
         {type} {detail}"
    );
    let error = detail("{xyzzy123}").unwrap_err();
    assert!(error.starts_with("`detail`, character 1: there is no `{xyzzy123}`; there are "), "{error}");
    let error = detail("see {detail}").unwrap_err();
    assert!(
        error.starts_with("`detail`, character 5: there is no `{detail}`"),
        "a detail is not part of itself: {error}"
    );
}

#[test]
fn a_placeholder_that_does_not_end_is_told() {
    for text in ["{limit", "{limit ", "{limit {rule}"] {
        assert_eq!(
            detail(text).unwrap_err(),
            "`detail`, character 1: `{limit` lacks its `}`; a literal brace is written `{{`"
        );
    }
}

#[test]
fn a_body_that_is_not_json_is_told() {
    for text in
        ["", "nonsense", "{", r#"{"a": }"#, r#"{"detail": {detail}}"#, r#"{"a": {limit}}"#, r#"{{"a": 1}}"#]
    {
        let error = body(text).unwrap_err();
        assert!(
            error.starts_with("`body`: once it is filled in this is not JSON (") && error.contains("quotes"),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn no_template_breaks_anything(text in "[{}a-z_\" ]{0,30}|\\PC{0,20}") {
        // A sentence without braces is always valid.
        if !text.contains('{') {
            prop_assert_eq!(detail(&text), Ok(()));
        }
        let _ = (detail(&text), body(&text));
    }
}
