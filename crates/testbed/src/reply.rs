//! A response of a server in RESP2, with any bytes.

use std::io::{self, BufRead, Error, ErrorKind};

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$3`, with any bytes.
    Bulk(Vec<u8>),
    /// `$-1` or `*-1`
    Nil,
    /// `*2`
    Array(Vec<Reply>),
}

impl Reply {
    /// Reads a response; the end of the stream is an error.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        let line = std::str::from_utf8(line).map_err(Error::other)?;
        let (kind, rest) = line.split_at_checked(1).ok_or(ErrorKind::InvalidData)?;
        match kind {
            "+" => Ok(Self::Status(rest.to_owned())),
            "-" => Ok(Self::Error(rest.to_owned())),
            ":" => rest.parse().map(Self::Integer).map_err(Error::other),
            "$" | "*" => match (kind, rest.parse::<i64>().map_err(Error::other)?) {
                (_, -1) => Ok(Self::Nil),
                ("$", length) => {
                    let mut bytes = vec![0; usize::try_from(length).map_err(Error::other)? + 2];
                    from.read_exact(&mut bytes)?;
                    bytes.truncate(bytes.len() - 2);
                    Ok(Self::Bulk(bytes))
                }
                (_, count) => {
                    (0..count).map(|_| Self::read(from)).collect::<io::Result<_>>().map(Self::Array)
                }
            },
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// The text of a status, an error, a bulk or an integer.
    ///
    /// # Panics
    ///
    /// If it is none of these.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Integer(number) => number.to_string(),
            Self::Nil | Self::Array(_) => panic!("an answer with a text, not {self:?}"),
        }
    }

    /// The number of an integer, or of a text.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.text().parse().unwrap_or_else(|_| panic!("an answer with a number, not {self:?}"))
    }

    /// The parts of an array.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    pub fn parts(&self) -> &[Self] {
        match self {
            Self::Array(parts) => parts,
            _ => panic!("an array, not {self:?}"),
        }
    }

    /// Whether it is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// The response, unless it is an error.
    ///
    /// # Panics
    ///
    /// If it is one.
    #[must_use]
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(!self.is_error(), "the server answered {self:?}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_with_whatever_bytes_it_has() {
        let mut wire: &[u8] =
            b"*6\r\n+OK\r\n-ERR no\r\n:-7\r\n$4\r\n\r\n\0\xff\r\n$-1\r\n*1\r\n*-1\r\n+next\r\n";
        let parts = vec![
            Reply::Status("OK".to_owned()),
            Reply::Error("ERR no".to_owned()),
            Reply::Integer(-7),
            Reply::Bulk(b"\r\n\0\xff".to_vec()),
            Reply::Nil,
            Reply::Array(vec![Reply::Nil]),
        ];
        assert_eq!(Reply::read(&mut wire).unwrap(), Reply::Array(parts));
        assert_eq!(Reply::read(&mut wire).unwrap().text(), "next");
    }

    #[test]
    fn half_an_answer_is_none() {
        for mut wire in [&b""[..], b"+OK", b"$4\r\nab", b"*2\r\n+OK\r\n", b"?1\r\n"] {
            assert!(Reply::read(&mut wire).is_err(), "{wire:?}");
        }
    }
}
