//! SMTP: sessions and texts.

use std::sync::Arc;

use tollgate_relay::session::data::DataReceiver;
use tollgate_relay::session::lines::Lines;
use tollgate_relay::session::reply::Reply;
use tollgate_relay::session::{Identity, LoginOutcome, Session, Step, Terms};

/// The longest reply line, with its end (RFC 5321).
const MOST_REPLY_LINE: usize = 512;

/// A text ends at the same byte in whatever pieces it comes, and only where CR LF, a dot, CR LF stands.
pub fn smtp_data(bytes: &[u8]) {
    let receive = |pieces: usize| {
        let (mut receiver, mut text, mut consumed) = (DataReceiver::new(1 << 20), Vec::new(), 0);
        for piece in bytes.chunks(pieces) {
            let progress = receiver.push(piece, &mut text);
            consumed += progress.consumed;
            if progress.ended {
                return (Some(consumed), receiver.fault(), text);
            }
        }
        (None, receiver.fault(), text)
    };
    let whole = receive(bytes.len().max(1));
    assert_eq!((whole.0, whole.1), (receive(1).0, receive(1).1), "byte by byte");
    let (end, fault, text) = whole;
    if let Some(end) = end {
        let taken = &bytes[..end];
        assert!(taken.ends_with(b"\r\n.\r\n") || taken == b".\r\n", "it ends elsewhere");
        let early = taken[..end - 1].windows(5).any(|five| five == b"\r\n.\r\n");
        assert!(!early, "it had ended before");
    }
    if fault.is_none() {
        let bare = |at: usize| match text[at] {
            b'\n' => at == 0 || text[at - 1] != b'\r',
            b'\r' => text.get(at + 1).is_some_and(|next| *next != b'\n'),
            _ => false,
        };
        assert!(!(0..text.len()).any(bare), "a bare line end passed");
    }
}

/// Whatever comes, each line gets one well-formed reply.
pub fn smtp_session(bytes: &[u8]) {
    let terms =
        Terms { hostname: "r.test".to_owned(), max_size: 500, max_recipients: 3, tls: true, users: true };
    let network = Identity { user: None, api_key: None, tenant: "t".into(), senders: Arc::new([]) };
    // Inputs of odd length reach STARTTLS, the others reach logins sooner.
    let secure = bytes.len().is_multiple_of(2);
    let mut session = Session::new(Arc::new(terms), Some(network), secure);
    let (mut lines, mut receiving) = (Lines::default(), None::<DataReceiver>);
    lines.buffer().extend_from_slice(bytes);
    loop {
        if let Some(receiver) = &mut receiving {
            let progress = receiver.push(lines.unread(), &mut Vec::new());
            lines.consume(progress.consumed);
            if !progress.ended {
                return;
            }
            receiving = None;
            check(&session.received(Reply::new(250, "2.0.0", "Ok")));
            continue;
        }
        let Some(line) = lines.next_line() else { return };
        let mut step = session.line(line);
        loop {
            check(&step);
            step = match step {
                Step::LogIn(_) => session.logged_in(LoginOutcome::Wrong),
                Step::Sender => session.sender_known(None),
                Step::Close(_) => return,
                Step::StartTls(_) => {
                    // The rest of the input stands for what comes after the handshake.
                    session.secured();
                    break;
                }
                Step::Admit => {
                    check(&Step::Reply(session.admitted()));
                    receiving = Some(DataReceiver::new(500));
                    break;
                }
                Step::Reply(_) => break,
            };
        }
    }
}

fn check(step: &Step) {
    let (Step::Reply(reply) | Step::Close(reply)) = step else { return };
    let mut said = Vec::new();
    reply.write(&mut said);
    let text = std::str::from_utf8(&said).expect("a reply is text");
    assert!(text.ends_with("\r\n"), "{text:?}");
    for line in text.trim_end().split("\r\n") {
        assert!(line.len() + 2 <= MOST_REPLY_LINE && !line.contains(['\r', '\n']), "{line:?}");
        assert!(line.as_bytes()[..3].iter().all(u8::is_ascii_digit), "{line:?}");
    }
}
