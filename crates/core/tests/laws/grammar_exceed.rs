//! `on_exceed` in one line: it parses as it was printed, and an error says where it is.

use proptest::prelude::*;
use tollgate_core::{Deferral, OnExceed, Span};

fn span() -> impl Strategy<Value = Span> {
    (1..=Span::MAX.as_micros()).prop_map(Span::from_micros)
}

fn exceeding() -> impl Strategy<Value = OnExceed> {
    prop_oneof![
        Just(OnExceed::Reject),
        Just(OnExceed::Observe),
        span().prop_map(OnExceed::Wait),
        (any::<bool>(), prop::option::of(span())).prop_map(|(aligned, jitter)| {
            OnExceed::Defer(Deferral { aligned, jitter: jitter.unwrap_or_default() })
        }),
    ]
}

proptest! {
    #[test]
    fn printing_and_parsing_returns_the_same_action(on_exceed in exceeding()) {
        prop_assert_eq!(on_exceed.to_string().parse::<OnExceed>(), Ok(on_exceed));
    }
}

#[test]
fn each_has_its_words() {
    let defer = |aligned, secs| OnExceed::Defer(Deferral { aligned, jitter: Span::from_secs(secs) });
    for (text, on_exceed) in [
        ("reject", OnExceed::Reject),
        ("observe", OnExceed::Observe),
        ("wait 2s", OnExceed::Wait(Span::from_secs(2))),
        ("defer", defer(false, 0)),
        ("defer aligned", defer(true, 0)),
        ("defer jitter 30s", defer(false, 30)),
        ("defer aligned jitter 1m30s", defer(true, 90)),
    ] {
        assert_eq!((text.parse(), on_exceed.to_string()), (Ok(on_exceed), text.to_owned()));
    }
}

#[test]
fn a_mistake_says_where_it_is() {
    for (text, at, problem) in [
        ("", 0, "`reject`, `defer`, `wait 5s` or `observe`"),
        ("Reject", 0, "`reject`, `defer`, `wait 5s` or `observe`"),
        ("reject now", 7, "`now` is one word too many"),
        ("wait", 4, "a duration is a number and a unit"),
        ("wait 5", 6, "the units of a duration"),
        ("wait 5s more", 8, "`more` is one word too many"),
        ("defer jitter", 12, "a duration is a number and a unit"),
        ("defer jitter 5s aligned", 16, "`aligned` is one word too many"),
    ] {
        let error = text.parse::<OnExceed>().unwrap_err();
        assert_eq!((error.at, error.problem.contains(problem)), (at, true), "{error}");
    }
}
