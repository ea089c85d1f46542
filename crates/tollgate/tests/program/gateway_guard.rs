//! Guarded logins at the gateway of the real program, one after the other: how a response affects the next
//! login, and what the service sees.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::program::{Connection, Home, Reply, Server, now};
use crate::upstream::{Asked, Upstream};
use serde_json::json;

/// A gateway with one guarded route to an upstream that checks passwords.
struct Login {
    upstream: Upstream,
    server: Server,
    home: Home,
}

/// The default guard of the route.
const BY_FORM: &str = "{ name: login, fields: { user: form.user }, success: 303, neutral: [400, 500] }";

fn config(upstream: &Upstream, ladder: &str, guard: &str, more: &str) -> String {
    format!(
        "store: memory
rules:
  login: {{ by: user, limits: {ladder} }}
  each: {{ by: ip, limits: 1000/day }}
policies: {{ login: [login], each: [each] }}
guards: {{ login: {{ policy: login }} }}
{more}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {} }}
  routes:
    login: {{ path: /login, method: POST, upstream: shop, guard: {guard} }}
    both: {{ path: /both, upstream: shop, policy: each, guard: {guard} }}
    rest: {{ upstream: shop }}
",
        upstream.address
    )
}

/// 303 for the right password, 500 for one that breaks something, 401 for every other.
fn judge(asked: &Asked) -> u16 {
    let body = String::from_utf8_lossy(&asked.body);
    match () {
        () if asked.method == "GET" => 200,
        () if body.contains("right") => 303,
        () if body.contains("broken") => 500,
        () if body.contains("odd") => 400,
        () => 401,
    }
}

impl Login {
    fn guarded_by(ladder: &str) -> Self {
        Self::with(ladder, BY_FORM, "")
    }

    fn with(ladder: &str, guard: &str, more: &str) -> Self {
        let upstream = Upstream::answering(judge);
        let home = Home::with(&config(&upstream, ladder, guard, more));
        let server = home.start();
        Self { upstream, server, home }
    }

    fn say(&self, kind: &str, body: &str) -> Reply {
        say(&mut self.server.gateway(), "/login", kind, &[], body)
    }

    fn try_password(&self, user: &str, password: &str) -> Reply {
        self.say("application/x-www-form-urlencoded", &format!("user={user}&password={password}"))
    }

    fn status(&self, user: &str, password: &str) -> u16 {
        self.try_password(user, password).status
    }

    /// How many failures of an account are counted; the ladder allows `top`.
    fn failures(&self, top: u64, user: &str) -> u64 {
        top - self.server.remaining("login", user)
    }
}

fn say(connection: &mut Connection, path: &str, kind: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: shop\r\ncontent-type: {kind}\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    connection.send(text.as_bytes());
    connection.reply().expect("the gateway answers")
}

