//! The header of a message on its way in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use tollgate_relay::session::headers::{Additions, HeaderFault, HeaderRewriter};

fn additions() -> Additions {
    Additions {
        received: "Received: here\r\n".to_owned(),
        date: "Date: now\r\n".to_owned(),
        message_id: "Message-ID: <new>\r\n".to_owned(),
    }
}

fn rewrite<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Result<Vec<u8>, HeaderFault> {
    let mut rewriter = HeaderRewriter::new(additions());
    let mut out = Vec::new();
    for piece in pieces {
        rewriter.push(piece, &mut out)?;
    }
    rewriter.finish(&mut out)?;
    Ok(out)
}

fn text(input: &str) -> String {
    String::from_utf8(rewrite([input.as_bytes()]).unwrap()).unwrap()
}

#[test]
fn missing_fields_are_added_and_present_ones_stay() {
    assert_eq!(
        text("Subject: a\r\n\r\nbody\r\n"),
        "Received: here\r\nSubject: a\r\nDate: now\r\nMessage-ID: <new>\r\n\r\nbody\r\n"
    );
    let complete = "date: then\r\nMESSAGE-id : <old>\r\nReceived: there\r\n\r\nDate: in the body\r\n";
    assert_eq!(text(complete), format!("Received: here\r\n{complete}"));
}

#[test]
fn bcc_is_removed_with_its_continuation_lines() {
    let sent = "Date: d\r\nBcc: a@x.test,\r\n\tb@x.test,\r\n c@x.test\r\nMessage-ID: <m>\r\nresent-BCC: d@x.test\r\nbcc:\r\n\r\nBcc: body\r\n";
    assert_eq!(text(sent), "Received: here\r\nDate: d\r\nMessage-ID: <m>\r\n\r\nBcc: body\r\n");
}

#[test]
fn a_text_without_a_header_becomes_a_body() {
    let added = "Received: here\r\nDate: now\r\nMessage-ID: <new>\r\n\r\n";
    assert_eq!(text("just text\r\n"), format!("{added}just text\r\n"));
    assert_eq!(text(" indented\r\n"), format!("{added} indented\r\n"));
    assert_eq!(text("\r\nbody\r\n"), format!("{added}body\r\n"));
    assert_eq!(text(""), added);
    let broken = "Subject: a\r\nno colon here \r\nBcc: x@x.test\r\n";
    let expected = "Received: here\r\nSubject: a\r\nDate: now\r\nMessage-ID: <new>\r\n\r\nno colon here \r\nBcc: x@x.test\r\n";
    assert_eq!(text(broken), expected);
}

#[test]
fn a_header_that_ends_the_message_is_complete() {
    assert_eq!(
        text("Subject: a\r\n"),
        "Received: here\r\nSubject: a\r\nDate: now\r\nMessage-ID: <new>\r\n\r\n"
    );
}

#[test]
fn loops_and_endless_headers_are_found() {
    let hops = |count: usize| format!("{}\r\nbody\r\n", "Received: x\r\n\tby y\r\n".repeat(count));
    assert!(rewrite([hops(HeaderRewriter::MOST_HOPS).as_bytes()]).is_ok());
    assert_eq!(rewrite([hops(HeaderRewriter::MOST_HOPS + 1).as_bytes()]), Err(HeaderFault::Loop));
    let endless = "X: y\r\n".repeat(HeaderRewriter::MOST_BYTES / 6 + 1);
    assert_eq!(rewrite(endless.as_bytes().chunks(1_000)), Err(HeaderFault::TooLarge));
    let one_line = vec![b'x'; HeaderRewriter::MOST_BYTES + 1];
    assert_eq!(rewrite(one_line.chunks(1_000)), Err(HeaderFault::TooLarge));
}

proptest! {
    #[test]
    fn any_split_into_pieces_gives_the_same(
        lines in proptest::collection::vec(prop_oneof![
            Just("Subject: a\r\n"), Just(" more\r\n"), Just("Bcc: b\r\n"), Just("\r\n"), Just("text\r\n"), Just("Date: d\r\n"),
        ], 0..12),
        size in 1..20_usize,
    ) {
        let input = lines.concat();
        prop_assert_eq!(rewrite(input.as_bytes().chunks(size)), rewrite([input.as_bytes()]));
    }
}
