//! Transcripts of sessions: `tests/transcripts/*.txt`, each of which is played to a session and compared.
//!
//! | line | meaning |
//! | --- | --- |
//! | `# …` | a comment |
//! | `T: tls users network secure size=N rcptmax=N` | what the server offers, and who the client is; before all else |
//! | `C: …` | the client sends a line, with CR LF |
//! | `R: …` | the client sends these bytes, with nothing added |
//! | `A: …` | the answer to the next question: `login TENANT [DOMAIN…]`, `wrong`, `locked N`, `unavailable`, `recipients N`, `deny CODE STATUS TEXT` |
//! | `S: …` | the server sends this line |
//! | `X:` | the server has closed the connection |
//!
//! `\r`, `\n`, `\0`, `\\` and `\xNN` stand for bytes in `C` and `R`; `\*N` repeats the byte before it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use tollgate_relay::session::data::DataReceiver;
use tollgate_relay::session::lines::Lines;
use tollgate_relay::session::reply::Reply;
use tollgate_relay::session::{Identity, LoginOutcome, Session, Step, Terms, TextFault};

struct Player {
    session: Session,
    lines: Lines,
    receiving: Option<DataReceiver>,
    size: u64,
    sent: String,
    answers: VecDeque<String>,
    closed: bool,
}

impl Player {
    fn new(words: &str) -> Self {
        let has = |word: &str| words.split(' ').any(|own| own == word);
        let number = |name: &str, usual: u64| {
            let value = words.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.map_or(usual, |value| value.parse().unwrap())
        };
        let terms = Terms {
            hostname: "relay.test".to_owned(),
            max_size: number("size", 1_000),
            max_recipients: number("rcptmax", 3) as usize,
            tls: has("tls"),
            users: has("users"),
        };
        let network = Identity { user: None, api_key: None, tenant: "local".into(), senders: Arc::new([]) };
        let size = terms.max_size;
        let session = Session::new(Arc::new(terms), has("network").then_some(network), has("secure"));
        let mut player = Self {
            session,
            lines: Lines::default(),
            receiving: None,
            size,
            sent: String::new(),
            answers: VecDeque::new(),
            closed: false,
        };
        let greeting = player.session.greet();
        player.send(&greeting);
        player
    }

    fn send(&mut self, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        self.sent.push_str(str::from_utf8(&bytes).unwrap());
    }

    fn hear(&mut self, bytes: &[u8]) {
        assert!(!self.closed, "the client sends after the end");
        self.lines.buffer().extend_from_slice(bytes);
        while !self.closed {
            if self.receiving.is_some() {
                if !self.receive() {
                    return;
                }
                continue;
            }
            let Some(line) = self.lines.next_line() else { return };
            let step = self.session.line(line);
            self.take(step);
        }
    }

    /// Returns whether the text has ended.
    fn receive(&mut self) -> bool {
        let receiver = self.receiving.as_mut().unwrap();
        let progress = receiver.push(self.lines.unread(), &mut Vec::new());
        self.lines.consume(progress.consumed);
        if !progress.ended {
            return false;
        }
        let fault = self.receiving.take().unwrap().fault();
        let reply = match fault {
            Some(fault) => self.session.text_refused(TextFault::Data(fault)),
            None => Reply::new(250, "2.0.0", "Ok: queued"),
        };
        let step = self.session.received(reply);
        self.take(step);
        true
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Reply(reply) => self.send(&reply),
            Step::Close(reply) => {
                self.send(&reply);
                self.closed = true;
            }
            Step::StartTls(reply) => {
                self.send(&reply);
                self.lines.clear();
                self.session.secured();
            }
            Step::LogIn(login) => {
                let outcome = self.login_outcome(&login.user);
                let step = self.session.logged_in(outcome);
                self.take(step);
            }
            Step::Sender => {
                let most = self.answer("recipients").map(|most| most.parse().unwrap());
                let step = self.session.sender_known(most);
                self.take(step);
            }
            Step::Admit => {
                if !self.lines.unread().is_empty() {
                    let step = self.session.out_of_step();
                    self.take(step);
                } else if let Some(words) = self.answer("deny") {
                    let (code, rest) = words.split_once(' ').unwrap();
                    let (status, text) = rest.split_once(' ').unwrap();
                    let status: &'static str = String::leak(status.to_owned());
                    let reply = Reply::new(code.parse().unwrap(), status, text.to_owned());
                    let step = self.session.refused(reply);
                    self.take(step);
                } else {
                    let reply = self.session.admitted();
                    self.send(&reply);
                    self.receiving = Some(DataReceiver::new(self.size));
                }
            }
        }
    }

    /// The next answer, if it is about this.
    fn answer(&mut self, about: &str) -> Option<String> {
        let next = self.answers.front()?.strip_prefix(about)?.trim_start().to_owned();
        self.answers.pop_front();
        Some(next)
    }

    fn login_outcome(&mut self, user: &str) -> LoginOutcome {
        let answer = self
            .answers
            .pop_front()
            .unwrap_or_else(|| panic!("{user} logs in: say with `A:` what comes of it"));
        let mut words = answer.split(' ');
        match words.next().unwrap() {
            "login" => LoginOutcome::Identified(Identity {
                api_key: None,
                user: Some(user.into()),
                tenant: words.next().unwrap().into(),
                senders: words.map(str::to_owned).collect(),
            }),
            "wrong" => LoginOutcome::Wrong,
            "locked" => LoginOutcome::Locked { seconds: words.next().map(|word| word.parse().unwrap()) },
            "unavailable" => LoginOutcome::Unavailable,
            other => panic!("{other} is no answer to a login"),
        }
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let code = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        match code {
            b'r' => out.push(b'\r'),
            b'n' => out.push(b'\n'),
            b'0' => out.push(0),
            b'\\' => out.push(b'\\'),
            b'x' => {
                out.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
            }
            b'*' => {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                let last = *out.last().unwrap();
                out.resize(out.len() + rest[..digits].parse::<usize>().unwrap() - 1, last);
                rest = &rest[digits..];
            }
            code => panic!("\\{} means nothing", char::from(code)),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn play(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut player: Option<Player> = None;
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (mark, rest) = line.split_once(':').unwrap_or_else(|| panic!("{place}: no mark"));
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        if mark == "T" {
            assert!(player.is_none(), "{place}: the terms come first");
        }
        let player = player.get_or_insert_with(|| Player::new(if mark == "T" { rest } else { "" }));
        match mark {
            "T" => {}
            "A" => player.answers.push_back(rest.to_owned()),
            "C" => player.hear(&[unescaped(rest), b"\r\n".to_vec()].concat()),
            "R" => player.hear(&unescaped(rest)),
            "S" => {
                let (said, after) = player
                    .sent
                    .split_once("\r\n")
                    .map(|(a, b)| (a.to_owned(), b.to_owned()))
                    .unwrap_or_else(|| panic!("{place}: the server said nothing, not: {rest}"));
                assert_eq!(said, rest, "{place}");
                player.sent = after;
            }
            "X" => assert!(player.closed, "{place}: the session is still open"),
            mark => panic!("{place}: {mark} is no mark"),
        }
        if matches!(mark, "C" | "R") {
            continue;
        }
    }
    let player = player.unwrap();
    assert_eq!(player.sent, "", "{}: the server said more", path.display());
    assert!(player.answers.is_empty(), "{}: the session did not use {:?}", path.display(), player.answers);
}

#[test]
fn sessions_go_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5);
    files.iter().for_each(|path| play(path));
}
