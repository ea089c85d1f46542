//! SMTP: sessions and texts.

use std::sync::Arc;

use tollgate_relay::session::data::DataReceiver;
use tollgate_relay::session::headers::{Additions, HeaderFault, HeaderRewriter};
use tollgate_relay::session::lines::Lines;
use tollgate_relay::session::reply::Reply;
use tollgate_relay::session::{Identity, LoginOutcome, Session, Step, Terms};

/// The longest reply line, with its end (RFC 5321).
const MOST_REPLY_LINE: usize = 512;

/// A text ends at the same byte in whatever pieces it comes, and only where CR LF, a dot, CR LF stands. A text that is taken
/// is what a plain reader makes of it, and so is its header.
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
    let (end, fault, text) = receive(bytes.len().max(1));
    let single = receive(1);
    assert_eq!((end, fault), (single.0, single.1), "byte by byte");
    if let Some(end) = end {
        let taken = &bytes[..end];
        assert!(taken.ends_with(b"\r\n.\r\n") || taken == b".\r\n", "it ends elsewhere");
        let early = taken[..end - 1].windows(5).any(|five| five == b"\r\n.\r\n");
        assert!(!early, "it had ended before");
    }
    if fault.is_none() {
        assert_eq!(text, single.2, "byte by byte");
        assert!(!has_bare_line_end(&text), "a bare line end passed");
        if let Some(end) = end {
            assert_eq!(text, without_dots(&bytes[..end - 3]), "it says something else");
        }
        rewrite(&text);
    }
}

fn has_bare_line_end(text: &[u8]) -> bool {
    let bare = |at: usize| match text[at] {
        b'\n' => at == 0 || text[at - 1] != b'\r',
        b'\r' => text.get(at + 1).is_some_and(|next| *next != b'\n'),
        _ => false,
    };
    (0..text.len()).any(bare)
}

/// A text without the dots that were added for the transport.
fn without_dots(sent: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(sent.len());
    let mut at_start = true;
    for byte in sent {
        if !(at_start && *byte == b'.') {
            text.push(*byte);
        }
        at_start = *byte == b'\n';
    }
    text
}

/// A header is rewritten the same however it is split into pieces. No `Bcc` is left, and the body is unchanged.
fn rewrite(text: &[u8]) {
    let additions = Additions {
        received: "Received: here\r\n".to_owned(),
        date: "Date: now\r\n".to_owned(),
        message_id: "Message-ID: <1@r.test>\r\n".to_owned(),
    };
    let rewritten = |pieces: usize| -> Result<Vec<u8>, HeaderFault> {
        let (mut rewriter, mut out) = (HeaderRewriter::new(additions.clone()), Vec::new());
        for piece in text.chunks(pieces) {
            rewriter.push(piece, &mut out)?;
        }
        rewriter.finish(&mut out)?;
        Ok(out)
    };
    let whole = rewritten(text.len().max(1));
    assert_eq!(whole, rewritten(7), "in pieces");
    let Ok(whole) = whole else { return };
    assert!(whole.starts_with(b"Received: here\r\n"));
    let body = whole.windows(4).position(|four| four == b"\r\n\r\n").map_or(whole.len(), |at| at + 2);
    let hidden = |line: &[u8]| line.len() > 3 && line[..4].eq_ignore_ascii_case(b"bcc:");
    assert!(!whole[..body].split(|byte| *byte == b'\n').any(hidden), "a hidden recipient is shown");
    assert!(text.ends_with(whole.get(body + 2..).unwrap_or_default()), "the body has changed");
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
                    check_transaction(&session);
                    check(&Step::Reply(session.admitted()));
                    receiving = Some(DataReceiver::new(500));
                    break;
                }
                Step::Reply(_) => break,
            };
        }
    }
}

/// What is announced can be passed on: no address could end a command of ours.
fn check_transaction(session: &Session) {
    let transaction = session.transaction().expect("a message is announced");
    let recipients = transaction.recipients();
    assert!((1..=3).contains(&recipients.len()));
    let addresses = recipients.iter().map(|recipient| (&recipient.address, &recipient.domain));
    let sender = transaction.sender().map(|sender| (&sender.text, &sender.domain));
    for (address, domain) in addresses.chain(sender) {
        assert!(!address.contains(char::is_control) && address.contains('@'), "{address:?}");
        assert!(!domain.is_empty() && domain.is_ascii(), "{domain:?}");
        assert!(transaction.utf8() || address.is_ascii(), "{address:?}");
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
