//! One mailbox has one count in every spelling of its address, and an invalid address has none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Server};
use serde_json::{Value, json};

const CONFIG: &str = "
store: memory
rules:
  sender: { by: sender, limits: 2/hour }
  recipient_domain: { by: recipient_domain, limits: 2/hour }
policies:
  send: [sender]
  deliver: [recipient_domain]
";

/// The mailbox `ünal.x@bücher.example`.
const SPELLINGS: [&str; 18] = [
    "ünal.x@bücher.example",
    "ÜNAL.X@BÜCHER.EXAMPLE",
    "u\u{308}nal.x@bu\u{308}cher.example",
    "U\u{308}nal.x@bücher.example",
    "<ünal.x@bücher.example>",
    "ünal.x@bücher.example.",
    "ünal.x@bücher。example",
    "ünal.x@xn--bcher-kva.example",
    "ünal.x@XN--BCHER-KVA.example",
    "\"ünal.x\"@bücher.example",
    "<\"ünal.x\"@bücher.example>",
    "\"ü\\n\\al.x\"@bücher.example",
    "\"ünal\\.x\"@bücher.example",
    "\"u\u{308}nal.\\x\"@bücher.example",
    "\"Ünal.X\"@xn--bcher-kva.example.",
    "\"\u{fc}\\n\\a\\l\\.\\x\"@bücher.example",
    "ünal.x@ｂücher.example",
    "ünal.x@bücher．example",
];

/// Invalid addresses that other programs may take for the same mailbox.
const MALFORMED: [&str; 16] = [
    " ünal.x@bücher.example",
    "ünal.x@bücher.example ",
    "ünal.x @bücher.example",
    "ünal.x@ bücher.example",
    "ünal.x\t@bücher.example",
    "ünal.x\0@bücher.example",
    "ünal.x@bücher.example\0",
    "ünal.x@bücher.example\r\n",
    "ünal.x\r\n@bücher.example",
    "ünal..x@bücher.example",
    "ünal.x@bücher..example",
    "ünal.x@bücher.example..",
    "\"ünal.x@bücher.example",
    "<ünal.x@bücher.example",
    "ü\u{200b}nal.x@bücher.example",
    "Ünal <ünal.x@bücher.example>",
];

fn check(server: &Server, policy: &str, field: &str, value: &str) -> (u16, Value) {
    let reply = server.post("/api/v1/check", &json!({ "policy": policy, "fields": { field: value } }));
    (reply.status, reply.json())
}

#[test]
fn all_spellings_of_a_mailbox_share_one_limit() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let admitted = SPELLINGS.iter().filter(|spelt| check(&server, "send", "sender", spelt).0 == 200).count();
    assert_eq!(admitted, 2);
    for spelt in MALFORMED {
        let (status, problem) = check(&server, "send", "sender", spelt);
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            status == 400 && detail.starts_with("the value of `sender` is not a mail address: "),
            "{spelt:?}: {status} {detail}"
        );
    }
    assert_eq!(server.remaining("sender", "%22%C3%BCnal.x%22@xn--bcher-kva.example"), 0);
    for null in ["", "<>", "<>", "<>"] {
        assert_eq!(
            check(&server, "send", "sender", null).0,
            200,
            "the rule does not apply to the null sender"
        );
    }
}

#[test]
fn all_spellings_of_a_domain_share_one_limit() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let spellings = [
        "bücher.example",
        "BÜCHER.example.",
        "bu\u{308}cher.example",
        "xn--bcher-kva.example",
        "bücher。example。",
    ];
    let field = "recipient_domain";
    let admitted = spellings.iter().filter(|spelt| check(&server, "deliver", field, spelt).0 == 200).count();
    assert_eq!(admitted, 2);
    for spelt in
        ["bücher.example..", " bücher.example", "bücher.example\0", "bücher\t.example", "bücher.example\r\n"]
    {
        let (status, problem) = check(&server, "deliver", field, spelt);
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            status == 400 && detail.starts_with("the value of `recipient_domain` is not a domain: "),
            "{spelt:?}: {status} {detail}"
        );
    }
}

#[test]
fn a_malformed_address_is_refused_wherever_a_key_is_named() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let reply =
        server.ask("PUT", "/api/v1/counters/sender/%20a@b.example", Some(&json!({ "limits": ["1/hour"] })));
    assert_eq!(reply.status, 400, "{}", reply.text());
    let reply = server.post("/api/v1/bans", &json!({ "target": "sender=a @b.example" }));
    assert_eq!(reply.status, 400, "{}", reply.text());
    let bad = Home::with(
        &CONFIG.replace("limits: 2/hour }\n  rec", "limits: 2/hour, overrides: { 'a b@c': 1/hour } }\n  rec"),
    );
    let said = String::from_utf8(bad.refused().stderr).unwrap();
    assert!(said.contains("`a b@c` is not a key: the value of `sender` is not a mail address"), "{said}");
}
