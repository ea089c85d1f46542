//! The DATA receiver: where a text ends, whatever the pieces it comes in, and that nothing can be smuggled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use tollgate_relay::session::data::{DataFault, DataReceiver};

const MOST: u64 = 1_000;

/// What came of a whole input: the text, its fault, and what was left over after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    text: Vec<u8>,
    fault: Option<DataFault>,
    ended: bool,
    left: Vec<u8>,
    eight_bit: bool,
}

fn receive<'p>(most: u64, pieces: impl IntoIterator<Item = &'p [u8]>) -> Received {
    let mut receiver = DataReceiver::new(most);
    let (mut text, mut left, mut ended) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        let mut rest = piece;
        if !ended {
            let progress = receiver.push(piece, &mut text);
            ended = progress.ended;
            assert!(ended || progress.consumed == piece.len());
            rest = &piece[progress.consumed..];
        }
        left.extend_from_slice(rest);
    }
    let fault = receiver.fault();
    // What was written before a fault was found is thrown away with the message.
    let text = if fault.is_some() { Vec::new() } else { text };
    Received { text, fault, ended, left, eight_bit: receiver.is_eight_bit() }
}

fn whole(input: &[u8]) -> Received {
    receive(MOST, [input])
}

/// The same by looking for the sequence that ends a text, as RFC 5321 words it.
fn by_the_book(input: &[u8], most: u64) -> Received {
    let with_start = [b"\r\n", input].concat();
    let end = with_start.windows(5).position(|five| five == b"\r\n.\r\n");
    let (raw, left) = match end {
        Some(at) => (&with_start[2..(at + 2).max(2)], with_start[at + 5..].to_vec()),
        None => (input, Vec::new()),
    };
    let mut fault = None;
    let mut text = Vec::new();
    let mut rest = raw;
    let mut size = 0;
    while !rest.is_empty() && fault.is_none() {
        let dot = rest.first() == Some(&b'.');
        let length = rest.windows(2).position(|two| two == b"\r\n").map_or(rest.len(), |at| at + 2);
        let (line, after) = rest.split_at(length);
        let line = if dot { &line[1..] } else { line };
        let inner = line.strip_suffix(b"\r\n").unwrap_or(line);
        // A CR at the very end may still get its LF.
        let inner = if end.is_none() && !line.ends_with(b"\r\n") {
            inner.strip_suffix(b"\r").unwrap_or(inner)
        } else {
            inner
        };
        for byte in inner {
            match byte {
                b'\r' | b'\n' => fault = fault.or(Some(DataFault::BareLineEnd)),
                0 => fault = fault.or(Some(DataFault::Nul)),
                _ => size += 1,
            }
            if size > most {
                fault = fault.or(Some(DataFault::TooLarge));
            }
        }
        size += (line.len() - line.strip_suffix(b"\r\n").unwrap_or(line).len()) as u64;
        if size > most {
            fault = fault.or(Some(DataFault::TooLarge));
        }
        text.extend_from_slice(inner);
        if line.ends_with(b"\r\n") {
            text.extend_from_slice(b"\r\n");
        }
        rest = after;
    }
    let seen = if end.is_some() { &input[..input.len() - left.len()] } else { input };
    let text = if fault.is_some() { Vec::new() } else { text };
    Received { text, fault, ended: end.is_some(), left, eight_bit: !seen.is_ascii() }
}

/// Bytes that matter come often.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => Just(b'\r'), 4 => Just(b'\n'), 4 => Just(b'.'), 2 => Just(b'a'), 1 => Just(0), 1 => any::<u8>(),
    ];
    let token = prop_oneof![
        byte.prop_map(|byte| vec![byte]),
        Just(b"\r\n".to_vec()),
        Just(b"\r\n.\r\n".to_vec()),
        Just(b"text\r\n".to_vec()),
    ];
    proptest::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

/// Text that a client may send: lines of printable bytes.
fn lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let line = proptest::collection::vec(prop_oneof![Just(b'.'), 1..=9_u8, 14..=255_u8], 0..20);
    proptest::collection::vec(line, 0..20)
}

