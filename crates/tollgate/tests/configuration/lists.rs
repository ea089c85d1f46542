//! The blocklist, the allowlist and bans in the configuration: their meaning, and the exact message for every
//! error.

use tollgate::config::{self, Config, Format};
use tollgate_core::{Author, Stance, Timestamp};

fn load(text: &str, format: Format) -> Result<Config, String> {
    let source = if format == Format::Yaml { "t.yaml" } else { "t.toml" };
    config::load_str(text, format, source, std::iter::empty()).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    load(text, Format::Yaml).map(|_| ()).expect_err(text)
}

/// Every entry as text.
fn listed(config: &Config) -> Vec<String> {
    let shown = |listing: &std::sync::Arc<tollgate_core::Listing>| {
        assert_eq!((listing.since, &listing.author), (Timestamp::ZERO, &Author::Configuration));
        let until = listing.until.map_or_else(String::new, |until| format!(" until {}", until.as_micros()));
        let public = if listing.show_reason { " public" } else { "" };
        format!("{} {}{until} {:?}{public}", listing.stance.name(), listing.target, listing.reason)
    };
    config.policies.roster().listings().iter().map(shown).collect()
}

const YAML: &str = "
fields: { device: text, peer: ip }
blocklist:
  - 203.0.113.0/24
  - peer=::ffff:198.51.100.7
  - sender=Bob@Example.COM
  - { target: 'user=a,ip=2001:db8::1', reason: both, public: true }
  - { target: device=d1, until: '2027-01-31T12:00:00Z' }
allowlist:
  - 203.0.113.7
  - { target: 2001:db8::/32, reason: us }
rules:
  user: { by: [user, ip], limits: 5/s, ban: after 100 denials in 10m ban 1h up to 24h }
  sender: { by: sender, limits: 5/s }
policies: { p: [user] }
";

const TOML: &str = "
blocklist = [
  '203.0.113.0/24', 'peer=::ffff:198.51.100.7', 'sender=Bob@Example.COM',
  { target = 'user=a,ip=2001:db8::1', reason = 'both', public = true },
  { target = 'device=d1', until = '2027-01-31T12:00:00Z' },
]
allowlist = ['203.0.113.7', { target = '2001:db8::/32', reason = 'us' }]
[fields]
device = 'text'
peer = 'ip'
[rules.user]
by = ['user', 'ip']
limits = '5/s'
ban = 'after 100 denials in 10m ban 1h up to 24h'
[rules.sender]
by = 'sender'
limits = '5/s'
[policies]
p = ['user']
";

#[test]
fn lists_and_bans_mean_the_same_in_yaml_and_toml() {
    for (text, format) in [(YAML, Format::Yaml), (TOML, Format::Toml)] {
        let config = load(text, format).unwrap_or_else(|error| panic!("{error}"));
        let expected = [
            "block 203.0.113.0/24 \"\"",
            "block 198.51.100.7 \"\"",
            "block sender=bob@example.com \"\"",
            "block ip=2001:db8::/64,user=a \"both\" public",
            "block device=d1 until 1801396800000000 \"\"",
            "allow 203.0.113.7 \"\"",
            "allow 2001:db8::/32 \"us\"",
        ];
        assert_eq!(listed(&config), expected);
        let ban = config.policies.rule("user").and_then(|rule| rule.ban).expect("it bans");
        assert_eq!(ban.to_string(), "after 100 denials in 10m ban 1h up to 1d");
        let roster = config.policies.roster();
        for (field, known) in
            [("ip", true), ("peer", true), ("device", true), ("sender", true), ("tenant", false)]
        {
            assert_eq!(roster.knows(field).is_some(), known, "{field}");
        }
    }
}

