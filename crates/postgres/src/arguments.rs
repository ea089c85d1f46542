//! The arguments of a call as text. They are only numbers, so a value that a caller chose cannot become part of a
//! statement.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;

use crate::name::CounterId;

pub(crate) struct Arguments {
    text: String,
    separator: char,
}

impl Arguments {
    /// Begins the arguments of a call; the text ends with the function's name.
    pub(crate) fn of(text: String) -> Self {
        Self { text, separator: '(' }
    }

    fn next(&mut self) -> &mut String {
        self.text.push(self.separator);
        self.separator = ',';
        &mut self.text
    }

    /// A number, or null.
    pub(crate) fn number(mut self, number: Option<i64>) -> Self {
        write_number(self.next(), number);
        self
    }

    pub(crate) fn boolean(mut self, value: bool) -> Self {
        self.next().push_str(if value { "true" } else { "false" });
        self
    }

    /// An array of numbers.
    pub(crate) fn list(mut self, numbers: impl Iterator<Item = Option<i64>>) -> Self {
        let text = self.next();
        text.push('\'');
        write_list(text, numbers);
        text.push('\'');
        self
    }

    /// An array of arrays of numbers, each inner array as a text: SQL needs inner arrays of equal length.
    pub(crate) fn lists(mut self, lists: impl Iterator<Item = impl Iterator<Item = Option<i64>>>) -> Self {
        let text = self.next();
        text.push_str("'{");
        for (index, list) in lists.enumerate() {
            text.push_str(if index == 0 { "\"" } else { ",\"" });
            write_list(text, list);
            text.push('"');
        }
        text.push_str("}'");
        self
    }

    /// An array of ids. Its meaning does not depend on `standard_conforming_strings`.
    pub(crate) fn ids<'i>(mut self, ids: impl Iterator<Item = &'i CounterId>) -> Self {
        let text = self.next();
        text.push_str("E'{");
        for (index, id) in ids.enumerate() {
            text.push_str(if index == 0 { r#""\\\\x"# } else { r#","\\\\x"# });
            HEXLOWER.encode_append(id, text);
            text.push('"');
        }
        text.push_str("}'");
        self
    }

    /// Closes the call's parentheses and returns its text.
    pub(crate) fn end(mut self) -> String {
        self.text.push(')');
        self.text
    }
}

fn write_list(text: &mut String, numbers: impl Iterator<Item = Option<i64>>) {
    text.push('{');
    for (index, number) in numbers.enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_number(text, number);
    }
    text.push('}');
}

fn write_number(text: &mut String, number: Option<i64>) {
    match number {
        Some(number) => write!(text, "{number}").expect("a text can be written to"),
        None => text.push_str("NULL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbers_in_the_form_of_the_server() {
        let lists = [vec![Some(1), None], vec![]];
        let call = Arguments::of("SELECT f".to_owned())
            .list([Some(i64::MIN), None, Some(7)].into_iter())
            .lists(lists.iter().map(|list| list.iter().copied()))
            .ids([[0xab; 16], [1; 16]].iter())
            .number(None)
            .number(Some(-3))
            .boolean(true)
            .end();
        let expected = concat!(
            r#"SELECT f('{-9223372036854775808,NULL,7}','{"{1,NULL}","{}"}',"#,
            r#"E'{"\\\\xabababababababababababababababab","\\\\x01010101010101010101010101010101"}',NULL,-3,true)"#
        );
        assert_eq!(call, expected);
    }
}
