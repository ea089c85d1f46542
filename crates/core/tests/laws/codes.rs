//! Codes are plain words that an application can compare.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tollgate_core::Code;

#[test]
fn a_code_is_what_it_was_written_as() {
    for text in ["MAX_ACTIVE_DEALS", "a", "E.42-b", &"x".repeat(Code::MOST_BYTES)] {
        assert_eq!(&*text.parse::<Code>().unwrap(), text);
    }
}

#[test]
fn an_invalid_code_is_refused_with_the_reason() {
    let long = "x".repeat(65);
    for (text, problem) in [
        ("", "the code is empty"),
        ("MAX DEALS", "` ` cannot be part of a code: codes are made of `A-Z a-z 0-9 _ . -`"),
        ("E\n1", "`\\n` cannot be part of a code: codes are made of `A-Z a-z 0-9 _ . -`"),
        ("É", "`É` cannot be part of a code: codes are made of `A-Z a-z 0-9 _ . -`"),
        (&long, "the code has 65 characters: at most 64 are allowed"),
    ] {
        assert_eq!(text.parse::<Code>().unwrap_err().to_string(), problem, "{text}");
    }
}
