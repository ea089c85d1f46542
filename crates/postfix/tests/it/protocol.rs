//! The protocol without I/O: whatever comes, in whatever pieces, each request is found once and where it ends.

use proptest::prelude::*;
use tollgate_postfix::{MOST_ATTRIBUTES, MOST_LINE, MOST_REQUEST, Malformed, Request, Requests};

const GOOD: &str = "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nhelo_name=client.test\n\
    queue_id=\nsender=a@here.test\nrecipient=b@there.test\nrecipient_count=0\nclient_address=192.0.2.7\n\
    client_name=unknown\nreverse_client_name=unknown\ninstance=1f.6a.2b.0\nsasl_method=\nsasl_username=\nsize=1234\n\
    stress=\npolicy_context=submission\nserver_port=587\n\n";

/// What a connection makes of bytes that come in these pieces. It stops at the first mistake.
fn results<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Vec<Result<String, Malformed>> {
    let (mut requests, mut results) = (Requests::default(), Vec::new());
    for piece in pieces {
        requests.buffer().extend_from_slice(piece);
        while let Some(result) = requests.next() {
            let is_over = result.is_err();
            results.push(result.map(|request| format!("{request:?}")));
            if is_over {
                return results;
            }
        }
    }
    results
}

fn one(text: &str) -> Result<String, Malformed> {
    let mut all = results([text.as_bytes()].into_iter());
    assert_eq!(all.len(), 1, "{text:?}");
    all.remove(0)
}

#[test]
fn a_request_has_the_attributes_that_the_door_uses() {
    let lines = GOOD.as_bytes().strip_suffix(b"\n").unwrap();
    let request = Request::parse(lines).unwrap();
    assert_eq!(request.protocol_state, b"RCPT");
    assert_eq!((request.sender, request.recipient), (&b"a@here.test"[..], &b"b@there.test"[..]));
    assert_eq!((request.client_address, request.size), (&b"192.0.2.7"[..], &b"1234"[..]));
    assert_eq!((request.policy_context, request.server_port), (&b"submission"[..], &b"587"[..]));
    assert_eq!((request.sasl_username, request.queue_id), (&b""[..], &b""[..]));
}

#[test]
fn order_and_unknown_attributes_do_not_matter_and_the_first_of_two_values_counts() {
    let mut lines: Vec<&str> = GOOD.trim_end().lines().collect();
    lines.reverse();
    lines.push("tls_sni=x");
    lines.push("sender=second@here.test");
    assert_eq!(one(&format!("{}\n\n", lines.join("\n"))), one(GOOD));
}

#[test]
fn fifty_requests_in_one_piece_are_fifty_requests() {
    assert_eq!(results([GOOD.repeat(50).as_bytes()].into_iter()), vec![one(GOOD); 50]);
}

#[test]
fn byte_by_byte_is_the_same() {
    let text = GOOD.repeat(3);
    assert_eq!(results(text.as_bytes().chunks(1)), vec![one(GOOD); 3]);
}

#[test]
fn without_the_empty_line_there_is_no_request_yet() {
    let (mut requests, text) = (Requests::default(), GOOD.strip_suffix('\n').unwrap());
    requests.buffer().extend_from_slice(text.as_bytes());
    assert!(requests.next().is_none() && requests.is_partial());
    requests.buffer().push(b'\n');
    assert!(requests.next().is_some_and(|request| request.is_ok()));
    assert!(requests.next().is_none() && !requests.is_partial());
}

#[test]
fn every_mistake_has_its_name() {
    let many: String = "a=b\n".repeat(10_000);
    let few: String = (0..MOST_ATTRIBUTES).map(|number| format!("a{number}=b\n")).collect();
    let line = format!("{GOOD:.28}helo_name={}\n\n", "x".repeat(MOST_LINE));
    let long = format!("x={}\n", "x".repeat(1_000)).repeat(MOST_REQUEST / 1_000 + 1);
    for (text, expected) in [
        (format!("{GOOD:.28}{many}\n"), Malformed::TooManyAttributes),
        (format!("{GOOD:.28}{few}\n"), Malformed::TooManyAttributes),
        (line, Malformed::LineTooLong),
        (format!("{GOOD:.28}{long}\n"), Malformed::TooLong),
        (format!("{GOOD:.28}{long}"), Malformed::TooLong),
        ("x".repeat(MOST_REQUEST + 1), Malformed::TooLong),
        ("\n".to_owned(), Malformed::NotAPolicyRequest),
        ("sender=a@b\n\n".to_owned(), Malformed::NotAPolicyRequest),
        ("request=junk\n\n".to_owned(), Malformed::NotAPolicyRequest),
        (format!("{GOOD:.28}sender\n\n"), Malformed::NotAnAttribute),
        (format!("{GOOD:.28}=a\n\n"), Malformed::NotAnAttribute),
        (format!("{GOOD:.28}helo_name=a\0b\n\n"), Malformed::Nul),
        (format!("{GOOD:.28}size=-1\n\n"), Malformed::NotANumber { attribute: "size" }),
        (format!("{GOOD:.28}size=+1\n\n"), Malformed::NotANumber { attribute: "size" }),
        (
            format!("{GOOD:.28}recipient_count=9007199254740992\n\n"),
            Malformed::NotANumber { attribute: "recipient_count" },
        ),
    ] {
        assert_eq!(one(&text), Err(expected), "{:.60}", text);
    }
}

#[test]
fn values_may_look_like_answers() {
    let text = GOOD.replace("a@here.test", "action=OK").replace("client.test", "x=y=action=REJECT");
    assert!(one(&text).unwrap().contains("sender"), "{text}");
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'='), any::<u8>()], 0..400),
        at in 0_usize..800,
        size in 1_usize..50,
    ) {
        let mut text = GOOD.repeat(2).into_bytes();
        let at = at.min(text.len());
        text.splice(at..at, bytes);
        prop_assert_eq!(results([&*text].into_iter()), results(text.chunks(size)));
    }
}
