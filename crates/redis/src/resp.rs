//! The wire protocol of Redis (RESP): encodes commands, and parses replies within bounds.
//!
//! It is not a library's, because no reply may be larger than its caller expects, and because a library decides
//! itself which commands it sends again.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A short word, such as `OK`.
    Status(String),
    /// An error; its first word is the kind.
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    /// Null.
    Nil,
    /// Several replies.
    List(Vec<Reply>),
}

/// Finds the end of a reply in the bytes so far, and reads every byte once.
#[derive(Debug)]
pub(crate) struct Scanner {
    at: usize,
    /// The number of values that are still missing.
    missing: usize,
    values: usize,
}

/// A malformed or oversized reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense(&'static str);

const TOO_LONG: Nonsense = Nonsense("a reply of more than 1 MiB");

/// The longest reply. A connection buffers no more than one, so this bounds its memory. Longer lists are read
/// in pages: [`PAGE`].
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// The most values in a reply, and the longest line.
const MOST_VALUES: usize = 1 << 16;
const MOST_LINE: usize = 64 << 10;
/// The deepest nesting of lists.
const MOST_DEPTH: usize = 6;
/// A page has at most this many bytes of names and values, unless the first of them is longer.
pub(crate) const PAGE: usize = 256 << 10;

/// Appends a command.
pub(crate) fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_header(out, b'*', words.len());
    for word in words {
        write_word(out, word);
    }
}

/// Appends one word of a command.
pub(crate) fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    write_header(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Appends the type and the length at the start of a command or a word.
pub(crate) fn write_header(out: &mut Vec<u8>, mark: u8, length: usize) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

impl Default for Scanner {
    fn default() -> Self {
        Self { at: 0, missing: 1, values: 0 }
    }
}

impl Scanner {
    /// The length of the reply at the start of `bytes`, if it is complete.
    pub(crate) fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        let end = self.scan(bytes)?;
        if end.unwrap_or(bytes.len()) > MOST_BYTES {
            return Err(TOO_LONG);
        }
        Ok(end)
    }

    fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        while self.missing > 0 {
            let Some((mark, line, next)) = line_at(bytes, self.at)? else { return Ok(None) };
            let mut end = next;
            match mark {
                b'+' | b'-' | b':' => {}
                b'$' => {
                    if let Some(length) = length(line, MOST_BYTES)? {
                        end = next + length + 2;
                        if end > MOST_BYTES {
                            return Err(TOO_LONG);
                        }
                        if bytes.len() < end {
                            return Ok(None);
                        }
                        if &bytes[end - 2..end] != b"\r\n" {
                            return Err(Nonsense("a text without the end of its line"));
                        }
                    }
                }
                b'*' => self.missing += length(line, MOST_VALUES)?.unwrap_or(0),
                _ => return Err(Nonsense("bytes that are no reply")),
            }
            self.values += 1;
            if self.values + self.missing > MOST_VALUES {
                return Err(Nonsense("a reply of more than 65536 values"));
            }
            self.missing -= 1;
            self.at = end;
        }
        let end = self.at;
        *self = Self::default();
        Ok(Some(end))
    }
}

impl Reply {
    /// Parses a complete reply.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Nonsense> {
        let (reply, _) = parse_at(bytes, 0, 0)?;
        Ok(reply)
    }

    /// The number, if it is one.
    pub(crate) fn number(&self) -> Option<i64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// The bytes, if it is bytes or a status.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Status(word) => Some(word.as_bytes()),
            _ => None,
        }
    }

    /// The text, if it is valid UTF-8.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// The items, if it is a list.
    pub(crate) fn list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }
}

