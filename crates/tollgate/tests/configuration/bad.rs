//! Invalid configurations, each with its exact error message.

use tollgate::config::{self, Format};

fn refusal(text: &str, format: Format) -> String {
    let source = if format == Format::Yaml { "t.yaml" } else { "t.toml" };
    let environment = [("SHORT", "0123456789abcde"), ("EMPTY", ""), ("LONG", "0123456789abcdef")];
    let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    match config::load_str(text, format, source, environment) {
        Ok(_) => panic!("this must be refused:\n{text}"),
        Err(error) => error.to_string(),
    }
}

fn check(format: Format, table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(refusal(text, format), *expected, "for:\n{text}");
    }
}

fn check_yaml(table: &[(&str, &str)]) {
    check(Format::Yaml, table);
}

#[test]
fn keys_of_secret_rules_stay_out_of_every_problem() {
    for overrides in ["{ hush-hush: 5/fortnight }", "{ hush-hush: 1/s, 'hush-hush ': [1/s, 2/s] }"] {
        let text =
            format!("rules: {{ a: {{ by: api_key, secret: true, limits: 1/s, overrides: {overrides} }} }}");
        let error =
            config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap_err().to_string();
        assert!(error.contains("rules.a.overrides.***") && !error.contains("hush-hush"), "{error}");
    }
    let misfit = "rules: { a: { by: ip, secret: true, limits: 1/s, overrides: { hush-hush: 1/s } } }";
    let error = config::load_str(misfit, Format::Yaml, "t.yaml", std::iter::empty()).unwrap_err().to_string();
    assert!(error.contains("***") && !error.contains("hush-hush"), "{error}");
}

#[test]
fn a_code_that_is_none_is_refused_where_it_stands() {
    let long = "x".repeat(65);
    for (code, place, problem) in [
        ("''", "1:21", "the code is empty"),
        ("MAX DEALS", "1:21", "` ` cannot be part of a code: codes are made of `A-Z a-z 0-9 _ . -`"),
        (&*long, "1:21", "the code has 65 characters: at most 64 are allowed"),
    ] {
        let text = format!("rules: {{ a: {{ code: {code}, limits: 1/s }} }}");
        let error = refusal(&text, Format::Yaml);
        assert_eq!(error, format!("t.yaml:{place}: rules.a.code: {problem}"));
    }
}

#[test]
fn invalid_yaml_is_refused_at_its_position() {
    check_yaml(&[
        ("a: [1, 2", "t.yaml:1:4: not valid YAML: unclosed bracket '['"),
        ("rules:\n  a: b: c\n", "t.yaml:2:7: not valid YAML: mapping values are not allowed in this context"),
        ("log: {}\nlog: {}\n", "t.yaml:2:1: not valid YAML: duplicate mapping key: log not allowed here"),
        ("a: *b\n", "t.yaml:1:4: not valid YAML: reference to unknown value"),
    ]);
}

#[test]
fn invalid_toml_is_refused_at_every_mistake() {
    check(
        Format::Toml,
        &[
            ("a = ", "t.toml:1:5: not valid TOML: string values must be quoted, expected literal string"),
            ("[log]\nlevel = \"info\"\n[log]\n", "t.toml:3:2: not valid TOML: duplicate key"),
            (
                "x = 1 2\ny = [1\n",
                "t.toml:1:5: not valid TOML: string values must be quoted, expected literal string
t.toml:2:7: not valid TOML: unclosed array, expected `]`",
            ),
        ],
    );
}