#[test]
fn a_mistake_in_a_target_is_shown_at_its_place_with_a_correction() {
    let table = [
        (
            "blocklist:\n  - 203.0.113.7\n  - 203.0.113.7/24\n",
            "t.yaml:3:5: blocklist[1]: bits are set beyond /24: write `203.0.113.0/24` for the network, or `203.0.113.7`
    203.0.113.7/24
                ^",
        ),
        (
            "allowlist:\n  - { reason: us, target: 2001:db8::/129 }\n",
            "t.yaml:2:27: allowlist[0].target: the prefix of an IPv6 network is 0 to 128 bits: write it as in `203.0.113.7`, `203.0.113.0/24` or `2001:db8::/32`
    2001:db8::/129
               ^",
        ),
        (
            "blocklist: [bob]",
            "t.yaml:1:13: blocklist[0]: this is neither an address nor a field: write an address, a network, or a field and its value, as in `user=bob`
    bob
    ^",
        ),
        (
            "blocklist: [{ target: 10.0.0.1, until: tomorrow }]",
            "t.yaml:1:40: blocklist[0].until: `tomorrow` is not a time: write it as in `2027-01-31T12:00:00Z`",
        ),
        (
            "blocklist: [{ target: 10.0.0.1, public: true }]",
            "t.yaml:1:41: blocklist[0].public: `public` needs a `reason`",
        ),
        (
            "blocklist: [{ target: 10.0.0.1, reason: \"a\\nb\" }]",
            "t.yaml:1:41: blocklist[0].reason: the reason is one line of text",
        ),
        (
            "blocklist: [10.0.0.0/8, { target: ip=10.0.0.0/8 }]\nallowlist: ['::ffff:10.0.0.0/104']",
            "t.yaml:1:35: blocklist[1].target: `10.0.0.0/8` is in the blocklist already
t.yaml:2:13: allowlist[0]: `10.0.0.0/8` is in the blocklist already",
        ),
        (
            "blocklist: [usr=bob]\nrules: { a: { by: user, limits: 5/s } }",
            "t.yaml:1:13: blocklist[0]: no rule uses the field `usr`, and `fields` does not declare it; did you mean `user`?",
        ),
        (
            "blocklist: [key=k]\nrules: { a: { by: key, secret: true, limits: 5/s } }",
            "t.yaml:1:13: blocklist[0]: the keys of rule `a` are secret, and the lists are not: the rule may say `secret: false`",
        ),
        (
            "blocklist: [7]",
            "t.yaml:1:13: blocklist[0]: expected a target or a mapping, as in `203.0.113.0/24` or `{ target: user=bob, reason: spam }`, found `7`",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refusal(text), expected, "for:\n{text}");
    }
}

#[test]
fn a_rule_that_could_not_ban_is_refused() {
    let table = [
        (
            "rules: { a: { by: ip, limits: 5/s, ban: after 5 denials in 1m } }",
            "t.yaml:1:41: rules.a.ban: expected `ban`, as in `after 100 denials in 10m ban 1h`
    after 5 denials in 1m
                         ^",
        ),
        (
            "rules: { a: { limits: 5/s, ban: after 5 denials in 1m ban 1h } }",
            "t.yaml:1:33: rules.a.ban: without `by` the rule has one key, so a ban would block all clients",
        ),
        (
            "rules: { a: { by: ip, limits: 5/s, on_exceed: observe, ban: after 5 denials in 1m ban 1h } }",
            "t.yaml:1:61: rules.a.ban: a rule that only observes denies no attempt, so it cannot ban",
        ),
        (
            "rules: { a: { by: key, limits: 5/s, secret: true, ban: after 5 denials in 1m ban 1h } }",
            "t.yaml:1:56: rules.a.ban: the keys of the rule are secret, but the lists show who is banned",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refusal(text), expected, "for:\n{text}");
    }
}

#[test]
fn a_hundred_thousand_entries_are_read_and_only_some_mistakes_are_listed() {
    let entries = |bad: bool| -> String {
        let entry = |number: u32| {
            format!(
                "- 10.{}.{}.{}{}\n",
                number >> 16,
                number >> 8 & 255,
                number & 255,
                if bad { "/8" } else { "" }
            )
        };
        (1..100_001).map(entry).collect()
    };
    let config = load(&format!("blocklist:\n{}", entries(false)), Format::Yaml)
        .unwrap_or_else(|error| panic!("{error}"));
    let roster = config.policies.roster();
    assert_eq!(roster.listings().len(), 100_000);
    assert!(roster.listings().iter().all(|listing| listing.stance == Stance::Block));
    let refused = refusal(&format!("blocklist:\n{}", entries(true)));
    assert!(refused.ends_with("and 99950 more"), "{}", refused.lines().last().unwrap_or_default());
}