fn parse_at(bytes: &[u8], at: usize, depth: usize) -> Result<(Reply, usize), Nonsense> {
    const TORN: Nonsense = Nonsense("a torn reply");
    let (mark, line, next) = line_at(bytes, at)?.ok_or(TORN)?;
    let text = || String::from_utf8_lossy(line).into_owned();
    let reply = match mark {
        b'+' => Reply::Status(text()),
        b'-' => Reply::Error(text()),
        b':' => {
            let number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
            Reply::Number(number.ok_or(Nonsense("a number that is none"))?)
        }
        b'$' => match length(line, MOST_BYTES)? {
            Some(length) => {
                let content = bytes.get(next..next + length).ok_or(TORN)?;
                return Ok((Reply::Bytes(content.to_vec()), next + length + 2));
            }
            None => Reply::Nil,
        },
        b'*' if depth == MOST_DEPTH => return Err(Nonsense("lists in lists without end")),
        b'*' => match length(line, MOST_VALUES)? {
            Some(length) => return parse_list(bytes, next, length, depth),
            None => Reply::Nil,
        },
        _ => return Err(Nonsense("bytes that are no reply")),
    };
    Ok((reply, next))
}

fn parse_list(bytes: &[u8], mut at: usize, length: usize, depth: usize) -> Result<(Reply, usize), Nonsense> {
    let mut list = Vec::with_capacity(length);
    for _ in 0..length {
        let (reply, next) = parse_at(bytes, at, depth + 1)?;
        list.push(reply);
        at = next;
    }
    Ok((Reply::List(list), at))
}

/// The type and the rest of a line, and the offset of the next one.
type RespLine<'b> = (u8, &'b [u8], usize);

/// The line at this offset, if it is complete.
fn line_at(bytes: &[u8], at: usize) -> Result<Option<RespLine<'_>>, Nonsense> {
    let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let window = &rest[..rest.len().min(MOST_LINE)];
    match window.iter().position(|byte| *byte == b'\n') {
        Some(0) => Err(Nonsense("an empty line")),
        Some(end) => {
            Ok(Some((rest[0], rest[1..end].strip_suffix(b"\r").unwrap_or(&rest[1..end]), at + end + 1)))
        }
        None if window.len() == MOST_LINE => Err(Nonsense("a line without end")),
        None => Ok(None),
    }
}

/// A length; `None` for -1.
fn length(line: &[u8], most: usize) -> Result<Option<usize>, Nonsense> {
    if line == b"-1" {
        return Ok(None);
    }
    let number: Option<usize> = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    match number {
        Some(length) if length <= most => Ok(Some(length)),
        Some(_) => Err(TOO_LONG),
        None => Err(Nonsense("a length that is none")),
    }
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server sends nonsense: {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Nonsense> {
        let end = Scanner::default().find_end(bytes)?;
        end.map(|end| Ok((Reply::parse(&bytes[..end])?, end))).transpose()
    }

    #[test]
    fn a_reply_is_found_however_it_is_cut() {
        let bytes = b"*5\r\n:7\r\n$5\r\na\r\nbc\r\n+OK\r\n$-1\r\n*2\r\n-ERR no\r\n*0\r\n:1\r\n";
        let mut scanner = Scanner::default();
        let end = bytes.len() - 4;
        for cut in 0..end {
            assert_eq!(scanner.find_end(&bytes[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(scanner.find_end(bytes), Ok(Some(end)));
        let inner = Reply::List(vec![Reply::Error("ERR no".into()), Reply::List(vec![])]);
        let expected = [
            Reply::Number(7),
            Reply::Bytes(b"a\r\nbc".to_vec()),
            Reply::Status("OK".into()),
            Reply::Nil,
            inner,
        ];
        assert_eq!(Reply::parse(&bytes[..end]), Ok(Reply::List(expected.to_vec())));
    }

    #[test]
    fn nonsense_is_refused_and_never_waited_for() {
        let deep = [b"*1\r\n".repeat(20), b":1\r\n".to_vec()].concat();
        let many = b"*1000\r\n".repeat(2_000);
        let long = vec![b'+'; MOST_LINE + 1];
        for bytes in [
            &b"hello\r\n"[..],
            b"$99999999999\r\n",
            b"*99999999\r\n",
            b"$x\r\n",
            b"$3\r\nabcXX",
            b"\n",
            b":x\r\n",
            &deep,
            &many,
            &long,
        ] {
            assert!(read(bytes).is_err(), "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(20)]));
        }
    }

    #[test]
    fn a_command_is_an_array_of_words() {
        let mut out = Vec::new();
        write_command(&mut out, &[b"SET", b"a", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
    }
}