#[test]
fn unknown_keys_are_refused_with_the_near_name() {
    check_yaml(&[
        ("rulez: {}", "t.yaml:1:1: rulez: unknown key `rulez`; did you mean `rules`?"),
        (
            "rules:\nclient: { by: ip, limits: 5/s }\n",
            "t.yaml:2:1: client: unknown key `client`; did you mean `clients`, or is it a rule, to be indented below `rules`?",
        ),
        (
            "policies:\napi: [client]\n",
            "t.yaml:2:1: api: unknown key `api`; the keys here are `enabled`, `listen`, `keys`, `store`, `log`, `drain`, `clients`, `denials`, `journal`, `answers`, `gateway`, `relay`, `postfix`, `on_outage`, `databases`, `fields`, `rules`, `blocklist`, `allowlist`, `policies`, `guards`; is it a policy, to be indented below `policies`?",
        ),
        ("log: { lvl: info }", "t.yaml:1:8: log.lvl: unknown key `lvl`; did you mean `level`?"),
        (
            "listen: { port: 80 }",
            "t.yaml:1:11: listen.port: unknown key `port`; the keys here are `http`, `unencrypted`, `postfix`",
        ),
        (
            "rules:\n  a:\n    limits: 5/s\n    override: { x: 1/s }\n",
            "t.yaml:4:5: rules.a.override: unknown key `override`; did you mean `overrides`?",
        ),
        (
            "rules: { a: { limits: 5/s, on_exceed: { defer: { alined: true } } } }",
            "t.yaml:1:50: rules.a.on_exceed.defer.alined: unknown key `alined`; did you mean `aligned`?",
        ),
    ]);
    check(
        Format::Toml,
        &[(
            "[rules.a]\nlimits = '5/s'\nsecrit = true\n",
            "t.toml:3:1: rules.a.secrit: unknown key `secrit`; did you mean `secret`?",
        )],
    );
}

#[test]
fn values_of_the_wrong_kind_are_refused_with_what_belongs_there() {
    check_yaml(&[
        ("[1, 2]", "t.yaml:1:1: expected a mapping of settings, found a list"),
        (
            "listen: [127.0.0.1:80]",
            "t.yaml:1:9: listen: expected a mapping, as in `{ http: 127.0.0.1:8080 }`, found a list",
        ),
        ("just words", "t.yaml:1:1: expected a mapping of settings, found `just words`"),
        ("enabled: maybe", "t.yaml:1:10: enabled: expected `true` or `false`, found `maybe`"),
        ("rules: [a]", "t.yaml:1:8: rules: expected a mapping with a name for each entry, found a list"),
        (
            "rules: { a: 5/s }",
            "t.yaml:1:13: rules.a: expected a mapping, as in `{ by: ip, limits: [10/s burst 50] }`, found `5/s`",
        ),
        (
            "rules: { a: { limits: [5/s, 2.5, [1/s]] } }",
            "t.yaml:1:29: rules.a.limits[1]: expected a limit, as in `100/hour`, found `2.5`
t.yaml:1:34: rules.a.limits[2]: expected a limit, as in `100/hour`, found a list",
        ),
        (
            "rules: { a: { by: 5, limits: 5/s } }",
            "t.yaml:1:19: rules.a.by: expected a field or a list of fields, as in `[user, ip]`, found `5`",
        ),
        (
            "policies: { p: a }",
            "t.yaml:1:16: policies.p: expected a list of rules or a mapping, as in `{ rules: [login] }`, found `a`",
        ),
        ("policies: { p: { allow_unmatched: true } }", "t.yaml:1:16: policies.p: the key `rules` is missing"),
        (
            "store: { memory: { max_keys: -1 } }",
            "t.yaml:1:30: store.memory.max_keys: expected a whole number from 0 to 18446744073709551615, found `-1`",
        ),
        (
            "store: { memory: { max_keys: 99999999999999999999 } }",
            "t.yaml:1:30: store.memory.max_keys: expected a whole number from 0 to 18446744073709551615, found `100000000000000000000`",
        ),
        (
            "log: { format: xml, level: inf }",
            "t.yaml:1:16: log.format: `xml` is none of `pretty`, `json`
t.yaml:1:28: log.level: `inf` is none of `error`, `warn`, `info`, `debug`, `trace`; did you mean `info`?",
        ),
    ]);
}

