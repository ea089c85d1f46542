//! Imported configurations at the doors of the real program: the gateway has the routes and the answers of the other
//! program, and forward-auth can ask every policy that is not for the gateway alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::imported::sample;
use crate::program::{Home, Server};
use tollgate_import::{Answers, Input, import};

/// Nothing listens there, so a request that passes its limits is answered with 502.
const NOWHERE: &str = "127.0.0.1:1";

fn serve(name: &str, text: &str) -> Server {
    let imported = import(&[Input { name, text }], &Answers::default()).unwrap();
    let config = imported.config.replace("127.0.0.1:9000", NOWHERE);
    let home = Home::with(&config).variable("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0");
    home.variable("TOLLGATE__STORE", "memory").start()
}

#[test]
fn every_location_of_nginx_has_its_limits_at_the_gateway_and_forward_auth_answers() {
    let text = "limit_req_zone $binary_remote_addr zone=slow:1m rate=1r/m;
limit_conn_zone $binary_remote_addr zone=conns:1m;
upstream app { server 127.0.0.1:1; }
server {
    location / { proxy_pass http://app; }
    location /api/ { limit_req zone=slow burst=1 nodelay; limit_conn conns 5; proxy_pass http://app/v1/; }
    location = /login { limit_req zone=slow burst=2 nodelay; limit_conn conns 1; proxy_pass http://app; }
}
";
    let server = serve("nginx.conf", text);
    let get = |path: &str| server.gateway().ask("GET", path, &[], None).status;
    assert_eq!([get("/api/a"), get("/api/b"), get("/api/c")], [502, 502, 429]);
    assert_eq!([get("/login"), get("/login"), get("/login"), get("/login")], [502, 502, 502, 429]);
    assert_eq!((0..9).map(|_| get("/else")).collect::<Vec<_>>(), [502; 9]);
    for policy in ["api", "login"] {
        let headers = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
        let path = format!("/api/v1/forward-auth/{policy}");
        let asked = server.connect().ask("GET", &path, &headers, None).status;
        assert!(asked == 200 || asked == 429, "{policy}: {asked}");
    }
    server.stop();
}

#[test]
fn the_api_gateway_denies_with_its_own_body() {
    let server = serve("policies.json", r#"{"name": "standard", "requestsPerSecond": 1, "burstSize": 1}"#);
    assert_eq!(server.gateway().ask("GET", "/api/orders", &[], None).status, 502);
    let mut denied = server.gateway().ask("GET", "/api/orders", &[], None);
    while denied.status != 429 {
        denied = server.gateway().ask("GET", "/api/orders", &[], None);
    }
    assert_eq!(denied.header("content-type"), Some("application/json"));
    let body = denied.json();
    assert_eq!(
        (&body["type"], &body["title"], &body["status"]),
        (&"https://api.gateway/errors/rate-limit-exceeded".into(), &"Too Many Requests".into(), &429.into())
    );
    assert_eq!(body["detail"], "Rate limit exceeded. Try again in 1 seconds.");
    assert!(body["correlationId"].is_string(), "{body}");
    server.stop();
}

#[test]
fn an_imported_mail_proxy_takes_accounts_with_passwords() {
    let text = sample("genro-mail-proxy.json");
    let imported = import(&[Input { name: "account.json", text: &text }], &Answers::default()).unwrap();
    let home = Home::with(&imported.config)
        .variable("TOLLGATE__STORE", "memory")
        .variable("TOLLGATE__RELAY__LISTEN", "[{ smtp: '127.0.0.1:0' }]");
    let secrets = imported.variables.iter().map(|name| (name, "a-secret-that-is-long-enough"));
    let server = secrets.fold(home, |home, (name, value)| home.variable(name, value)).start();
    let account = serde_json::json!({
        "id": "second", "tenant_id": "acme", "host": "smtp.example.com", "port": 587,
        "user": "sender@example.com", "password": "secret", "use_tls": true, "limit_per_minute": 10
    });
    let made = server.post("/account", &account);
    assert_eq!((made.status, &made.json()["ok"]), (200, &true.into()), "{}", made.json());
    server.stop();
}
