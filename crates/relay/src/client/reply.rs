//! Parses the replies of a server. Replies are bounded: the connection to a server that sends too much is
//! closed.

use std::fmt;

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The three digits.
    pub code: u16,
    /// The text of all lines, without codes.
    pub lines: Vec<String>,
}

/// The longest line of a reply, in bytes. RFC 5321 allows 512; real servers exceed it.
const MOST_LINE: usize = 2_048;
/// The most lines of a reply.
const MOST_LINES: usize = 128;

/// A reply that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    code: Option<u16>,
    lines: Vec<String>,
}

/// The reason why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoReply {
    /// A line is too long, or there are too many.
    TooLong,
    /// It does not begin with three digits, or the digits change from line to line.
    Malformed,
}

impl Gathering {
    /// Takes complete lines from a buffer. Returns the reply once its last line has arrived.
    pub(super) fn feed(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Reply>, NoReply> {
        let mut done = 0;
        let mut complete = None;
        while let Some(length) = buffer[done..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[done..done + length];
            done += length + 1;
            if line.len() > MOST_LINE || self.lines.len() >= MOST_LINES {
                return Err(NoReply::TooLong);
            }
            if self.take_line(line.strip_suffix(b"\r").unwrap_or(line))? {
                let code = self.code.take().ok_or(NoReply::Malformed)?;
                complete = Some(Reply { code, lines: std::mem::take(&mut self.lines) });
                break;
            }
        }
        buffer.drain(..done);
        if complete.is_none() && buffer.len() > MOST_LINE {
            return Err(NoReply::TooLong);
        }
        Ok(complete)
    }

    /// Parses one line. Returns whether it is the last one.
    fn take_line(&mut self, line: &[u8]) -> Result<bool, NoReply> {
        let (code, rest) = line.split_at_checked(3).ok_or(NoReply::Malformed)?;
        if !code.iter().all(u8::is_ascii_digit) || !(b'2'..=b'5').contains(&code[0]) {
            return Err(NoReply::Malformed);
        }
        let code = code.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        if self.code.is_some_and(|known| known != code) {
            return Err(NoReply::Malformed);
        }
        self.code = Some(code);
        let (last, text) = match rest.split_first() {
            None => (true, rest),
            Some((b' ', text)) => (true, text),
            Some((b'-', text)) => (false, text),
            Some(_) => return Err(NoReply::Malformed),
        };
        let text = String::from_utf8_lossy(text);
        self.lines.push(text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect());
        Ok(last)
    }
}

impl Reply {
    /// Whether the server accepted the command.
    pub fn is_ok(&self) -> bool {
        self.code / 100 == 2
    }

    /// Whether the refusal is for good.
    pub fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// The enhanced status code of the reply, or one that fits its code.
    pub fn status(&self) -> String {
        let word = self.lines.first().and_then(|line| line.split(' ').next()).unwrap_or_default();
        let mut parts = word.split('.');
        let is_number = |part: Option<&str>, most: usize| {
            part.is_some_and(|part| {
                (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        let class = word.bytes().next().map(u16::from).map(|byte| byte.wrapping_sub(u16::from(b'0')));
        let shaped = is_number(parts.next(), 1) && is_number(parts.next(), 3) && is_number(parts.next(), 3);
        if shaped && parts.next().is_none() && class == Some(self.code / 100) {
            return word.to_owned();
        }
        format!("{}.0.0", self.code / 100)
    }

    /// Whether a reply to RCPT says that the transaction has enough recipients. RFC 821 had 552 for this: it means 452,
    /// and is temporary (RFC 5321, 4.5.3.1.10), unless its status names another reason, as 5.2.2 for a full mailbox.
    pub(super) fn is_too_many_recipients(&self) -> bool {
        self.code == 452 || self.code == 552 && matches!(&*self.status(), "5.5.3" | "5.0.0")
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.lines.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<Reply>, NoReply> {
        Gathering::default().feed(&mut bytes.to_vec())
    }

    #[test]
    fn replies_have_one_line_or_many() {
        let reply = read(b"250 2.1.0 Ok\r\n").unwrap().unwrap();
        assert_eq!(
            (reply.code, reply.status(), reply.to_string()),
            (250, "2.1.0".into(), "250 2.1.0 Ok".into())
        );
        let reply = read(b"250-mx.example\r\n250-SIZE 100\r\n250 HELP\r\n").unwrap().unwrap();
        assert_eq!(reply.lines, ["mx.example", "SIZE 100", "HELP"]);
        assert_eq!(read(b"220\n").unwrap().unwrap().lines, [""]);
        assert_eq!(read(b"250-mx.example\r\n250"), Ok(None));
    }

    #[test]
    fn a_malformed_reply_is_refused() {
        for bytes in
            [&b"hello\r\n"[..], b"25\r\n", b"250-a\r\n251 b\r\n", b"250_a\r\n", b"999 a\r\n", b"\r\n"]
        {
            assert_eq!(read(bytes), Err(NoReply::Malformed), "{bytes:?}");
        }
        assert_eq!(read(&[b'2'; 3_000]), Err(NoReply::TooLong));
        assert_eq!(read(&b"250-x\r\n".repeat(129)), Err(NoReply::TooLong));
    }

    #[test]
    fn a_status_belongs_to_its_code() {
        let status = |line: &[u8]| read(line).unwrap().unwrap().status();
        assert_eq!(status(b"550 5.1.1 gone\r\n"), "5.1.1");
        assert_eq!(status(b"550 4.1.1 gone\r\n"), "5.0.0");
        assert_eq!(status(b"451 later\r\n"), "4.0.0");
        assert_eq!(status(b"451 4.7 later\r\n"), "4.0.0");
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
            let mut gathering = Gathering::default();
            let mut buffer = bytes;
            while let Ok(Some(reply)) = gathering.feed(&mut buffer) {
                prop_assert!((200..600).contains(&reply.code));
            }
            prop_assert!(buffer.len() <= 3_000);
        }

        #[test]
        fn pieces_make_the_same_reply_as_the_whole(bytes in "(2[0-9]{2}[- ][a-z]{0,5}\r\n){0,4}", at in 0..40_usize) {
            let whole = read(bytes.as_bytes());
            let (one, two) = bytes.split_at(at.min(bytes.len()));
            let mut gathering = Gathering::default();
            let mut buffer = one.as_bytes().to_vec();
            let mut first = gathering.feed(&mut buffer);
            if first == Ok(None) {
                buffer.extend_from_slice(two.as_bytes());
                first = gathering.feed(&mut buffer);
            }
            prop_assert_eq!(first, whole);
        }
    }
}