#[test]
fn limits_are_refused_at_the_character_where_they_go_wrong() {
    check_yaml(&[
        (
            "rules:\n  a:\n    limits: [5/s, 1000/fortnight]\n",
            "t.yaml:3:19: rules.a.limits[1]: a period is `s`, `min`, `hour`, `day`, `week`, `month` or a duration such as `15m`
    1000/fortnight
         ^",
        ),
        (
            "rules: { a: { limits: 10r/s } }",
            "t.yaml:1:23: rules.a.limits: write `10/s burst 1`
    10r/s
      ^",
        ),
        (
            "rules: { a: { limits: 5 } }",
            "t.yaml:1:23: rules.a.limits: the number needs to say how it is counted: `/hour`, `at once`, `in total`
    5
     ^",
        ),
        (
            "rules: { a: { limits: 5/s burst 0 } }",
            "t.yaml:1:23: rules.a.limits: a bucket with no room admits nothing: the burst is at least 1
    5/s burst 0
              ^",
        ),
        (
            "rules: { a: { by: ip, limits: 0, overrides: { 10.0.0.1: many } } }",
            "t.yaml:1:57: rules.a.overrides.\"10.0.0.1\": a limit starts with a number, as in `100/hour`, or is `unlimited`
    many
    ^",
        ),
        (
            "rules: { a: { limits: 5/s, on_exceed: wait 5 parsecs } }",
            "t.yaml:1:39: rules.a.on_exceed: the units of a duration are `us ms s m h d w`
    wait 5 parsecs
          ^",
        ),
        (
            "store: { file: a, flush_interval: 10 }",
            "t.yaml:1:35: store.flush_interval: the units of a duration are `us ms s m h d w`
    10
      ^",
        ),
    ]);
}

#[test]
fn time_zones_are_those_of_the_database() {
    check_yaml(&[
        (
            "rules: { a: { limits: 5/day calendar in Europe/Berln } }",
            "t.yaml:1:23: rules.a.limits: there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?
    5/day calendar in Europe/Berln
                      ^",
        ),
        (
            "rules: { a: { limits: 5/day calendar in europe/berlin } }",
            "t.yaml:1:23: rules.a.limits: this time zone is spelled `Europe/Berlin`
    5/day calendar in europe/berlin
                      ^",
        ),
        (
            "rules: { a: { limits: 5/day calendar in Nowhere/Whatsoever } }",
            "t.yaml:1:23: rules.a.limits: there is no time zone `Nowhere/Whatsoever`
    5/day calendar in Nowhere/Whatsoever
                      ^",
        ),
    ]);
}

#[test]
fn limits_that_cannot_stand_together_are_refused() {
    let nine: Vec<String> = (1..=9).map(|minutes| format!("5/{minutes}m")).collect();
    check_yaml(&[
        (
            "rules: { a: { limits: [1/hour, 2/hour] } }",
            "t.yaml:1:23: rules.a.limits: `2/hour` is of the same kind and period as another limit here: keep one of them",
        ),
        (
            &format!("rules: {{ a: {{ limits: [{}] }} }}", nine.join(", ")),
            "t.yaml:1:23: rules.a.limits: 9 limits in one rule: at most 8 are allowed",
        ),
        (
            "rules: { a: { limits: [] } }",
            "t.yaml:1:23: rules.a.limits: an empty list: write `unlimited` if there is to be no limit",
        ),
        (
            "rules: { a: { by: ip } }",
            "t.yaml:1:10: rules.a: the rule has no `limits`: add them, as in `limits: 100/hour`, or `unlimited`",
        ),
    ]);
}

#[test]
fn names_are_short_and_plain() {
    let long = "n".repeat(65);
    check_yaml(&[
        (
            "rules: { Big: { limits: 0 } }",
            "t.yaml:1:10: rules.Big: `B` cannot be part of a name: names are made of `a-z 0-9 _ . -`",
        ),
        (
            "policies: { 'a b': [] }",
            "t.yaml:1:13: policies.\"a b\": ` ` cannot be part of a name: names are made of `a-z 0-9 _ . -`",
        ),
        ("rules: { '': { limits: 0 } }", "t.yaml:1:10: rules.\"\": the name is empty"),
        (
            &format!("policies: {{ {long}: [] }}"),
            &format!("t.yaml:1:13: policies.{long}: the name has 65 characters: at most 64 are allowed"),
        ),
    ]);
}

#[test]
fn policies_name_each_of_their_rules_once_and_rightly() {
    let many: Vec<String> = (0..17).map(|index| format!("r{index}")).collect();
    check_yaml(&[
        (
            "rules: { sender: { limits: 0 } }\npolicies: { p: [sendr, sender, sender] }",
            "t.yaml:2:17: policies.p[0]: there is no rule `sendr`; did you mean `sender`?
t.yaml:2:32: policies.p[2]: the rule `sender` is in this policy already",
        ),
        ("policies: { p: { rules: [x] } }", "t.yaml:1:26: policies.p.rules[0]: there is no rule `x`"),
        (
            &format!("policies: {{ p: [{}] }}", many.join(", ")),
            "t.yaml:1:16: policies.p: 17 rules in one policy: at most 16 are allowed",
        ),
    ]);
}

