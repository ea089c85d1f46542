//! The real program: `tollgate check-config` and `tollgate schema`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

const GOOD: &str = "\
store: memory
keys: [{ name: ops, role: admin, token_env: OPS_TOKEN }]
rules:
  domain:
    by: domain
    limits: [1000/hour, 10000/day calendar in Europe/Berlin]
    overrides: { Example.com: unlimited }
    on_exceed: defer
  hidden: { by: api_key, limits: 5/s, overrides: { s3cr3t: 9/s }, secret: true, enabled: false }
policies:
  mail.accept: [domain]
  mail.deliver: [domain]
";

/// Runs the program in an empty directory, with only these variables.
fn tollgate(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program prints text")
}

#[test]
fn check_config_says_in_words_what_each_rule_bounds() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("good.yaml"), GOOD).unwrap();
    let token = [("OPS_TOKEN", "0123456789abcdef")];
    let output = tollgate(directory.path(), &["check-config", "--config", "good.yaml"], &token);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        text(&output.stdout),
        "\
listens on http://127.0.0.1:8080
keeps counters in memory, for at most 1000000 keys
  counters take at most 107 MiB of memory: 1000000 keys of up to 112 bytes
access key ops, role admin

rule domain: for each domain
  1000/hour: at most 1,000 in any window of an hour that starts with the first attempt, up to 1,999 in an unlucky hour
  10000/day calendar in Europe/Berlin: at most 10,000 per calendar day in Europe/Berlin, up to 20,000 within any 24 hours across midnight
  for example.com instead:
    unlimited
  when exceeded: the attempt is deferred to the moment at which it passes
  used by mail.accept, mail.deliver

rule hidden (switched off): for each api key
  5/s: at most 5 in any window of a second that starts with the first attempt, up to 9 in an unlucky second
  for *** instead:
    9/s: at most 9 in any window of a second that starts with the first attempt, up to 17 in an unlucky second
  when exceeded: the attempt is denied
  used by no policy
"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn check_config_reckons_with_the_memory_of_all_keys() {
    let directory = tempfile::tempdir().unwrap();
    let check = |max_keys: u64, limits: &str| {
        let config = format!(
            "store: {{ memory: {{ max_keys: {max_keys} }} }}\nrules: {{ one: {{ by: user, limits: {limits} }}, all: {{ limits: 5/s }} }}\npolicies: {{ p: [one], q: [all] }}\n"
        );
        std::fs::write(directory.path().join("t.yaml"), config).unwrap();
        let words = tollgate(directory.path(), &["check-config", "t.yaml"], &[]);
        let data = tollgate(directory.path(), &["check-config", "t.yaml", "--json"], &[]);
        let data: Value = serde_json::from_slice(&data.stdout).unwrap();
        assert_eq!(data["warnings"].as_array().unwrap().is_empty(), !text(&words.stdout).contains("remedy"));
        (text(&words.stdout).to_owned(), data)
    };
    let (words, data) = check(1_000, "100/hour sliding");
    assert!(
        words.contains("counters take at most 3512 KiB of memory: 1000 keys of up to 3596 bytes"),
        "{words}"
    );
    assert_eq!(data["memory"]["most_bytes"], 3_596_080);
    assert!(data["memory"]["machine_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(data["warnings"].as_array().unwrap().len(), 0);
    for (limits, most) in [("5/s burst 9", 80), ("1000/day sliding by 1h", 696), ("3 at once for 1m", 1288)] {
        assert_eq!(check(10, limits).1["memory"]["most_key_bytes"], most, "{limits}");
    }
    let (words, data) = check(100_000_000, "100000/day sliding");
    assert!(words.contains("the counters can take 316668 GiB if all 100000000 keys are used up"), "{words}");
    assert!(data["warnings"][0]["remedy"].as_str().unwrap().contains("`max_keys`"), "{data}");
}

#[test]
fn check_config_says_what_each_rule_does_without_a_shared_store() {
    let directory = tempfile::tempdir().unwrap();
    let file = "\
store: { redis: redis://127.0.0.1:1 }
rules:
  pages: { by: ip, limits: 50/hour sliding }
  login: { by: user, limits: 5/min burst 3, on_outage: deny }
  seats: { limits: 10 at once }
";
    std::fs::write(directory.path().join("shared.yaml"), file).unwrap();
    let output = tollgate(directory.path(), &["check-config", "--config", "shared.yaml"], &[]);
    let told: Vec<&str> =
        text(&output.stdout).lines().filter_map(|line| line.strip_prefix("  during an outage: ")).collect();
    let denied = "the attempt is denied";
    assert_eq!(told, ["on each node never more than 25 in any hour", denied, denied], "{output:?}");
}

#[test]
fn check_config_says_which_answers_count() {
    let directory = tempfile::tempdir().unwrap();
    let file = "\
store: memory
rules:
  guesses: { by: user, limits: 5/15m, count_when: [401, 403] }
  all: { limits: 50/min }
";
    std::fs::write(directory.path().join("counting.yaml"), file).unwrap();
    let output = tollgate(directory.path(), &["check-config", "--config", "counting.yaml"], &[]);
    let told: Vec<&str> =
        text(&output.stdout).lines().filter_map(|line| line.strip_prefix("  counts ")).collect();
    let words = "an attempt whose answer is 401 or 403; others are refunded once answered";
    assert_eq!(told, [words], "{output:?}");
    let output = tollgate(directory.path(), &["check-config", "--json", "--config", "counting.yaml"], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["rules"][0]["count_when"], words);
    assert_eq!(answer["rules"][1].get("count_when"), None);
}

#[test]
fn check_config_warns_of_problems_that_the_server_would_meet() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("lost.yaml"),
        "store: { file: nowhere/counts.redb }\nrules: { one: { limits: 1/s } }\npolicies: { p: [one] }\n",
    )
    .unwrap();
    // The file can be given without the option, which then takes precedence.
    let variables = [("TOLLGATE_CONFIG", "other.yaml"), ("TOLLGATE_LISTEN_HTTP", "127.0.0.1:1")];
    let output = tollgate(directory.path(), &["check-config", "lost.yaml"], &variables);
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    let told = text(&output.stdout);
    for expected in [
        "\nwarning: the store's file should be in nowhere, but there is no such directory: the server would not start\n  remedy: ",
        "\nwarning: the environment variable TOLLGATE_LISTEN_HTTP is ignored: two underscores separate levels\n  remedy: call it TOLLGATE__LISTEN__HTTP\n",
    ] {
        assert!(told.contains(expected), "{expected:?} is missing in\n{told}");
    }
    std::fs::create_dir(directory.path().join("nowhere")).unwrap();
    let output = tollgate(directory.path(), &["check-config", "lost.yaml", "--json"], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["warnings"], serde_json::json!([]));
}

