//! Explains errors in bodies. The parser speaks of maps and sequences, but the caller wrote objects and
//! lists.

use serde_json::Error;
use tollgate_core::policy::nearest;

/// A message contains part of the input, which can be long.
const MOST_CHARS: usize = 400;

/// What is wrong with a body, where, and how to correct it.
pub(super) fn of(error: &Error, body: &[u8]) -> String {
    let whole = error.to_string();
    let message = whole.rsplit_once(" at line ").map_or(&*whole, |(message, _)| message);
    let (words, opened) = match message.split_once(": ") {
        Some(("invalid type" | "invalid value", rest)) => misplaced(rest),
        _ => (plain(message), Opened::No),
    };
    let words: String = words.chars().take(MOST_CHARS).collect();
    // The parser may have stopped just before the bracket.
    let before = opened == Opened::Yes && !matches!(at(error, body), Some(b'[' | b'{'));
    let column = error.column() + usize::from(before);
    let mark = if words.ends_with('?') { "" } else { "," };
    format!("{words}{mark} at line {} column {column}", error.line())
}

/// Whether the parser stopped at the bracket that opens an object or a list.
#[derive(PartialEq, Eq)]
enum Opened {
    Yes,
    No,
}

/// The byte at which the parser stopped.
fn at(error: &Error, body: &[u8]) -> Option<u8> {
    let line = body.split(|byte| *byte == b'\n').nth(error.line().checked_sub(1)?)?;
    line.get(error.column().checked_sub(1)?).copied()
}

/// The message for a value of the wrong type.
fn misplaced(rest: &str) -> (String, Opened) {
    let Some((found, wanted)) = rest.rsplit_once(", expected ") else { return (plain(rest), Opened::No) };
    let (found, opened) = match found {
        "map" => ("an object".to_owned(), Opened::Yes),
        "sequence" => ("a list".to_owned(), Opened::Yes),
        found => (scalar(found), Opened::No),
    };
    (format!("expected {wanted}, not {found}"), opened)
}

fn scalar(found: &str) -> String {
    let number = found.strip_prefix("integer ").or_else(|| found.strip_prefix("floating point "));
    if let Some(number) = number {
        return format!("the number {}", number.trim_matches('`'));
    }
    if let Some(text) = found.strip_prefix("string ") {
        return format!("the text {text}");
    }
    found.strip_prefix("boolean ").unwrap_or(found).to_owned()
}

fn plain(message: &str) -> String {
    if let Some((name, known)) =
        message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "))
    {
        return unknown(name, known.trim_start_matches("one of "));
    }
    if let Some((word, known)) =
        message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected "))
    {
        let word: String = word.chars().take(64).collect();
        return format!("`{word}` is not known here; known are: {}", known.trim_start_matches("one of "));
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    if let Some(name) = message.strip_prefix("duplicate field ") {
        return format!("{name} is written twice");
    }
    let words = match message {
        "EOF while parsing a value"
        | "EOF while parsing a list"
        | "EOF while parsing an object"
        | "EOF while parsing a string" => "the body ends too early",
        "expected value" => "expected a string, a number, `true`, `false`, `null`, an object or a list",
        "expected ident" => "expected `true`, `false` or `null`",
        "key must be a string" => "expected the name of a member, in quotes",
        "trailing comma" => "nothing follows the comma",
        "trailing characters" => "the body goes on after its end",
        "recursion limit exceeded" => "it is nested too deeply",
        "invalid escape"
        | "invalid unicode code point"
        | "lone leading surrogate in hex escape"
        | "unexpected end of hex escape" => "this escape is not valid",
        message if message.starts_with("control character") => {
            "a control character inside a string: write it as an escape, as in `\\n`"
        }
        message => message,
    };
    words.to_owned()
}

/// The message for an unknown member. The parser lists the known ones as "`a`, `b`".
fn unknown(name: &str, known: &str) -> String {
    let names = known.split(", ").map(|name| name.trim_matches('`'));
    let near = nearest(name, names);
    let name: String = name.chars().take(64).collect();
    match near {
        Some(near) => format!("`{name}` is not known here; did you mean `{near}`?"),
        None => format!("`{name}` is not known here; known are: {known}"),
    }
}