#[test]
fn failures_climb_to_a_lock_that_refuses_without_asking_the_service() {
    let login = Login::guarded_by("ladder 3 lock 15m");
    for _ in 0..3 {
        assert_eq!(login.status("ada", "guess"), 401);
    }
    let refused = login.try_password("ada", "right");
    assert_eq!(refused.status, 429, "the right password does not help while locked");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((600..=900).contains(&seconds), "{seconds}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let problem = refused.json();
    assert_eq!((&problem["status"], &problem["denied_by"]), (&json!(429), &json!("login")));
    assert_eq!(login.upstream.count(), 3, "the service was left in peace");
    let locks = login.server.get("/api/v1/guards/login/locks").ok();
    assert_eq!(locks["locks"].as_array().map(Vec::len), Some(1), "{locks}");
    login.server.wait_for_log("locked");
    assert_eq!(login.status("bob", "guess"), 401, "another account is another matter");
    let page = login.server.gateway().ask("GET", "/login", &[], None);
    assert_eq!(page.status, 200, "the page with the form is on another route");
}

#[test]
fn a_login_that_comes_too_early_is_held_back_until_its_time_has_come() {
    let delay = Duration::from_secs(1);
    let login = Login::guarded_by("ladder 2 +1s then 4 lock 1h");
    let mut last = now();
    for number in 1..=4 {
        let sent = now();
        assert_eq!(login.status("ada", "guess"), 401, "guess {number}");
        // The delay counts from the start of the previous login, which was not before it was sent.
        assert!(number <= 2 || last.elapsed() >= delay.mul_f64(0.99), "guess {number}: {:?}", last.elapsed());
        last = sent;
    }
    assert_eq!(login.status("ada", "guess"), 429, "an hour is longer than anybody is held back");
    assert_eq!(login.upstream.count(), 4);
}

#[test]
fn a_login_that_would_wait_too_long_is_refused_at_once() {
    let guard = "{ name: login, fields: { user: form.user }, success: 303, max_delay: none }";
    let login = Login::with("ladder 2 +10m", guard, "");
    assert_eq!([login.status("ada", "guess"), login.status("ada", "guess")], [401, 401]);
    let refused = login.try_password("ada", "guess");
    assert_eq!((refused.status, login.upstream.count()), (429, 2));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((300..=600).contains(&seconds), "{seconds}");
}

#[test]
fn a_success_clears_and_a_neutral_response_gives_the_attempt_back() {
    let login = Login::guarded_by("ladder 3 lock 15m");
    assert_eq!([login.status("ada", "guess"), login.status("ada", "guess")], [401, 401]);
    for _ in 0..4 {
        assert_eq!(login.status("ada", "broken"), 500);
        assert_eq!(login.status("ada", "odd"), 400);
    }
    assert_eq!(login.failures(3, "ada"), 2, "the route says that those were no attempts");
    assert_eq!(login.status("ada", "right"), 303);
    assert_eq!(login.failures(3, "ada"), 0);
    for _ in 0..3 {
        assert_eq!(login.status("ada", "guess"), 401, "it begins anew");
    }
    assert_eq!(login.status("ada", "right"), 429);
}

#[test]
fn statuses_mean_what_the_route_says() {
    let guard = "{ name: login, fields: { user: form.user }, success: 401 }";
    let login = Login::with("ladder 4 lock 15m", guard, "");
    assert_eq!([login.status("ada", "odd"), login.status("ada", "broken")], [400, 500]);
    assert_eq!(login.failures(4, "ada"), 2, "what no setting describes is a failure");
    assert_eq!(login.status("ada", "right"), 303);
    assert_eq!(login.failures(4, "ada"), 3, "a redirect too");
    assert_eq!(login.status("ada", "guess"), 401);
    assert_eq!(login.failures(4, "ada"), 0, "strange, but so it was written");
}

#[test]
fn an_upstream_that_is_down_costs_no_attempt() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let login = Login::guarded_by("ladder 2 lock 15m");
    let text = config(&login.upstream, "ladder 2 lock 15m", BY_FORM, "");
    login.home.configure(&text.replace(&login.upstream.address.to_string(), &gone.to_string()));
    login.server.post("/api/v1/reload", &json!(null)).ok();
    for _ in 0..4 {
        assert_eq!(login.status("ada", "right"), 502);
    }
    assert_eq!(login.failures(2, "ada"), 0);
}

