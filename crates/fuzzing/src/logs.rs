//! Logs that are replayed.

use std::io::{self, Read};

use tollgate_core::{Span, Timestamp};
use tollgate_replay::choose::Wishes;
use tollgate_replay::feed::{Account, Feed, Reading, Refused};
use tollgate_replay::log::format::Format;

/// A log is read or refused; every line is an attempt, unreadable, or part of a message; and it is the same log in
/// whatever pieces it comes. The first byte chooses the format.
pub fn log_lines(bytes: &[u8]) {
    let Some((choice, log)) = bytes.split_first() else { return };
    let format = Format::NAMES.get(usize::from(*choice)).map(|name| (*name).to_owned());
    let Some(whole) = read(format.clone(), log, usize::MAX) else { return };
    let (account, times) = &whole;
    let attempts = u64::try_from(times.len()).expect("there are few");
    assert_eq!(account.lines, account.unreadable + account.other + attempts);
    assert!(times.is_sorted(), "attempts come in order");
    assert!(account.samples.len() <= 5);
    assert_eq!(read(format, log, 1).as_ref(), Some(&whole), "byte by byte");
}

fn read(format: Option<String>, log: &[u8], piece: usize) -> Option<(Account, Vec<u64>)> {
    let reading = Reading {
        format,
        mappings: Vec::new(),
        taken: None,
        zone: None,
        reorder: Span::from_secs(10),
        now: Timestamp::from_micros(1_800_000_000_000_000),
        refused: Refused::Replayed,
    };
    let mut wishes = Wishes::default();
    for field in ["ip", "user", "path", "host", "method", "query.q", "sender", "domain"] {
        wishes.add(field, None);
    }
    let reader: Box<dyn Read> = Box::new(Pieces { rest: log.to_vec(), piece });
    let mut feed = Feed::open(vec![("log".to_owned(), reader)], &reading, &wishes.list).ok()?;
    let mut times = Vec::new();
    feed.run(&mut |entry| times.push(entry.at.as_micros())).expect("reading from memory works");
    Some((feed.account.clone(), times))
}

/// Yields at most so many bytes at once.
struct Pieces {
    rest: Vec<u8>,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.rest.len().min(into.len()).min(self.piece);
        into[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}