#[test]
fn a_rule_that_is_wrong_is_not_also_missing() {
    check_yaml(&[(
        "rules: { a: { limits: x } }\npolicies: { p: [a] }",
        "t.yaml:1:23: rules.a.limits: a limit starts with a number, as in `100/hour`, or is `unlimited`
    x
    ^",
    )]);
}

#[test]
fn keys_of_rules_are_made_of_few_plain_fields() {
    check_yaml(&[
        (
            "rules: { a: { by: [a, b, c, d, e], limits: 0 } }",
            "t.yaml:1:19: rules.a.by: 5 fields make a key: at most 4 are allowed",
        ),
        (
            "rules: { a: { by: [ip, ip], limits: 0 } }",
            "t.yaml:1:24: rules.a.by[1]: the field `ip` is written twice",
        ),
        (
            "rules: { a: { by: a b, limits: 0 } }",
            "t.yaml:1:19: rules.a.by: `a b` cannot name a field: use up to 64 of `A-Z a-z 0-9 _ . -`",
        ),
        (
            "fields: { a: txt, b: { ip: { v4: 33 } }, c: { ip: { v6: 129 } } }",
            "t.yaml:1:14: fields.a: `txt` is none of `text`, `ip`, `address`, `domain`; did you mean `text`?
t.yaml:1:34: fields.b.ip.v4: `33` is not a prefix: write 0 to 32 bits
t.yaml:1:57: fields.c.ip.v6: `129` is not a prefix: write 0 to 128 bits",
        ),
    ]);
}

#[test]
fn overrides_are_for_keys_that_the_rule_can_have() {
    check_yaml(&[
        (
            "rules: { a: { limits: 0, overrides: { b: 1/s } } }",
            "t.yaml:1:39: rules.a.overrides.b: `b` is not a key: without `by` the rule has one key, its own name `a`",
        ),
        (
            "rules: { a: { by: ip, limits: 0, overrides: { b: 1/s } } }",
            "t.yaml:1:47: rules.a.overrides.b: `b` is not a key: the field `ip` holds IPv4 or IPv6 addresses",
        ),
        (
            "rules: { a: { by: ip, limits: 0, overrides: { 10.0.0.0/8: 1/s, 2001:db8::/64: 1/s } } }",
            "t.yaml:1:47: rules.a.overrides.\"10.0.0.0/8\": `10.0.0.0/8` is a network, but the field `ip` is counted by /32",
        ),
        (
            "rules: { a: { by: [user, ip], limits: 0, overrides: { 'bob,2001:db8::/48': 1/s } } }",
            "t.yaml:1:55: rules.a.overrides.\"bob,2001:db8::/48\": `2001:db8::/48` is a network, but the field `ip` is counted by /64",
        ),
        (
            "rules: { a: { by: sender, limits: 0, overrides: { <>: 1/s } } }",
            "t.yaml:1:51: rules.a.overrides.\"<>\": `<>` is not a key: the rule does not apply to the null sender",
        ),
        (
            "rules: { a: { by: [user, ip], limits: 0, overrides: { bob: 1/s } } }",
            "t.yaml:1:55: rules.a.overrides.bob: `bob` is not a key: write one value for each of `user`, `ip`, separated by commas",
        ),
        (
            "rules: { a: { by: domain, limits: 0, overrides: { b.example: 1/s, B.example.: 2/s } } }",
            "t.yaml:1:67: rules.a.overrides.\"B.example.\": this key is the same as one above it: both are counted as `b.example`",
        ),
    ]);
}