#[test]
fn check_config_says_what_keeps_each_route() {
    let directory = tempfile::tempdir().unwrap();
    let config = "
rules: { client: { by: ip, limits: 10/s } }
policies: { api: [client] }
guards: { login: by user }
gateway:
  listen: 127.0.0.1:0
  upstreams: { shop: 127.0.0.1:9000 }
  routes:
    login: { path: /login/*, upstream: shop, guard: { name: login, fields: { user: form.user }, success: 303 } }
    both: { path: /both, upstream: shop, policy: api, guard: { name: login, fields: { user: form.user }, success: { cookie: sid }, neutral: [404, 503] } }
    api: { path: /api, upstream: shop, policy: api }
    rest: { upstream: shop }
";
    std::fs::write(directory.path().join("routes.yaml"), config).unwrap();
    let output = tollgate(directory.path(), &["check-config", "--config", "routes.yaml"], &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    for line in [
        "route login: everything at /login/* to shop, guarded by login",
        "success: 303 to POST at /login or /login/",
        "neutral: no connection to the upstream; no response is",
        "failure: every other response, and none at all: the attempt stays counted",
        "route both: everything at /both to shop, limited by policy api, guarded by login",
        "success: 2xx or 3xx to POST at /both that sets the cookie sid",
        "neutral: 404 or 503, or no connection to the upstream",
        "route api: everything at /api to shop, limited by policy api",
        "route rest: everything at /* to shop, without limits",
    ] {
        assert!(said.lines().any(|said| said.trim() == line), "{line}: {said}");
    }
    let output = tollgate(directory.path(), &["check-config", "--json", "--config", "routes.yaml"], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let route = &answer["gateway"]["routes"][0];
    assert_eq!(
        (&route["guard"], &route["logins"]["success"]),
        (&json!("login"), &json!("303 to POST at /login or /login/"))
    );
    assert_eq!(answer["gateway"]["routes"][2]["logins"], Value::Null);
}

#[test]
fn check_config_without_a_file_explains_the_starter() {
    let directory = tempfile::tempdir().unwrap();
    let output = tollgate(directory.path(), &["check-config"], &[]);
    assert_eq!(output.status.code(), Some(0));
    let client = "  10/s burst 50: a burst of 50, then 10 a second: at most 650 in any minute\n";
    assert!(text(&output.stdout).contains(client), "{}", text(&output.stdout));
}

#[test]
fn check_config_prints_json() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("good.yaml"), GOOD).unwrap();
    let variables = [("OPS_TOKEN", "0123456789abcdef"), ("TOLLGATE_CONFIG", "good.yaml")];
    let output = tollgate(directory.path(), &["check-config", "--json"], &variables);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["ok"], true);
    assert_eq!(answer["store"]["kind"], "memory");
    assert_eq!(answer["keys"][0], serde_json::json!({ "name": "ops", "role": "admin" }));
    assert_eq!(answer["rules"][0]["limits"][0]["limit"], "1000/hour");
    assert_eq!(answer["rules"][0]["policies"], serde_json::json!(["mail.accept", "mail.deliver"]));
    assert_eq!(answer["policies"][1]["name"], "mail.deliver");
    assert!(!text(&output.stdout).contains("0123456789abcdef"));
}

#[test]
fn check_config_says_where_redis_is_and_not_the_password() {
    let table = [
        ("redis://:hunter2@h/3", "in Redis at h:6379, database 3, under keys that begin with tollgate:"),
        (
            "rediss+cluster://u:hunter2@a,b:1",
            "in the Redis Cluster at a:6379, b:1, over TLS, under keys that begin with tollgate:",
        ),
        (
            "valkey+sentinel://:hunter2@a/main",
            "in the Redis that the Sentinels at a:26379 call main, under keys that begin with tollgate:",
        ),
        (
            "{ redis: 'rediss://:hunter2@h', tls_insecure: true, key_prefix: p }",
            "in Redis at h:6379, over TLS without checking certificates, under keys that begin with p:",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (store, words) in table {
        let variables = [("TOLLGATE__STORE", store)];
        let output = tollgate(directory.path(), &["check-config"], &variables);
        let said = text(&output.stdout);
        assert!(said.contains(&format!("keeps counters {words}\n")), "{said}{}", text(&output.stderr));
        let json = tollgate(directory.path(), &["check-config", "--json"], &variables);
        let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(answer["store"]["kind"], "redis");
        assert!(!said.contains("hunter2") && !text(&json.stdout).contains("hunter2"));
    }
}

#[test]
fn check_config_prints_every_problem_and_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.toml"), "[rules]\na = { limits = '5' }\nb = { limits = [] }\n")
        .unwrap();
    let expected = "\
bad.toml:2:16: rules.a.limits: the number needs to say how it is counted: `/hour`, `at once`, `in total`
    5
     ^
bad.toml:3:16: rules.b.limits: an empty list: write `unlimited` if there is to be no limit
";
    let words = tollgate(directory.path(), &["check-config", "--config", "bad.toml"], &[]);
    assert_eq!((text(&words.stdout), text(&words.stderr)), ("", expected));
    assert_eq!(words.status.code(), Some(2));

    let json = tollgate(directory.path(), &["check-config", "--json", "--config", "bad.toml"], &[]);
    assert_eq!((json.status.code(), text(&json.stderr)), (Some(2), expected));
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        answer["problems"][0]["place"],
        serde_json::json!({ "source": "bad.toml", "line": 2, "column": 16 })
    );
    assert_eq!(answer["problems"][1]["path"], "rules.b.limits");
}

#[test]
fn files_that_cannot_be_read_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
    write("config.json", b"{}");
    write("latin.yaml", b"rules: \xe9");
    write("huge.yaml", &vec![b'#'; 33 * 1024 * 1024]);
    write("empty.yaml", b"");
    write("comments.yaml", b"# rules:\n#   a: { limits: 5/s }\n");
    write("empty.toml", b"\n");
    let empty = "the file is empty: add rules and policies, as in `rules: { client: { by: ip, limits: 10/s } }` and `policies: { api: [client] }`; without a file, tollgate serves its built-in starter";
    let table = [
        ("none.yaml", "none.yaml: cannot be read: No such file or directory (os error 2)\n"),
        (
            "config.json",
            "config.json: the name of a configuration file must end in `.yaml`, `.yml` or `.toml`\n",
        ),
        ("latin.yaml", "latin.yaml: is not UTF-8 text from byte 7 on: save it as UTF-8\n"),
        (
            "huge.yaml",
            "huge.yaml: the file is larger than 32 MiB: set overrides with `tollgate set` or `PUT /api/v1/counters/RULE/KEY`, and listings with `tollgate ban` or `POST /api/v1/bans`\n",
        ),
        ("empty.yaml", &format!("empty.yaml: {empty}\n")),
        ("comments.yaml", &format!("comments.yaml: {empty}\n")),
        ("empty.toml", &format!("empty.toml: {empty}\n")),
    ];
    for (name, expected) in table {
        let output = tollgate(directory.path(), &["check-config", "--config", name], &[]);
        assert_eq!((text(&output.stderr), output.status.code()), (expected, Some(2)));
    }
}

#[test]
fn variables_change_what_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let output = tollgate(directory.path(), &["check-config"], &[("TOLLGATE__STORE", "memory")]);
    assert!(text(&output.stdout).contains("keeps counters in memory"));
    let output = tollgate(directory.path(), &["check-config"], &[("TOLLGATE__STOR", "memory")]);
    let expected = "environment variable TOLLGATE__STOR: stor: unknown key `stor`; did you mean `store`?\n";
    assert_eq!((text(&output.stderr), output.status.code()), (expected, Some(2)));
}

#[test]
fn schema_prints_what_the_library_knows() {
    let directory = tempfile::tempdir().unwrap();
    let output = tollgate(directory.path(), &["schema"], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), tollgate::config::schema());
}
