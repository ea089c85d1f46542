//! Patterns of log lines, in nginx's form: `$remote_addr - $remote_user [$time_local] "$request"`, or in Apache's:
//! `%h %l %u %t "%r"`.
//!
//! A variable ends where the text after it begins. Between quotes, a quote after a backslash does not end it.

use std::fmt;

use memchr::memchr;

/// A pattern of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The text before the first variable.
    head: Box<[u8]>,
    pieces: Box<[Variable]>,
}

/// A variable, and the text that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: Box<str>,
    /// Empty only after the last variable, whose value reaches to the end of the line.
    end: Box<[u8]>,
}

/// The start and end of each value in its line, by the index of its variable.
pub type Spans = Vec<(u32, u32)>;

/// The reason why a text is not a pattern. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadPattern {
    /// It has no variable.
    NoVariable,
    /// No text separates two variables, so the end of the first one is ambiguous.
    Adjacent {
        /// The first variable.
        first: String,
        /// The second one.
        second: String,
    },
    /// A name is malformed.
    BadName {
        /// The text from there on.
        rest: String,
    },
    /// A directive of Apache that is not supported.
    Directive { directive: String },
}

impl Pattern {
    /// Parses a pattern. A text with a `$` is in nginx's form, any other in Apache's.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        if text.contains('$') { Self::from_nginx(text) } else { Self::from_nginx(&from_apache(text)?) }
    }

    fn from_nginx(text: &str) -> Result<Self, BadPattern> {
        let (head, mut rest) = text.split_once('$').ok_or(BadPattern::NoVariable)?;
        let mut pieces: Vec<Variable> = Vec::new();
        loop {
            let bad = || BadPattern::BadName { rest: rest.chars().take(20).collect() };
            let (name, after) = match rest.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or_else(bad)?,
                None => {
                    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    rest.split_at(rest.find(|c| !fits(c)).unwrap_or(rest.len()))
                }
            };
            if name.is_empty() {
                return Err(bad());
            }
            if let Some(last) = pieces.last()
                && last.end.is_empty()
            {
                let (first, second) = (last.name.to_string(), name.to_owned());
                return Err(BadPattern::Adjacent { first, second });
            }
            let (end, more) = after.split_once('$').map_or((after, None), |(end, more)| (end, Some(more)));
            pieces.push(Variable { name: name.into(), end: end.as_bytes().into() });
            match more {
                Some(more) => rest = more,
                None => break,
            }
        }
        Ok(Self { head: head.as_bytes().into(), pieces: pieces.into() })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().map(|piece| &*piece.name)
    }

    /// Finds the values in a line. Returns whether the line matches. The line may continue after the pattern's
    /// last text.
    #[inline]
    pub fn split(&self, line: &[u8], spans: &mut Spans) -> bool {
        spans.clear();
        let Some(mut rest) = line.strip_prefix(&*self.head) else { return false };
        let mut at = self.head.len();
        for piece in &self.pieces {
            let length = if piece.end.is_empty() { Some(rest.len()) } else { find(rest, &piece.end) };
            let Some(length) = length else { return false };
            // Lines are shorter than 4 GiB.
            spans.push((at as u32, (at + length) as u32));
            let next = (length + piece.end.len()).min(rest.len());
            (rest, at) = (&rest[next..], at + next);
        }
        true
    }
}