proptest! {
    #[test]
    fn any_split_into_pieces_gives_the_same(input in bytes(), most in 0..100_u64, cuts in proptest::collection::vec(0..200_usize, 0..20)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([input.len()]) {
            pieces.push(&input[from..cut]);
            from = cut;
        }
        prop_assert_eq!(receive(most, pieces), receive(most, [&*input]));
        prop_assert_eq!(receive(most, input.chunks(1)), receive(most, [&*input]));
    }

    #[test]
    fn it_reads_as_the_standard_says(input in bytes(), most in 0..100_u64) {
        prop_assert_eq!(receive(most, [&*input]), by_the_book(&input, most));
    }

    #[test]
    fn dot_stuffed_lines_are_restored(lines in lines()) {
        let mut sent = Vec::new();
        let mut text = Vec::new();
        for line in &lines {
            if line.first() == Some(&b'.') {
                sent.push(b'.');
            }
            sent.extend_from_slice(line);
            sent.extend_from_slice(b"\r\n");
            text.extend_from_slice(line);
            text.extend_from_slice(b"\r\n");
        }
        sent.extend_from_slice(b".\r\nQUIT\r\n");
        let received = whole(&sent);
        prop_assert_eq!((received.text, received.fault, received.ended), (text, None, true));
        prop_assert_eq!(received.left, b"QUIT\r\n");
    }
}

/// Sequences that some servers take for the end of a text. Each is followed by commands that must stay text.
const SMUGGLED: [&[u8]; 16] = [
    b"\n.\n",
    b"\n.\r\n",
    b"\r\n.\n",
    b"\r.\r",
    b"\r.\r\n",
    b"\r\n.\r",
    b"\n.\r",
    b"\r\r\n.\n",
    b"\r\n.\r\r\n",
    b"\r\n\0.\r\n",
    b"\r\n.\0\r\n",
    b"\0\r\n.\n",
    b"\r\n.\x0b\n",
    b"\n\r.\r\n",
    b"\r\n.\n\r\n",
    b"\n\n.\r\n",
];

#[test]
fn no_other_sequence_ends_a_text() {
    for sequence in SMUGGLED {
        let hidden = b"MAIL FROM:<b@evil.test>\r\nRCPT TO:<c@victim.test>\r\nDATA\r\nhidden\r\n.\r\nQUIT\r\n";
        let input = [b"Subject: a\r\n\r\nfirst", sequence, hidden].concat();
        let received = whole(&input);
        let shown = String::from_utf8_lossy(sequence).escape_debug().to_string();
        assert!(
            received.ended && received.left == b"QUIT\r\n",
            "{shown}: the real end is found, and no other"
        );
        assert!(received.fault.is_some(), "{shown}: the message is refused");
        assert!(received.text.is_empty());
    }
}

#[test]
fn sequences_that_only_look_like_an_end_stay_text() {
    for (sent, text) in [
        (&b"..\r\n.\r\n"[..], &b".\r\n"[..]),
        (b".x\r\n.\r\n", b"x\r\n"),
        (b"...\r\n.\r\n", b"..\r\n"),
        (b". \r\n.\r\n", b" \r\n"),
        (b"a.\r\n.\r\n", b"a.\r\n"),
        (b".\r\n", b""),
    ] {
        let received = whole(sent);
        assert_eq!((received.text.as_slice(), received.fault, received.ended), (text, None, true));
    }
}

#[test]
fn a_text_that_is_too_large_is_read_to_its_end() {
    let mut receiver = DataReceiver::new(10);
    let mut out = Vec::new();
    let progress = receiver.push(b"12345678\r\n", &mut out);
    assert!(!progress.ended && receiver.fault().is_none());
    let progress = receiver.push(b"9\r\n.\r\nRSET\r\n", &mut out);
    assert!(progress.ended && progress.consumed == 6);
    assert_eq!((receiver.fault(), receiver.size()), (Some(DataFault::TooLarge), 13));
    assert_eq!(out, b"12345678\r\n", "nothing is kept of what is too much");
}

/// `TOLLGATE_LONG=1` tries many more.
#[test]
fn no_bytes_end_a_text_early_or_late() {
    let long = std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG");
    let pieces: [&[u8]; 10] =
        [b"\r\n", b"\r", b"\n", b".", b"..", b"a", b"\0", b"\xff", b"\r\n.\r\n", b"\r\n..\r\n"];
    for seed in 0..if long { 5_000_000 } else { 50_000 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(..20);
        let input: Vec<u8> = (0..count).flat_map(|_| pieces[random.usize(..pieces.len())]).copied().collect();
        let size = random.usize(1..8);
        let found = receive(MOST, input.chunks(size));
        assert_eq!(found, whole(&input), "seed {seed}");
        let book = by_the_book(&input, MOST);
        assert_eq!((found.ended, &found.left), (book.ended, &book.left), "seed {seed}");
        assert_eq!((found.fault.is_some(), &found.text), (book.fault.is_some(), &book.text), "seed {seed}");
    }
}
