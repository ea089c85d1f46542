//! Names for rules and policies, out of names that other programs allow.

use std::collections::{HashMap, HashSet};

use tollgate_tree::Place;

use crate::work::{Work, shorten};

/// The longest name.
const MOST_BYTES: usize = 64;

/// The names that are taken already.
#[derive(Debug, Default)]
pub(crate) struct Names {
    taken: HashSet<String>,
    /// The next number for a text that occurred before: a file may repeat one many thousand times.
    next: HashMap<String, u64>,
}

impl Names {
    /// A free name that resembles the text.
    pub(crate) fn free(&mut self, text: &str) -> String {
        let plain = plain(text);
        let mut name = plain.clone();
        while !self.taken.insert(name.clone()) {
            let number = self.next.entry(plain.clone()).or_insert(2);
            let ending = format!("-{number}");
            name = plain[..plain.len().min(MOST_BYTES - ending.len())].to_owned() + &ending;
            *number += 1;
        }
        name
    }
}

/// The text with `a-z 0-9 _ . -` alone: `/api/v1/auth/` becomes `api.v1.auth`.
pub(crate) fn plain(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let kept = match c {
            'a'..='z' | '0'..='9' | '_' | '-' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '.',
        };
        if kept != '.' || !name.is_empty() && !name.ends_with('.') {
            name.push(kept);
        }
    }
    name.truncate(MOST_BYTES);
    let name = name.trim_end_matches('.');
    if name.is_empty() { "root".to_owned() } else { name.to_owned() }
}

/// The text as the name of a field: `A-Z` stay, and other characters become `_`.
pub(crate) fn field(text: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let name: String = text.chars().map(|c| if kept(c) { c } else { '_' }).take(MOST_BYTES).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// As [`field`], with a report if the name is another one.
pub(crate) fn reported_field(text: &str, place: &Place, work: &mut Work<'_>) -> String {
    let name = field(text);
    if name != text {
        work.differs(place, format!("`{}` is the field `{name}` here", shorten(text)));
    }
    name
}

/// The text as the name of an environment variable.
pub(crate) fn variable(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search from the first number on each time would not end within minutes.
    #[test]
    fn a_name_may_be_repeated_many_thousand_times() {
        let mut names = Names::default();
        assert_eq!(names.free("a-3"), "a-3");
        for _ in 0..100_000 {
            names.free("a");
        }
        assert_eq!(names.free("a"), "a-100002", "`a-3` was taken");
    }

    #[test]
    fn names_are_plain_short_and_unique() {
        assert_eq!(plain("/api/v1/auth/"), "api.v1.auth");
        assert_eq!((plain("/"), plain("Größe ✓")), ("root".to_owned(), "gr.e".to_owned()));
        let mut names = Names::default();
        let long = "x".repeat(100);
        assert_eq!(
            (names.free("a"), names.free("A"), names.free("a")),
            ("a".into(), "a-2".into(), "a-3".into())
        );
        let (first, second) = (names.free(&long), names.free(&long));
        assert!(first != second && first.len() == 64 && second.len() == 64);
        assert_eq!(
            (field("req.method"), field("a b'"), field("")),
            ("req.method".into(), "a_b_".into(), "_".into())
        );
        assert_eq!(variable("primary-smtp_PASSWORD"), "PRIMARY_SMTP_PASSWORD");
    }
}