/// The position of a text. If the text begins with a quote, a quote after a backslash does not match.
#[inline]
fn find(line: &[u8], text: &[u8]) -> Option<usize> {
    let (first, more) = text.split_first()?;
    let mut from = 0;
    loop {
        let at = from + memchr(*first, line.get(from..)?)?;
        let escaped = *first == b'"' && is_escaped(&line[..at]);
        if !escaped && line[at + 1..].starts_with(more) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Whether an odd number of backslashes ends a text.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Translates a `LogFormat` of Apache.
fn from_apache(text: &str) -> Result<String, BadPattern> {
    let mut pattern = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        pattern.push_str(before);
        let (argument, after) = match after.strip_prefix('{') {
            Some(braced) => braced.split_once('}').map(|(name, rest)| (Some(name), rest)),
            None => Some((None, after.trim_start_matches(['>', '<']))),
        }
        .ok_or_else(|| BadPattern::Directive { directive: format!("%{after}") })?;
        let letter = after.chars().next().unwrap_or(' ');
        let variable = match (letter, argument) {
            ('h' | 'a', _) => "${remote_addr}".to_owned(),
            ('l', None) => "${ident}".to_owned(),
            ('u', None) => "${remote_user}".to_owned(),
            // Apache takes this time at the arrival of the request.
            ('t', None) => "[${start_time}]".to_owned(),
            ('r', None) => "${request}".to_owned(),
            ('s', None) => "${status}".to_owned(),
            ('b' | 'B' | 'O', None) => "${body_bytes_sent}".to_owned(),
            ('I', None) => "${request_length}".to_owned(),
            ('D', None) => "${request_time_us}".to_owned(),
            ('T', None | Some("s")) => "${request_time}".to_owned(),
            ('T', Some("ms")) => "${request_time_ms}".to_owned(),
            ('T', Some("us")) => "${request_time_us}".to_owned(),
            ('v' | 'V', None) => "${host}".to_owned(),
            ('p', _) => "${server_port}".to_owned(),
            ('m', None) => "${request_method}".to_owned(),
            ('U', None) => "${request_uri}".to_owned(),
            ('q', None) => "${args}".to_owned(),
            ('H', None) => "${protocol}".to_owned(),
            ('i', Some(name)) => format!("${{http_{}}}", name.to_ascii_lowercase().replace('-', "_")),
            ('C', Some(name)) => format!("${{cookie_{name}}}"),
            ('o' | 'e' | 'n', Some(name)) => format!("${{{name}}}"),
            _ => {
                let directive = format!("%{}", &after[..letter.len_utf8().min(after.len())]);
                return Err(BadPattern::Directive { directive });
            }
        };
        pattern.push_str(&variable);
        rest = &after[letter.len_utf8()..];
    }
    pattern.push_str(rest);
    Ok(pattern)
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVariable => f.write_str("a pattern needs variables, as in `$remote_addr [$time_local]`"),
            Self::Adjacent { first, second } => {
                write!(
                    f,
                    "nothing separates `${first}` from `${second}`, so their values cannot be told apart"
                )
            }
            Self::BadName { rest } => write!(f, "`${rest}` is not the name of a variable"),
            Self::Directive { directive } => write!(f, "the directive `{directive}` is not supported"),
        }
    }
}

impl std::error::Error for BadPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pattern: &str, line: &str) -> Option<Vec<(String, String)>> {
        let pattern = Pattern::parse(pattern).expect("a pattern");
        let mut spans = Spans::new();
        let fits = pattern.split(line.as_bytes(), &mut spans);
        let text = |(from, to): &(u32, u32)| line[*from as usize..*to as usize].to_owned();
        let all = pattern.names().map(str::to_owned).zip(spans.iter().map(text)).collect();
        fits.then_some(all)
    }

    fn value(pattern: &str, line: &str, name: &str) -> Option<String> {
        values(pattern, line)?.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    #[test]
    fn a_variable_ends_where_the_next_text_begins() {
        let pattern = "$host ${remote_addr}:$port \"$request\" rt=$request_time";
        let line = "shop.example 192.0.2.7:80 \"GET / HTTP/1.1\" rt=0.123";
        assert_eq!(value(pattern, line, "remote_addr").as_deref(), Some("192.0.2.7"));
        assert_eq!(value(pattern, line, "request").as_deref(), Some("GET / HTTP/1.1"));
        assert_eq!(value(pattern, line, "request_time").as_deref(), Some("0.123"));
        assert_eq!(values(pattern, "shop.example 192.0.2.7"), None);
        assert_eq!(values(pattern, ""), None);
    }

    #[test]
    fn an_escaped_quote_does_not_end_a_value() {
        let pattern = "\"$http_user_agent\" $status";
        assert_eq!(value(pattern, r#""a \" b" 200"#, "http_user_agent").as_deref(), Some(r#"a \" b"#));
        assert_eq!(value(pattern, r#""a \\" 200"#, "status").as_deref(), Some("200"));
    }

    #[test]
    fn apache_writes_the_same_in_its_own_words() {
        let pattern = r#"%v %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D"#;
        let line =
            r#"shop 192.0.2.7 - bob [17/Nov/2026:09:08:55 +0000] "GET / HTTP/1.1" 200 12 "-" "curl" 1500"#;
        assert_eq!(value(pattern, line, "remote_user").as_deref(), Some("bob"));
        assert_eq!(value(pattern, line, "start_time").as_deref(), Some("17/Nov/2026:09:08:55 +0000"));
        assert_eq!(value(pattern, line, "http_user_agent").as_deref(), Some("curl"));
        assert_eq!(value(pattern, line, "request_time_us").as_deref(), Some("1500"));
    }

    #[test]
    fn a_pattern_that_cannot_be_read_back_is_refused() {
        let refused = |text: &str| Pattern::parse(text).expect_err("a bad pattern").to_string();
        assert!(refused("plain text").contains("variables"));
        assert!(refused("$a$b").contains("nothing separates"));
        assert!(refused("$ x").contains("is not the name"));
        assert!(refused("%h %Z").contains("%Z"));
    }
}