#[test]
fn the_captcha_header_reaches_both_sides_and_only_the_gateway_sets_it() {
    let login = Login::guarded_by("ladder 2 captcha then 4 lock 15m captcha");
    let hint = |reply: &Reply| reply.header("x-captcha-required").map(str::to_owned);
    let kind = "application/x-www-form-urlencoded";
    let forged = [("x-captcha-required", "false"), ("X_Captcha_Required", "false")];
    let guess = || say(&mut login.server.gateway(), "/login", kind, &forged, "user=ada&password=guess");
    let seen = || {
        let asked = login.upstream.last();
        let hints = asked.headers.iter().filter(|(name, _)| name.replace('_', "-") == "x-captcha-required");
        hints.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    assert_eq!((hint(&guess()), seen()), (None, vec![]), "the first is free, and so is the second");
    assert_eq!((hint(&guess()), seen()), (Some("true".into()), vec![]), "the third is not");
    assert_eq!((hint(&guess()), seen()), (Some("true".into()), vec!["true".to_owned()]));
    let broken = login.try_password("ada", "broken");
    assert_eq!((hint(&broken), seen()), (Some("true".into()), vec!["true".to_owned()]), "as it was before");
    let right = login.try_password("ada", "right");
    assert_eq!((right.status, hint(&right), seen()), (303, None, vec!["true".to_owned()]));
    for _ in 0..4 {
        guess();
    }
    let locked = guess();
    assert_eq!((locked.status, hint(&locked)), (429, Some("true".into())));
}

#[test]
fn accounts_are_found_in_forms_and_in_json_and_bodies_arrive_as_they_were_sent() {
    let guard = "{ name: login, fields: { user: json.login.user }, success: 303 }";
    let login = Login::with("ladder 2 lock 15m", guard, "");
    let body = "{\"login\" :  {\"user\": \"ada\"}, \"password\": \"guess\"}";
    assert_eq!(login.say("application/json", body).status, 401);
    assert_eq!(login.upstream.last().body, body.as_bytes());
    assert_eq!(login.upstream.last().header("content-type"), Some("application/json"));
    assert_eq!(login.failures(2, "ada"), 1);
    let login = Login::guarded_by("ladder 2 lock 15m");
    let long = format!("note={}&user=%61da&password=guess", "x".repeat(60_000));
    assert_eq!(login.say("application/x-www-form-urlencoded", &long).status, 401);
    assert_eq!(login.upstream.last().body, long.as_bytes());
    assert_eq!(login.failures(2, "ada"), 1);
}

#[test]
fn logins_whose_account_cannot_be_seen_are_refused_before_the_service_sees_them() {
    let login = Login::guarded_by("ladder 2 lock 15m");
    let form = "application/x-www-form-urlencoded";
    let long = format!("user=ada&note={}", "x".repeat(70_000));
    for (kind, body, status) in [
        (form, "password=guess", 400),
        (form, "user=&password=guess", 400),
        (form, "", 400),
        (form, "user=ada&user=bob&password=guess", 400),
        (form, "user=ada&USER=bob&password=guess", 400),
        (form, "user=ada&user=ada&password=guess", 400),
        (form, "user=ada&user[]=bob&password=guess", 400),
        (form, "USER=ada&password=guess", 400),
        (form, "{\"user\":\"bob\",\"x\":\"&user=ada&\"}", 400),
        ("application/x-www-form-urlencoded; charset*=utf-16", "user=ada", 400),
        ("application/json", "{\"user\":\"ada\"}", 400),
        ("multipart/form-data; boundary=x", "--x--", 415),
        ("application/x-www-form-urlencoded; charset=utf-16", "user=ada", 400),
        (form, &long, 413),
    ] {
        let reply = login.say(kind, body);
        assert_eq!(reply.status, status, "{kind} {}: {}", &body[..body.len().min(40)], reply.text());
    }
    assert_eq!((login.upstream.count(), login.failures(2, "ada")), (0, 0));
    let mut connection = login.server.gateway();
    let one = say(&mut connection, "/login", form, &[], "password=guess");
    let two = say(&mut connection, "/login", form, &[], "user=ada&password=guess");
    assert_eq!((one.status, two.status), (400, 401), "the connection can be used again");
}

#[test]
fn an_account_in_the_query_and_another_in_the_body_is_refused() {
    let form = "application/x-www-form-urlencoded";
    let login = Login::guarded_by("ladder 2 lock 15m");
    let ask = |login: &Login, path: &str, body: &str| {
        say(&mut login.server.gateway(), path, form, &[], body).status
    };
    for path in ["/login?user=vic", "/login?user=ada", "/login?u%73er[]=vic", "/login?x;user=vic"] {
        assert_eq!(ask(&login, path, "user=ada&password=guess"), 400, "{path}");
    }
    assert_eq!(ask(&login, "/login?next=/home", "user=ada&password=guess"), 401);
    let by_query = "{ name: login, fields: { user: query.user }, success: 303 }";
    let login = Login::with("ladder 2 lock 15m", by_query, "");
    for body in ["user=vic&password=guess", "user[0]=vic", "a=1&User=vic"] {
        assert_eq!(ask(&login, "/login?user=ada", body), 400, "{body}");
    }
    assert_eq!((login.upstream.count(), login.failures(2, "ada")), (0, 0));
    assert_eq!(ask(&login, "/login?user=ada", "password=guess"), 401);
    assert_eq!((login.upstream.count(), login.failures(2, "ada")), (1, 1));
}

#[test]
fn a_method_in_small_letters_does_not_pass_the_guard_by() {
    let login = Login::guarded_by("ladder 2 lock 15m");
    let body = "user=ada&password=guess";
    let rest = format!(
        "content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for method in ["post", "Post", "POSt"] {
        let mut connection = login.server.gateway();
        connection.send(format!("{method} /login HTTP/1.1\r\nhost: shop\r\n{rest}").as_bytes());
        let reply = connection.reply().expect("the gateway answers");
        assert_eq!(reply.status, 400, "{method}: {}", reply.text());
    }
    assert_eq!(login.upstream.count(), 0, "the service saw none of them");
}

/// Such a request may be a logout to the service, and its response looks like that to a login.
#[test]
fn a_login_that_names_another_method_is_refused() {
    let form = "application/x-www-form-urlencoded";
    let by_form = Login::guarded_by("ladder 2 lock 15m");
    let by_json =
        Login::with("ladder 2 lock 15m", "{ name: login, fields: { user: json.user }, success: 303 }", "");
    let by_header = Login::with(
        "ladder 2 lock 15m",
        "{ name: login, fields: { user: header.x-user }, success: 303 }",
        "",
    );
    let user = "user=ada&password=right";
    type Case<'c> = (&'c Login, &'c str, &'c str, (&'c str, &'c str), &'c str);
    let cases: [Case<'_>; 10] = [
        (&by_form, "/login", form, ("x-http-method-override", "DELETE"), user),
        (&by_form, "/login", form, ("X_HTTP_Method_Override", "DELETE"), user),
        (&by_form, "/login", form, ("x-http-method", "DELETE"), user),
        (&by_form, "/login", form, ("x-method-override", "DELETE"), user),
        (&by_form, "/login?_method=delete", form, ("a", "b"), user),
        (&by_form, "/login", form, ("a", "b"), "user=ada&_method=delete"),
        (&by_form, "/login", form, ("a", "b"), "%5fMethod[]=delete&user=ada"),
        (&by_json, "/login", "application/json", ("a", "b"), "{\"user\":\"ada\",\"_method\":\"delete\"}"),
        (&by_header, "/login?x=1;_method=delete", form, ("x-user", "ada"), "password=right"),
        (&by_header, "/login?.method=delete", form, ("x-user", "ada"), "password=right"),
    ];
    for (login, path, kind, header, body) in cases {
        let reply = say(&mut login.server.gateway(), path, kind, &[header], body);
        assert_eq!(reply.status, 400, "{path} {header:?} {body}: {}", reply.text());
        assert!(reply.text().contains("could read another `method`"), "{}", reply.text());
        assert_eq!((login.upstream.count(), login.failures(2, "ada")), (0, 0));
    }
    assert_eq!(by_form.status("ada", "right&method=password"), 303);
}

#[test]
fn chunked_bodies_and_clients_that_wait_for_leave_are_read_too() {
    let login = Login::guarded_by("ladder 3 lock 15m");
    let head = "POST /login HTTP/1.1\r\nhost: shop\r\ncontent-type: application/x-www-form-urlencoded\r\n";
    let mut connection = login.server.gateway();
    connection.send(format!("{head}expect: 100-continue\r\ncontent-length: 23\r\n\r\n").as_bytes());
    assert_eq!(connection.reply().unwrap().status, 100);
    connection.send(b"user=ada&password=guess");
    assert_eq!(connection.reply().unwrap().status, 401, "it is told to go on once");
    assert_eq!(login.upstream.last().body, b"user=ada&password=guess");
    assert_eq!(login.failures(3, "ada"), 1);
    let mut connection = login.server.gateway();
    let mut sent = format!("{head}transfer-encoding: chunked\r\n\r\n");
    // Longer in total than the bound, but no chunk is.
    for _ in 0..20 {
        sent += &format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    }
    // The gateway may refuse it before it has read everything.
    let _ = connection.try_send(sent.as_bytes());
    assert_eq!(connection.reply().map(|reply| reply.status), Some(413));
}

#[test]
fn the_policy_of_the_route_holds_beside_its_guard() {
    let login = Login::guarded_by("ladder 2 lock 15m");
    let form = "application/x-www-form-urlencoded";
    let ask = |user: &str| {
        say(&mut login.server.gateway(), "/both", form, &[], &format!("user={user}&password=guess"))
    };
    let reply = ask("ada");
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (401, Some("999")));
    assert_eq!(ask("ada").status, 401);
    let locked = ask("ada");
    assert_eq!((locked.status, &locked.json()["denied_by"]), (429, &json!("login")));
    assert_eq!(login.server.remaining("each", "127.0.0.1"), 997, "it was asked three times");
    login.server.ask("PUT", "/api/v1/counters/each/127.0.0.1", Some(&json!({ "limits": ["3/day"] }))).ok();
    let limited = ask("bob");
    assert_eq!((limited.status, &limited.json()["denied_by"]), (429, &json!("each")));
    assert_eq!(login.failures(2, "bob"), 0, "the policy comes first");
}

