//! Makes untrusted texts safe for terminals and logs. Text for people passes [`plain`], and every JSON that
//! is printed or logged passes [`json`].

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls a terminal or is invisible: control characters (C0, DEL and C1), line and
/// paragraph separators, and everything that changes the direction of text.
fn acts(character: char) -> bool {
    let turns_text = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
    );
    character.is_control() || turns_text || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Escapes such characters: a key must not move the cursor, colour the screen or reorder the line.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if acts(character) {
            write!(plain, "{}", character.escape_unicode()).expect("a string takes everything");
        } else {
            plain.push(character);
        }
    }
    plain
}

/// As [`plain`], but each such character becomes a single one, so that a mark below the line stays in place.
pub(crate) fn plain_in_place(text: &str) -> String {
    text.chars().map(|character| if acts(character) { '\u{fffd}' } else { character }).collect()
}

/// The same JSON with such characters escaped. White space between values stays.
pub(crate) fn json(json: &str) -> Cow<'_, str> {
    let acts = |character: char| acts(character) && !matches!(character, '\n' | '\r' | '\t');
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if acts(character) {
            write!(escaped, "\\u{:04x}", u32::from(character)).expect("a string takes everything");
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTING: &str = "a\x1b[31mb\nü\u{9b}\u{7f}\u{2028}\u{202e}\u{2066}\u{200f}\u{feff}c";

    #[test]
    fn a_text_cannot_act_on_the_terminal() {
        let expected = r"a\u{1b}[31mb\u{a}ü\u{9b}\u{7f}\u{2028}\u{202e}\u{2066}\u{200f}\u{feff}c";
        assert_eq!(plain(ACTING), expected);
        assert_eq!(plain_in_place(ACTING).chars().count(), ACTING.chars().count());
        assert_eq!(plain("größe שלום 👩‍👧"), "größe שלום 👩‍👧");
    }

    #[test]
    fn json_means_the_same_and_cannot_act_on_the_terminal() {
        let written = serde_json::to_string(ACTING).unwrap();
        let escaped = json(&written);
        assert!(!escaped.contains(acts), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), ACTING);
        assert_eq!(json("{\n\t\"a\": 1\r\n}"), "{\n\t\"a\": 1\r\n}");
    }
}