#[test]
fn on_outage_is_one_of_four_actions_that_the_limits_support() {
    check_yaml(&[
        (
            "rules: { a: { limits: 5/s, on_outage: panic } }",
            "t.yaml:1:39: rules.a.on_outage: without its store a rule does `local 50%`, `local 1/3`, `allow` or `deny`
    panic
    ^",
        ),
        (
            "rules: { a: { limits: 5/s, on_outage: local 101% } }",
            "t.yaml:1:39: rules.a.on_outage: a share is `1%` to `100%`, or `1/1` to `1/1000000`
    local 101%
          ^",
        ),
        (
            "rules: { a: { limits: [5/s, 10 in total], on_outage: local 50% } }",
            "t.yaml:1:54: rules.a.on_outage: `10 in total` cannot be counted by each node alone: write `deny` or `allow`, or put it into a rule of its own",
        ),
        (
            "rules: { a: { limits: ladder 5 lock 15m, on_outage: local 50% } }",
            "t.yaml:1:53: rules.a.on_outage: `ladder 5 lock 15m forget 15m` cannot be counted by each node alone: write `deny` or `allow`, or put it into a rule of its own",
        ),
        (
            "rules: { a: { limits: ladder 4 +5s then 6 +2s } }",
            "t.yaml:1:23: rules.a.limits: a later step waits at least as long as the one before: 5s
    ladder 4 +5s then 6 +2s
                         ^",
        ),
    ]);
}

#[test]
fn on_exceed_is_one_of_four_actions() {
    check_yaml(&[
        (
            "rules: { a: { limits: 0, on_exceed: rejct } }",
            "t.yaml:1:37: rules.a.on_exceed: `rejct` is none of `reject`, `defer`, `wait 5s`, `observe`; did you mean `reject`?",
        ),
        (
            "rules: { a: { limits: 0, on_exceed: wait } }",
            "t.yaml:1:37: rules.a.on_exceed: wait how long at most? Write it, as in `wait 5s`",
        ),
    ]);
}

#[test]
fn stores_are_of_one_kind_with_its_own_settings() {
    check_yaml(&[
        (
            "store: memry",
            "t.yaml:1:8: store: `memry` is not a store: write `memory`, `{ file: ./tollgate.redb }` or an address, as in `redis://localhost:6379` or `postgres://user@localhost/database`; did you mean `memory`?",
        ),
        (
            "store: {}",
            "t.yaml:1:8: store: name the store: `memory`, `{ file: ./tollgate.redb }` or an address, as in `redis://localhost:6379` or `postgres://user@localhost/database`",
        ),
        (
            "store: { memory: {}, file: x }",
            "t.yaml:1:8: store: keep one of `memory`, `file`, `redis` and `postgres`",
        ),
        (
            "store: { memory: {}, sync: always, max_keys: 5 }",
            "t.yaml:1:22: store.sync: this is a setting of file stores: memory is never written to disk
t.yaml:1:36: store.max_keys: this belongs inside of `memory`: `{ memory: { max_keys: 1000000 } }`",
        ),
        (
            "store: { file: '', max_keys: 0 }",
            "t.yaml:1:16: store.file: the path is empty: write one, as in `./tollgate.redb`
t.yaml:1:30: store.max_keys: `0` keys cannot be remembered: write a number from 1 on",
        ),
    ]);
}

#[test]
fn api_keys_have_one_long_token_each() {
    check_yaml(&[
        (
            "keys: [{ name: a, role: read, token_env: NOPE }]",
            "t.yaml:1:42: keys[0].token_env: the environment variable `NOPE` is not set",
        ),
        (
            "keys: [{ name: a, role: read, token_env: EMPTY }]",
            "t.yaml:1:42: keys[0].token_env: the environment variable `EMPTY` is empty",
        ),
        (
            "keys: [{ name: a, role: read, token_env: SHORT }]",
            "t.yaml:1:42: keys[0].token_env: the token in the environment variable `SHORT` has 15 characters: at least 16 are needed, as from `openssl rand -hex 32`",
        ),
        (
            "keys: [{ name: a, role: read, token_file: ./no/such/file }]",
            "t.yaml:1:43: keys[0].token_file: the file `./no/such/file` cannot be read: No such file or directory (os error 2)",
        ),
        (
            "keys: [{ name: a, role: read, token_sha256: secret }]",
            "t.yaml:1:45: keys[0].token_sha256: this is not a SHA-256 hash of 64 hexadecimal digits, as from `printf %s \"$TOKEN\" | sha256sum`",
        ),
        (
            "keys: [{ name: a, role: read }, { name: b, role: admn, token_env: LONG }]",
            "t.yaml:1:50: keys[1].role: `admn` is none of `check`, `read`, `admin`; did you mean `admin`?",
        ),
        (
            "keys: [{ name: a, role: read }, { name: a, role: read, token_env: LONG, token_file: x }]",
            "t.yaml:1:8: keys[0]: where is the token? Add `token_env`, `token_file` or `token_sha256`
t.yaml:1:41: keys[1].name: there are two keys named `a`
t.yaml:1:33: keys[1]: keep one of `token_env`, `token_file` and `token_sha256`",
        ),
        (
            "keys: [{ name: a, role: read, token_env: LONG }, { name: b, role: read, token_env: LONG }]",
            "t.yaml:1:84: keys[1].token_env: the token is the same as that of `a`: give each key its own",
        ),
        ("keys: [{ role: read, token_env: LONG }]", "t.yaml:1:8: keys[0]: the key `name` is missing"),
    ]);
}