#[test]
fn a_refused_login_is_answered_as_is_configured() {
    let more = r#"answers: { media: json, body: '{"wait": {retry_after}, "why": "{rule}"}' }"#;
    let login = Login::with("ladder 1 lock 15m", BY_FORM, more);
    assert_eq!(login.status("ada", "guess"), 401);
    let refused = login.try_password("ada", "guess");
    assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/json")));
    assert_eq!(refused.json()["why"], "login");
    assert!((600..=900).contains(&refused.json()["wait"].as_u64().unwrap()));
}

#[test]
fn a_blocked_account_cannot_log_in() {
    let login = Login::guarded_by("ladder 5 lock 15m, secret: false");
    assert_eq!(login.status("ada", "right"), 303);
    let banned = json!({ "target": "user=ada", "reason": "a test" });
    let put = login.server.post("/api/v1/bans", &banned);
    assert!(put.status < 300, "{}", put.text());
    assert_eq!((login.status("ada", "right"), login.status("bob", "right")), (403, 303));
}

#[test]
fn a_login_that_a_page_of_another_site_has_sent_is_refused_and_counts_nothing() {
    let form = "application/x-www-form-urlencoded";
    let ask = |login: &Login, site: &str| {
        let headers = [("sec-fetch-site", site), ("origin", "https://evil.example")];
        say(&mut login.server.gateway(), "/login", form, &headers, "user=ada&password=guess").status
    };
    let login = Login::guarded_by("ladder 3 lock 15m");
    for _ in 0..5 {
        assert_eq!([ask(&login, "cross-site"), ask(&login, "Cross-Site")], [403, 403]);
    }
    assert_eq!((login.upstream.count(), login.failures(3, "ada")), (0, 0), "the visitor is not locked out");
    assert_eq!([ask(&login, "same-origin"), ask(&login, "same-site"), ask(&login, "none")], [401; 3]);
    let open = "{ name: login, fields: { user: form.user }, success: 303, cross_site: true }";
    assert_eq!(ask(&Login::with("ladder 3 lock 15m", open, ""), "cross-site"), 401);
}

#[test]
fn while_limits_are_switched_off_logins_pass_untouched() {
    let login = Login::with("ladder 1 lock 15m", BY_FORM, "enabled: false");
    for _ in 0..3 {
        assert_eq!(login.status("ada", "guess"), 401);
    }
    assert_eq!(login.say("text/plain", "whatever").status, 401, "the guard does not read them");
}
