//! One normal form for each path, and a refusal of paths that two servers could read differently.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::borrow::Cow;

use proptest::prelude::*;
use tollgate_web::path::{BadPath, normal};

#[test]
fn a_path_in_its_normal_form_is_borrowed() {
    for path in ["/", "/orders", "/orders/", "/a/b.c/d~e_f-g", "/a;v=1,2/b:c@d", "/!$&'()*+=", "/a../b..c"] {
        assert!(matches!(normal(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
    }
}

#[test]
fn spellings_of_one_path_become_one() {
    for (raw, wanted) in [
        ("//", "/"),
        ("/%6Frders", "/orders"),
        ("/or%64ers/%7e", "/orders/~"),
        ("/a%c3%a9", "/a%C3%A9"),
        ("/aé", "/a%C3%A9"),
        ("/a//b///c", "/a/b/c"),
        ("/a/./b", "/a/b"),
        ("/a/b/..", "/a/"),
        ("/a/b/../", "/a/"),
        ("/a/.", "/a/"),
        ("/a/b/../../c", "/c"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/a//../b", "/b"),
        ("/.well-known/acme", "/.well-known/acme"),
        ("/...", "/..."),
        ("/.a", "/.a"),
        ("/a%20b%3f%23", "/a%20b%3F%23"),
        ("/a%21", "/a%21"),
        ("/%252e%252e/a", "/%252e%252e/a"),
        ("/%252F", "/%252F"),
        ("/{a}|\"<b>^`[c]", "/%7Ba%7D%7C%22%3Cb%3E%5E%60%5Bc%5D"),
    ] {
        assert_eq!(normal(raw).as_deref(), Ok(wanted), "{raw}");
    }
}

#[test]
fn an_ambiguous_path_is_refused() {
    let forbidden = |byte| BadPath::Forbidden { byte };
    for (raw, why) in [
        ("", BadPath::NotAbsolute),
        ("*", BadPath::NotAbsolute),
        ("orders", BadPath::NotAbsolute),
        ("http://a/b", BadPath::NotAbsolute),
        ("/a%2fb", BadPath::EncodedSlash),
        ("/a%2Fb", BadPath::EncodedSlash),
        ("/..%2f..%2fetc/passwd", BadPath::EncodedSlash),
        ("/a%5cb", BadPath::EncodedSlash),
        ("/a%5C..%5Cb", BadPath::EncodedSlash),
        ("/a\\b", forbidden(b'\\')),
        ("/a\0", forbidden(0)),
        ("/a%00.png", forbidden(0)),
        ("/a%0d%0aX-Evil:1", forbidden(b'\r')),
        ("/a\r\nHost: b", forbidden(b'\r')),
        ("/a\tb", forbidden(b'\t')),
        ("/a%7f", forbidden(0x7f)),
        ("/a b", forbidden(b' ')),
        ("/a?b", forbidden(b'?')),
        ("/a#b", forbidden(b'#')),
        ("/a%", BadPath::BadEscape),
        ("/a%2", BadPath::BadEscape),
        ("/a%zz", BadPath::BadEscape),
        ("/a%u002f", BadPath::BadEscape),
        ("/%%32%65", BadPath::BadEscape),
        ("/a%+1", BadPath::BadEscape),
        ("/..", BadPath::AboveRoot),
        ("/../a", BadPath::AboveRoot),
        ("/a/../../b", BadPath::AboveRoot),
        ("/%2e%2e/a", BadPath::AboveRoot),
        ("/a//../../b", BadPath::AboveRoot),
        ("/a/..;/b", BadPath::DottedParameters),
        ("/a/..;x=1/b", BadPath::DottedParameters),
        ("/a/.;/b", BadPath::DottedParameters),
        ("/a/%2e%2e;/b", BadPath::DottedParameters),
        ("/a/..%3bx/b", BadPath::DottedParameters),
        ("/a/..%3B;x/b", BadPath::DottedParameters),
        ("/%c0%ae%c0%ae/a", BadPath::NotUtf8),
        ("/a%c0%afb", BadPath::NotUtf8),
        ("/a%e0%80%afb", BadPath::NotUtf8),
        ("/a%ff", BadPath::NotUtf8),
    ] {
        assert_eq!(normal(raw), Err(why), "{raw}");
        assert!(!why.to_string().is_empty());
    }
}

/// Paths of significant pieces, and of arbitrary text.
fn paths() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "/", "//", ".", "..", "/.", "/..", "%2e", "%2E", "%2f", "%5c", "%25", "%61", "%c3%a9", "%3b",
            ";", "a", "B", "~", "é", "%", "\\",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,3}",
        "\\PC{0,2}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_normal_form_is_its_own(raw in paths()) {
        if let Ok(once) = normal(&raw) {
            prop_assert_eq!(normal(&once), Ok(once.as_ref().into()));
        }
    }

    #[test]
    fn a_normal_form_is_plain(raw in paths()) {
        let Ok(path) = normal(&raw) else { return Ok(()) };
        prop_assert!(path.starts_with('/'));
        prop_assert!(!path.contains("//"), "{}", path);
        prop_assert!(path.split('/').all(|segment| !matches!(segment, "." | "..")), "{}", path);
        prop_assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\?#\"<>".contains(&byte)), "{}", path);
        let mut rest = &*path;
        while let Some(at) = rest.find('%') {
            let digits = &rest[at + 1..at + 3];
            let byte = u8::from_str_radix(digits, 16).unwrap();
            prop_assert!(!digits.bytes().any(|digit| digit.is_ascii_lowercase()), "{}", path);
            prop_assert!(!byte.is_ascii_alphanumeric() && !b"-._~/\\".contains(&byte) && !byte.is_ascii_control());
            rest = &rest[at + 3..];
        }
    }

    #[test]
    fn how_letters_are_encoded_does_not_matter(
        segments in prop::collection::vec("[a-z0-9._~-]{1,6}", 1..5), mask: u64, upper: bool,
    ) {
        let plain = format!("/{}", segments.join("/"));
        let spelled: String = plain.char_indices().map(|(at, c)| match (c, mask >> (at % 64) & 1, upper) {
            ('/', ..) | (_, 0, _) => c.to_string(),
            (_, _, true) => format!("%{:02X}", c as u32),
            (_, _, false) => format!("%{:02x}", c as u32),
        }).collect();
        prop_assert_eq!(normal(&spelled), normal(&plain));
    }

    #[test]
    fn nothing_climbs_above_where_it_began(raw in paths(), prefix in "/[a-z]{1,4}") {
        // Below a directory, a path stays in it or is refused because it moves above it.
        if let Ok(path) = normal(&raw) {
            let inside = normal(&format!("{prefix}{raw}")).map(Cow::into_owned);
            prop_assert_eq!(inside, Ok(format!("{prefix}{path}")));
        }
    }
}
