//! The real program does not print a token that was pasted into the wrong place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

const TOKEN: &str = "sk_live_51Habcdef0123456789";

/// What the program prints about a file, as text and as JSON, with these variables.
fn printed(name: &str, text: &str, variables: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), text).unwrap();
    let mut printed = String::new();
    for arguments in [&["check-config", name][..], &["check-config", name, "--json"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(arguments)
            .current_dir(directory.path())
            .env_clear()
            .envs(variables.iter().copied())
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{text}: {output:?}");
        printed.push_str(&String::from_utf8(output.stdout).unwrap());
        printed.push_str(&String::from_utf8(output.stderr).unwrap());
    }
    printed
}

#[test]
fn a_token_in_the_wrong_place_is_not_echoed() {
    let forms = [
        "keys: [TOKEN]",
        "keys: TOKEN",
        "keys: { TOKEN: 1 }",
        "keys: [{ name: a, role: TOKEN }]",
        "keys: [{ name: a, role: [TOKEN] }]",
        "keys: [{ name: a, role: admin, token_env: TOKEN }]",
        "keys: [{ name: a, role: admin, token_env: [TOKEN] }]",
        "keys: [{ name: a, role: admin, token_file: TOKEN }]",
        "keys: [{ name: a, role: admin, token_file: /TOKEN }]",
        "keys: [{ name: a, role: admin, token_sha256: TOKEN }]",
        "keys: [{ name: a, role: admin, token: TOKEN }]",
        "keys: [{ name: a, role: admin, TOKEN: 1 }]",
        "keys: [{ TOKEN: 1, TOKEN: 2 }]",
        "keys: [{ name: a, role: *TOKEN }]",
        "keys: [{ name: a, role: !TOKEN }]",
        "keys: [{ name: a, role: '@TOKEN }]",
        "keys:\n  - name: a\n    role: admin\n   token_env: TOKEN",
        "clients: { api_keys: { keys: [TOKEN, { name: a, token_env: TOKEN }] } }",
        "clients: { tokens: { secret_env: TOKEN, TOKEN: 1 } }",
        "store: { redis: redis://h, password_env: TOKEN }",
        "store: { redis: redis://h, password_file: TOKEN }",
        "store: { postgres: 'postgres://u@h/d', password_env: TOKEN }",
        "store: 'mysql://u:TOKEN@h/d'",
        "store: 'host=db user=u password=TOKEN dbname=d'",
        "store: 'host=db password=a:TOKEN'",
        "store: 'u@TOKEN'",
        "store: { file: 'postgres://u:TOKEN@h/d' }",
        "store: { file: 'host=db password=TOKEN' }",
        "store: { postgres: 'host=db user=u password=TOKEN dbname=d' }",
        "store: { redis: 'h password=TOKEN' }",
        "store: { redis: [TOKEN] }",
        "store: [TOKEN]",
        "databases: { shop: { url: 'host=db password=TOKEN' } }",
        "databases: 'postgres://u:TOKEN@h/d'",
        "databases: { shop: 'postgres://u:TOKEN@h/d' }",
        "databases: { shop: { url_env: 'postgres://u:TOKEN@h/d' } }",
        "relay: { users: [TOKEN, { name: a, password_env: TOKEN }] }",
        "relay: { accounts: { a/b: 'smtp://u:TOKEN@h' } }",
        "relay: { accounts: { a/b: { host: 'smtp://u:TOKEN@h' } } }",
        "relay: { accounts: { a/b: { host: h, user: u, password: TOKEN } } }",
        "relay: { secret_env: TOKEN }",
        "guards: { a: { by: user, webhook: 'https://u:TOKEN@h/' } }",
        "guards: { a: { by: user, webhook: 'https://h/botTOKEN' } }",
        "gateway: { upstreams: { a: 'http://u:TOKEN@h' }, routes: { a: { upstream: a } } }",
    ];
    for form in forms {
        let printed = printed("t.yaml", &form.replace("TOKEN", TOKEN), &[]);
        assert!(!printed.contains(TOKEN), "{form}: {printed}");
    }
    for form in ["host=db password=TOKEN", "{ postgres: 'host=db password=TOKEN' }", "u:TOKEN@h"] {
        let variables = [("TOLLGATE__STORE", &*form.replace("TOKEN", TOKEN))];
        let printed = printed("t.yaml", "rules: {}\n", &variables);
        assert!(!printed.contains(TOKEN), "{form}: {printed}");
    }
    for form in ["[TOKEN", "[{ name: a, role: TOKEN }]", "[{ TOKEN: x }]"] {
        let variables = [("TOLLGATE__KEYS", &*form.replace("TOKEN", TOKEN))];
        let printed = printed("t.yaml", "store: memory\n", &variables);
        assert!(!printed.contains(TOKEN), "{form}: {printed}");
    }
    let toml = format!("[[keys]]\nname = 'a'\nrole = '{TOKEN}'\ntoken_env = '{TOKEN}'\n");
    let printed = printed("t.toml", &toml, &[]);
    assert!(!printed.contains(TOKEN) && printed.contains("is none of `check`, `read`, `admin`"), "{printed}");
}

#[test]
fn a_name_that_is_plainly_a_name_is_shown() {
    let keys = "keys: [{ name: a, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }, { name: b, role: admn, tokn_env: X }]";
    let printed = printed("t.yaml", keys, &[]);
    assert!(printed.contains("keys[1].role: `admn` is none of"), "{printed}");
    assert!(printed.contains("unknown key `tokn_env`; did you mean `token_env`?"), "{printed}");
    let printed =
        self::printed("t.yaml", "keys: [{ name: a, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }]", &[]);
    assert!(printed.contains("the environment variable `TOLLGATE_ADMIN_TOKEN` is not set"), "{printed}");
}
