//! Texts are rewritten for servers that take 7 bits alone, and damage nothing.

use data_encoding::BASE64;
use mail_parser::{MessageParser, PartType};
use proptest::prelude::*;

use super::*;

fn text(bytes: &[u8]) -> Text {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    let reader = Box::new(io::Cursor::new(bytes.to_vec()));
    Text { bytes: reader, size: bytes.len() as u64, checksum: hasher.finish() }
}

fn converted(bytes: &[u8]) -> Vec<u8> {
    let mut new = convert(|| Ok(text(bytes))).unwrap();
    let mut out = Vec::new();
    new.bytes.read_to_end(&mut out).unwrap();
    let expected = text(&out);
    assert_eq!((new.size, new.checksum), (expected.size, expected.checksum));
    assert!(out.split(|byte| *byte == b'\n').all(|line| line.len() <= 998));
    out
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8(converted(bytes)).unwrap()
}

#[test]
fn a_plain_text_becomes_quoted_printable() {
    let text = "Subject: x\r\n\r\nGrüße = \r\n.\r\nlast";
    assert_eq!(
        shown(text.as_bytes()),
        "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nSubject: x\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe =3D=20\r\n.\r\nlast"
    );
    let latin = b"MIME-Version: 1.0\r\nContent-Type: text/plain;\r\n charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\nsch\xf6n\r\n";
    assert_eq!(
        shown(latin),
        "MIME-Version: 1.0\r\nContent-Type: text/plain;\r\n charset=iso-8859-1\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\nsch=F6n\r\n"
    );
    let long = format!("A: b\r\n\r\n{}\r\n", "ü".repeat(5_000));
    assert!(shown(long.as_bytes()).lines().all(|line| line.len() <= 76));
}

#[test]
fn only_the_parts_that_need_it_are_encoded() {
    let text = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"a b\"\r\n\
        Content-Transfer-Encoding: 8bit\r\n\r\npreamble\r\n--a b\r\n\r\nplain\r\n\
        --a b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n<p>schön</p>\r\n\
        --a b\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: 8bit\r\n\r\nä\r\nö\r\n\
        --a b\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n\
        --a b\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: inner\r\n\r\nüber\r\n\
        --a b--\r\nepilogue\r\n";
    let binary = BASE64.encode("ä\r\nö".as_bytes());
    let expected = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"a b\"\r\n\
        Content-Transfer-Encoding: 7bit\r\n\r\npreamble\r\n--a b\r\n\r\nplain\r\n\
        --a b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p>sch=C3=B6n</p>\r\n\
        --a b\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n{binary}\r\n\
        --a b\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n\
        --a b\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 7bit\r\n\r\n\
        Content-Type: text/plain; charset=utf-8\r\nSubject: inner\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=C3=BCber\r\n\
        --a b--\r\nepilogue\r\n"
    );
    assert_eq!(shown(text.as_bytes()), expected);
}

#[test]
fn a_damaged_text_is_not_converted() {
    let open = || Ok(Text { checksum: 1, ..text("A: b\r\n\r\nü\r\n".as_bytes()) });
    assert!(convert(open).is_err());
}

proptest! {
    #[test]
    fn a_reader_of_mime_gets_the_same_body(body in "[\\x09 -~äöüß€]{1,300}(\r\n[ -~ä]{0,100}){0,5}") {
        let text = format!("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{body}\r\n");
        let out = converted(text.as_bytes());
        prop_assert!(out.is_ascii());
        let parsed = MessageParser::default().parse(&out).unwrap();
        let PartType::Text(read) = &parsed.parts[0].body else { panic!("a text") };
        let lines = |text: &str| text.replace("\r\n", "\n").trim_end_matches('\n').to_owned();
        prop_assert_eq!(lines(read), lines(&body));
    }

    #[test]
    fn any_bytes_become_a_text_of_the_stated_size(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let mut new = convert(|| Ok(text(&bytes))).unwrap();
        let mut out = Vec::new();
        new.bytes.read_to_end(&mut out).unwrap();
        prop_assert_eq!(out.len() as u64, new.size);
    }
}
