//! Writes JSON into a buffer that the caller has.

use std::fmt::Display;

use serde::{Serialize, Serializer};

/// Appends the JSON of a value.
pub fn write(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("texts and numbers can be written as JSON");
}

/// Appends a text that is escaped for JSON, without quotes: the template around it has them.
pub(crate) fn escape(text: &impl Display, out: &mut Vec<u8>) {
    let start = out.len();
    write(&Quoted(text), out);
    out.pop();
    out.remove(start);
}

struct Quoted<'t, T>(&'t T);

impl<T: Display> Serialize for Quoted<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn escaped_texts_are_read_as_they_were(text in prop_oneof!["\\PC{0,40}", "[\\x00-\\x7f]{0,40}"]) {
            let mut json = b"[\"".to_vec();
            escape(&text, &mut json);
            escape(&text, &mut json);
            json.extend_from_slice(b"\"]");
            let [read]: [String; 1] = serde_json::from_slice(&json).unwrap();
            prop_assert_eq!(read, text.repeat(2));
        }
    }
}
