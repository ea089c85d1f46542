//! Laws of sessions: whatever comes, in whatever pieces, is answered line by line and well-formed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_relay::session::data::DataReceiver;
use tollgate_relay::session::lines::Lines;
use tollgate_relay::session::reply::Reply;
use tollgate_relay::session::{Identity, LoginOutcome, Session, Step, Terms};

struct Player {
    session: Session,
    lines: Lines,
    receiving: Option<DataReceiver>,
    sent: Vec<u8>,
    closed: bool,
}

impl Player {
    fn new() -> Self {
        let terms =
            Terms { hostname: "r.test".to_owned(), max_size: 50, max_recipients: 2, tls: true, users: true };
        let network = Identity { user: None, api_key: None, tenant: "t".into(), senders: Arc::new([]) };
        let session = Session::new(Arc::new(terms), Some(network), true);
        Self { session, lines: Lines::default(), receiving: None, sent: Vec::new(), closed: false }
    }

    fn hear(&mut self, piece: &[u8]) {
        self.lines.buffer().extend_from_slice(piece);
        while !self.closed {
            if let Some(receiver) = &mut self.receiving {
                let progress = receiver.push(self.lines.unread(), &mut Vec::new());
                self.lines.consume(progress.consumed);
                if !progress.ended {
                    return;
                }
                self.receiving = None;
                let step = self.session.received(Reply::new(250, "2.0.0", "Ok"));
                self.take(step);
            } else {
                let Some(line) = self.lines.next_line() else { return };
                let step = self.session.line(line);
                self.take(step);
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Reply(reply) => reply.write(&mut self.sent),
            Step::Close(reply) => {
                reply.write(&mut self.sent);
                self.closed = true;
            }
            Step::StartTls(_) => panic!("TLS is in use"),
            Step::LogIn(_) => {
                let step = self.session.logged_in(LoginOutcome::Wrong);
                self.take(step);
            }
            Step::Sender => {
                let step = self.session.sender_known(None);
                self.take(step);
            }
            Step::Admit => {
                self.session.admitted().write(&mut self.sent);
                self.receiving = Some(DataReceiver::new(50));
            }
        }
    }
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => Just(b"EHLO c\r\n".to_vec()),
        3 => Just(b"MAIL FROM:<a@x.test>\r\n".to_vec()),
        3 => Just(b"RCPT TO:<b@x.test>\r\n".to_vec()),
        3 => Just(b"DATA\r\n".to_vec()),
        2 => Just(b"text\r\n.\r\n".to_vec()),
        1 => Just(b"AUTH LOGIN\r\n".to_vec()),
        1 => Just(b"AUTH PLAIN AGEAYg==\r\n".to_vec()),
        1 => Just(b"RSET\r\n".to_vec()),
        1 => Just(vec![b'x'; 13_000]),
        1 => "[A-Z]{4} [ -~]{0,30}\r\n".prop_map(String::into_bytes),
        1 => "(MAIL FROM:|RCPT TO:)<[^\r\n]{0,20}>( [A-Z]{3,8}=[^ \r\n]{0,9})?\r\n".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

#[track_caller]
fn assert_well_formed(sent: &[u8]) {
    let sent = str::from_utf8(sent).unwrap();
    for line in sent.split_inclusive("\r\n") {
        assert!(line.ends_with("\r\n") && line.len() <= 512, "{line}");
        let (code, rest) = line.split_at(3);
        assert!(code.parse::<u16>().is_ok_and(|code| (200..600).contains(&code)), "{line}");
        assert!(rest.starts_with([' ', '-']), "{line}");
        assert!(rest.trim_end_matches("\r\n").chars().all(|c| matches!(c, ' '..='~')), "{line}");
    }
}

/// Dialogues that mutations begin with.
const DIALOGUES: [&[u8]; 4] = [
    b"EHLO c\r\nMAIL FROM:<a@x.test> SIZE=10 BODY=8BITMIME RET=HDRS ENVID=a+2Bb\r\nRCPT TO:<b@x.test> \
      NOTIFY=SUCCESS,DELAY ORCPT=rfc822;b@x.test\r\nDATA\r\nSubject: x\r\n\r\n..text\r\n.\r\nQUIT\r\n",
    b"EHLO c\r\nAUTH PLAIN AGEAYg==\r\nAUTH LOGIN\r\nYQ==\r\nYg==\r\nAUTH PLAIN\r\n*\r\n",
    b"HELO c\r\nMAIL FROM:<>\r\nRCPT TO:<\"a b\"@x.test>\r\nRCPT TO:<@r.test:c@x.test>\r\nRSET\r\nNOOP\r\nHELP\r\n",
    b"EHLO [IPv6:::1]\r\nMAIL FROM:<\xc3\xa9@x.test> SMTPUTF8 AUTH=<>\r\nVRFY a\r\nSTARTTLS\r\nBDAT 1 LAST\r\n",
];

/// A dialogue with a few bytes changed, removed, repeated or taken from elsewhere.
fn mutated(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = DIALOGUES[random.usize(..DIALOGUES.len())].to_vec();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=input.len());
        let end = (at + random.usize(..12)).min(input.len());
        match random.u8(..5) {
            0 => input.insert(at, random.u8(..)),
            1 => drop(input.drain(at..end)),
            2 => {
                let piece = input[at..end].repeat(random.usize(1..4));
                input.splice(at..at, piece);
            }
            3 => {
                let other = DIALOGUES[random.usize(..DIALOGUES.len())];
                let from = random.usize(..other.len());
                input.splice(at..end, other[from..].iter().copied().take(60));
            }
            _ => {
                let special = [
                    b"\r\n".as_slice(),
                    b"\n",
                    b"\r",
                    b"\0",
                    b"\r\n.\r\n",
                    b"<",
                    b">",
                    b"\"",
                    b"\\",
                    b"\xff",
                ];
                input.splice(at..at, special[random.usize(..special.len())].iter().copied());
            }
        }
    }
    input
}

