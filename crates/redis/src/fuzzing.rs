//! Opens the parser of replies to fuzzing.

use crate::resp::{Reply, Scanner, write_header, write_word};

/// A reply that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// The number of bytes that the reply takes.
    pub end: usize,
    /// The content of the reply, as text.
    pub shown: String,
    /// The same reply, encoded again.
    pub written: Vec<u8>,
}

/// The reply at the start of these bytes; `None` if it is refused or incomplete. `arrived` gives how many of the bytes
/// have arrived each time that the connection looks.
pub fn read_reply(bytes: &[u8], arrived: impl IntoIterator<Item = usize>) -> Option<ReadReply> {
    let mut scanner = Scanner::default();
    for come in arrived {
        let bytes = &bytes[..come];
        if let Some(end) = scanner.find_end(bytes).ok()? {
            let reply = Reply::parse(&bytes[..end]).ok()?;
            let mut written = Vec::new();
            write(&reply, &mut written);
            return Some(ReadReply { end, shown: format!("{reply:?}"), written });
        }
    }
    None
}

fn write(reply: &Reply, out: &mut Vec<u8>) {
    let mut line = |mark: u8, text: &str| {
        out.push(mark);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    match reply {
        Reply::Status(word) => line(b'+', word),
        Reply::Error(words) => line(b'-', words),
        Reply::Number(number) => line(b':', &number.to_string()),
        Reply::Nil => line(b'$', "-1"),
        Reply::Bytes(bytes) => write_word(out, bytes),
        Reply::List(list) => {
            write_header(out, b'*', list.len());
            list.iter().for_each(|reply| write(reply, out));
        }
    }
}