#[test]
fn an_end_that_takes_too_long_is_refused() {
    check_yaml(&[
        (
            "denials: { link: https://ops.example.com/ }",
            "t.yaml:1:18: denials.link: a link is a URL with `{token}` once, as in `https://ops.example.com/decisions/{token}`",
        ),
        (
            "denials: { token: true, link: 'https://ops.example.com/{token}' }",
            "t.yaml:1:19: denials.token: a link contains the token: keep one of `token` and `link`",
        ),
        ("drain: 11m", "t.yaml:1:8: drain: `11m` is too long: at most `10m` is allowed"),
        (
            "drain: soon",
            "t.yaml:1:8: drain: a duration is a number and a unit, as in `30s`, `15m` or `1h30m`\n    soon\n    ^",
        ),
    ]);
}

#[test]
fn strangers_are_not_listened_to_without_keys() {
    check_yaml(&[
        (
            "listen: { http: 0.0.0.0:80 }",
            "t.yaml:1:17: listen.http: `0.0.0.0:80` can be reached from other machines, and there are no access keys: add one under `keys`, as in `{ name: ops, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }`, or listen on `127.0.0.1:80`",
        ),
        (
            "listen: { http: localhost }",
            "t.yaml:1:17: listen.http: `localhost` is not an address and a port, as in `127.0.0.1:8080` or `[::1]:8080`",
        ),
    ]);
}

#[test]
fn all_problems_are_reported_together() {
    let text = "\
listen: { http: nowhere }
store: disk
fields: { f: number }
rules:
  A: { limits: 5 }
  b: { limits: 0, overrides: { c: 1/s } }
policies:
  p: [c]
";
    assert_eq!(refusal(text, Format::Yaml).lines().filter(|line| line.starts_with("t.yaml:")).count(), 7);
}

#[test]
fn a_list_of_problems_has_an_end() {
    let rules: Vec<String> = (0..60).map(|index| format!("  r{index}: {{}}\n")).collect();
    let refusal = refusal(&format!("rules:\n{}", rules.concat()), Format::Yaml);
    assert_eq!(refusal.lines().count(), 51);
    assert!(refusal.ends_with("\nand 10 more"), "{refusal}");
}

#[test]
fn aliases_that_explode_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let refusal = refusal(&bomb, Format::Yaml);
    assert!(
        refusal.ends_with("the aliases expand to too much text: write it out where it is needed"),
        "{refusal}"
    );
}

#[test]
fn nesting_that_never_ends_is_refused() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    check_yaml(&[
        (
            &format!("rules: {}", nested(31)),
            "t.yaml:1:8: rules: expected a mapping with a name for each entry, found a list",
        ),
        (
            &format!("rules: {}", nested(32)),
            "t.yaml:1:39: not valid YAML: it is nested more than 32 levels deep: no setting is",
        ),
        (
            &nested(100_000),
            "t.yaml:1:256: not valid YAML: it is nested more than 32 levels deep: no setting is",
        ),
        (
            &format!("{}x", "- ".repeat(100_000)),
            "t.yaml:1:65: not valid YAML: it is nested more than 32 levels deep: no setting is",
        ),
    ]);
    check(
        Format::Toml,
        &[
            (
                &format!("a = {}", nested(100_000)),
                "t.toml:1:85: not valid TOML: cannot recurse further; max recursion depth met",
            ),
            (&format!("{}a = 1", "a.".repeat(100_000)), "t.toml: not valid TOML: recursion limit"),
        ],
    );
}