/// `TOLLGATE_LONG=1` tries many more.
#[test]
fn no_bytes_break_a_session() {
    let long = std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG");
    for seed in 0..if long { 2_000_000 } else { 20_000 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let input = mutated(&mut random);
        let (mut whole, mut split) = (Player::new(), Player::new());
        whole.hear(&input);
        assert_well_formed(&whole.sent);
        let size = random.usize(1..60);
        input.chunks(size).for_each(|piece| split.hear(piece));
        assert_eq!((&whole.sent, whole.closed), (&split.sent, split.closed), "seed {seed}");
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_replies(input in input(), size in 1..5_000_usize) {
        let (mut whole, mut split) = (Player::new(), Player::new());
        whole.hear(&input);
        input.chunks(size).for_each(|piece| split.hear(piece));
        prop_assert_eq!(String::from_utf8_lossy(&whole.sent), String::from_utf8_lossy(&split.sent));
        prop_assert_eq!(whole.closed, split.closed);
    }

    #[test]
    fn replies_are_well_formed(input in input()) {
        let mut player = Player::new();
        player.hear(&input);
        assert_well_formed(&player.sent);
    }

    #[test]
    fn an_accepted_address_can_be_sent_on(text in "(\"[^\r\n]{0,12}\"|[ -~é]{1,9})@[a-z.é]{1,8}") {
        // What was accepted is one path: with its brackets it reads as itself, and nothing follows it.
        if let Some(address) = tollgate_relay::session::address::Address::read(&text) {
            let mut player = Player::new();
            player.hear(b"EHLO c\r\nMAIL FROM:<> SMTPUTF8\r\n");
            player.hear(format!("RCPT TO:<{}>\r\n", address.text).as_bytes());
            let recipients = player.session.transaction().unwrap().recipients();
            prop_assert_eq!(&recipients[0].address, &text);
        }
    }
}

#[test]
fn no_command_can_be_sent_for_ever() {
    let begin = b"EHLO c\r\nMAIL FROM:<a@x.test>\r\nRCPT TO:<b@x.test>\r\nRCPT TO:<c@x.test>\r\n";
    for (begin, line) in [
        (&begin[..], "RCPT TO:<b@x.test>\r\n"),
        (&begin[..], "RCPT TO:<one-too-many@x.test>\r\n"),
        (b"EHLO c\r\n", "MAIL FROM:<a@x.test> SIZE=1000\r\n"),
        (b"EHLO c\r\n", "NOOP\r\n"),
        (b"EHLO c\r\n", "MAIL FROM:<a@x.test>\r\nRSET\r\n"),
    ] {
        let mut player = Player::new();
        player.hear(begin);
        let count = (0..20_000).take_while(|_| {
            player.hear(line.as_bytes());
            !player.closed
        });
        assert!(count.count() < 20_000, "{line} has no end");
        assert!(player.sent.ends_with(b"\r\n") && player.closed);
    }
}

#[test]
fn a_long_list_of_recipients_does_not_end_the_session() {
    let mut player = Player::new();
    player.hear(b"EHLO c\r\nMAIL FROM:<a@x.test>\r\n");
    for number in 0..5_000 {
        player.hear(format!("RCPT TO:<r{number}@x.test>\r\n").as_bytes());
    }
    player.hear(b"DATA\r\ntext\r\n.\r\n");
    assert!(!player.closed && player.sent.ends_with(b"250 2.0.0 Ok\r\n"), "the first two are accepted");
}

#[test]
fn a_line_that_does_not_end_is_noticed() {
    let mut lines = Lines::default();
    for _ in 0..10 {
        lines.buffer().extend_from_slice(&[b'x'; 10_000]);
        assert_eq!(lines.next_line(), None);
        assert!(lines.buffer().len() <= Lines::MOST_BYTES, "no more is kept than one line may have");
    }
    assert!(lines.is_endless());
}
