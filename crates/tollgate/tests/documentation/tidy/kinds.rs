//! Code that treats one kind of limit unlike another says so for every kind, so that the compiler finds
//! what a new kind still lacks.

use std::fs;

use super::{files, root};

/// The kinds of limits and of states.
const KINDS: [&str; 17] = [
    "Limit::Window",
    "Limit::Calendar",
    "Limit::Sliding",
    "Limit::Slotted",
    "Limit::Bucket",
    "Limit::InFlight",
    "Limit::Ladder",
    "Limit::Total",
    "Limit::PerAttempt",
    "State::Fresh",
    "State::Tally",
    "State::Log",
    "State::Slots",
    "State::Level",
    "State::Holds",
    "State::Failures",
    "State::Total",
];

/// Where code may ask for a kind by a pattern, and why.
const EXCEPTIONS: [(&str, &str); 1] =
    [("core/src/limit/", "a kind looks at its own state, and a state of another kind counts as fresh")];

/// Source files of the crates, without their tests, and where they are.
fn sources() -> impl Iterator<Item = (String, String)> {
    let crates = root().join("crates");
    files(".rs").into_iter().filter_map(move |path| {
        let name = path.strip_prefix(&crates).ok()?.to_str()?.to_owned();
        let own = name.contains("/src/") && !name.ends_with("tests.rs");
        own.then(|| (name, fs::read_to_string(&path).expect("a source file")))
    })
}

/// The text up to the brace that closes what `text` stands in, without what is in braces itself.
fn arms(text: &str) -> String {
    let (mut depth, mut arms) = (1, String::new());
    for character in text.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 1 => arms.push(character),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    arms
}

fn names_a_kind(text: &str) -> bool {
    KINDS.iter().any(|kind| text.contains(kind))
}

/// The matches of a file, each as its arms without what is in braces.
fn matches(source: &str) -> impl Iterator<Item = String> {
    source.match_indices("match ").filter_map(|(at, _)| {
        let rest = &source[at..];
        let open = rest.find('{')?;
        let head = &rest[..open];
        (!head.contains([';', '\n'])).then(|| arms(&rest[open + 1..]))
    })
}

fn is_a_rest(arm: &str) -> bool {
    let pattern = arm.rsplit([',', '\n']).next().unwrap_or(arm).trim();
    let pattern = pattern.split(" if ").next().unwrap_or(pattern);
    pattern == "_" || (!pattern.is_empty() && pattern.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

#[test]
fn every_match_on_a_kind_names_all_kinds() {
    for (name, source) in sources() {
        for arms in matches(&source).filter(|arms| names_a_kind(arms)) {
            let mut patterns = arms.split("=>").collect::<Vec<_>>();
            patterns.pop();
            // Only patterns count: a kind may also be what an arm answers.
            let on_a_kind = patterns.iter().any(|arm| names_a_kind(arm.rsplit('\n').next().unwrap_or(arm)));
            let rest = patterns.iter().any(|arm| is_a_rest(arm));
            assert!(!(on_a_kind && rest), "{name}: a `match` on kinds has an arm for all others:\n{arms}");
        }
    }
}

#[test]
fn a_kind_is_asked_for_by_its_method_and_not_by_a_pattern() {
    for (name, source) in sources() {
        if EXCEPTIONS.iter().any(|(start, _)| name.starts_with(start)) {
            continue;
        }
        for line in source.lines() {
            let asks = line.contains("matches!(") || line.contains("if let ") || line.contains("let Limit::");
            let limit = KINDS.iter().any(|kind| kind.starts_with("Limit::") && line.contains(kind));
            assert!(!(asks && limit), "{name}: use the method of `Limit` in\n{line}");
        }
    }
}

#[test]
fn a_match_with_an_arm_for_all_others_is_found() {
    let source = "match limit {\n    Limit::Bucket(bucket) => { Some(bucket) }\n    _ => None,\n}";
    let arms = matches(source).next().expect("one match");
    assert!(names_a_kind(&arms) && arms.split("=>").any(is_a_rest), "{arms}");
}
