//! Keys with a tenant: every route of the API with every role, without a tenant, with its own and with another one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::door::{Door, Reply, StoreKind, rule};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::lists::Roster;
use tollgate_core::{Policies, Policy};
use tollgate_doors::{AccessKey, MailTenant, Role};
use tollgate_engine::Admissions;
use tollgate_relay::accounts::SecretKey;
use tollgate_relay::{Relay, RelayParts, RelaySettings};
use tollgate_store::ManualClock;

/// What a key with a tenant reaches at a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The route needs no key.
    Open,
    /// Nothing: the route needs a key without a tenant.
    Nothing,
    /// What carries its tenant; the rest is refused or unknown.
    Own,
    /// A list of what carries its tenant.
    List,
    /// The route is about the key itself.
    Itself,
}

use Reach::{Itself, List, Nothing, Open, Own};

/// A method, a path of the document, a request, the role that it needs, and what a key with a tenant reaches. In requests
/// `TENANT` is the tenant that the request is about, and `MESSAGE`, `TOKEN` and `RECEIPT` are its message, decision and
/// receipt.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str, Reach);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("GET", "/api/v1/accounts", "/api/v1/accounts", "", "read", List),
    ("GET", "/api/v1/messages", "/api/v1/messages", "", "read", List),
    ("GET", "/messages", "/messages", "", "read", List),
    ("GET", "/api/v1/lanes", "/api/v1/lanes", "", "read", List),
    ("GET", "/api/v1/decisions", "/api/v1/decisions", "", "read", List),
    ("GET", "/api/v1/keys/{key}", "/api/v1/keys/TENANT,main", "", "read", List),
    ("POST", "/api/v1/session", "/api/v1/session", "", "read", Itself),
    ("GET", "/api/v1/session", "/api/v1/session", "", "read", Itself),
    ("DELETE", "/api/v1/session", "/api/v1/session", "", "read", Itself),
    ("POST", "/api/v1/check", "/api/v1/check", r#"{"policy":"deliver","fields":{"tenant":"TENANT","account":"main"}}"#, "check", Own),
    ("POST", "/api/v1/acquire", "/api/v1/acquire", r#"{"policy":"deliver","fields":{"tenant":"TENANT","account":"main"}}"#, "check", Own),
    ("POST", "/api/v1/refund", "/api/v1/refund", r#"{"receipt":"RECEIPT"}"#, "check", Own),
    ("POST", "/api/v1/holds", "/api/v1/holds", r#"{"policy":"jobs","fields":{"tenant":"TENANT"},"id":"1"}"#, "check", Own),
    ("POST", "/api/v1/holds/{rule}/{key}/{id}/renew", "/api/v1/holds/slots/TENANT/held/renew", "", "check", Own),
    ("GET", "/api/v1/holds/{rule}/{key}", "/api/v1/holds/slots/TENANT", "", "read", Own),
    ("PUT", "/api/v1/holds/{rule}/{key}", "/api/v1/holds/slots/TENANT", r#"{"ids":["held"]}"#, "admin", Own),
    ("DELETE", "/api/v1/holds/{rule}/{key}/{id}", "/api/v1/holds/slots/TENANT/other", "", "check", Own),
    ("GET", "/api/v1/counters/{rule}/{key}", "/api/v1/counters/account/TENANT,main", "", "read", Own),
    ("GET", "/api/v1/decisions/{token}", "/api/v1/decisions/TOKEN", "", "read", Own),
    ("GET", "/api/v1/accounts/{tenant}/{id}", "/api/v1/accounts/TENANT/main", "", "read", Own),
    ("POST", "/api/v1/accounts/{tenant}/{id}/pause", "/api/v1/accounts/TENANT/main/pause", "", "admin", Own),
    ("POST", "/api/v1/accounts/{tenant}/{id}/resume", "/api/v1/accounts/TENANT/main/resume", "", "admin", Own),
    ("POST", "/api/v1/messages", "/api/v1/messages", r#"{"tenant":"TENANT","from":"a@TENANT.example","to":"b@example.com","subject":"x"}"#, "check", Own),
    ("GET", "/api/v1/messages/{id}", "/api/v1/messages/MESSAGE", "", "read", Own),
    ("POST", "/api/v1/messages/{id}/retry", "/api/v1/messages/MESSAGE/retry", "", "admin", Own),
    ("POST", "/api/v1/messages/{id}/release", "/api/v1/messages/MESSAGE/release", "", "admin", Own),
    ("GET", "/api/v1/messages/{id}/text", "/api/v1/messages/MESSAGE/text", "", "admin", Own),
    ("POST", "/api/v1/messages/bulk", "/api/v1/messages/bulk?action=retry", "", "admin", Itself),
    ("GET", "/api/v1/pauses", "/api/v1/pauses", "", "read", Itself),
    ("POST", "/api/v1/messages/{id}/cancel", "/api/v1/messages/MESSAGE/cancel", "", "admin", Own),
    ("POST", "/api/v1/messages/{id}/delete", "/api/v1/messages/MESSAGE/delete", "", "admin", Own),
    ("POST", "/api/v1/lanes/pause", "/api/v1/lanes/pause", r#"{"tenant":"TENANT"}"#, "admin", Own),
    ("POST", "/api/v1/lanes/resume", "/api/v1/lanes/resume", r#"{"tenant":"TENANT"}"#, "admin", Own),
    ("GET", "/api/v1/paced/{policy}", "/api/v1/paced/deliver", "", "read", Nothing),
    ("POST", "/api/v1/paced/{policy}/retry-after", "/api/v1/paced/deliver/retry-after", r#"{"retry_after":1,"fields":{"tenant":"TENANT","account":"main"}}"#, "check", Nothing),
    ("DELETE", "/api/v1/paced/{policy}/retry-after", "/api/v1/paced/deliver/retry-after", "", "admin", Nothing),
    ("POST", "/api/v1/guards/{guard}/begin", "/api/v1/guards/login/begin", r#"{"fields":{"user":"ada"}}"#, "check", Nothing),
    ("POST", "/api/v1/guards/finish", "/api/v1/guards/finish", r#"{"ticket":"x","outcome":"failure"}"#, "check", Nothing),
    ("GET", "/api/v1/guards", "/api/v1/guards", "", "read", Nothing),
    ("GET", "/api/v1/guards/{guard}/locks", "/api/v1/guards/login/locks", "", "read", Nothing),
    ("POST", "/api/v1/guards/{guard}/inspect", "/api/v1/guards/login/inspect", r#"{"fields":{"user":"ada"}}"#, "read", Nothing),
    ("POST", "/api/v1/guards/{guard}/unlock", "/api/v1/guards/login/unlock", r#"{"fields":{"user":"ada"}}"#, "admin", Nothing),
    ("GET", "/api/v1/counters", "/api/v1/counters", "", "read", Nothing),
    ("PUT", "/api/v1/counters/{rule}", "/api/v1/counters/example.org", r#"{"limits":["9/hour"]}"#, "admin", Nothing),
    ("PUT", "/api/v1/counters/{rule}/{key}", "/api/v1/counters/account/TENANT,main", r#"{"limits":"unlimited"}"#, "admin", Nothing),
    ("DELETE", "/api/v1/counters/{rule}/{key}/override", "/api/v1/counters/account/TENANT,main/override", "", "admin", Nothing),
    ("DELETE", "/api/v1/counters/{rule}/{key}", "/api/v1/counters/account/TENANT,main", "", "admin", Nothing),
    ("DELETE", "/api/v1/counters/{rule}", "/api/v1/counters/account", "", "admin", Nothing),
    ("DELETE", "/api/v1/counters", "/api/v1/counters", "", "admin", Nothing),
    ("GET", "/api/v1/bans", "/api/v1/bans", "", "read", Nothing),
    ("POST", "/api/v1/bans", "/api/v1/bans", r#"{"target":"203.0.113.7"}"#, "admin", Nothing),
    ("DELETE", "/api/v1/bans/{target}", "/api/v1/bans/203.0.113.7", "", "admin", Nothing),
    ("POST", "/api/v1/policies", "/api/v1/policies", r#"{"name":"made","limits":"9/hour"}"#, "admin", Nothing),
    ("GET", "/api/v1/policies", "/api/v1/policies", "", "read", Nothing),
    ("GET", "/api/v1/policies/{name}", "/api/v1/policies/made", "", "read", Nothing),
    ("PUT", "/api/v1/policies/{name}", "/api/v1/policies/made", r#"{"limits":"8/hour"}"#, "admin", Nothing),
    ("DELETE", "/api/v1/policies/{name}", "/api/v1/policies/made", "", "admin", Nothing),
    ("GET", "/api/v1/routes", "/api/v1/routes", "", "read", Nothing),
    ("GET", "/api/v1/routes/{route}/rate-limit", "/api/v1/routes/checkout/rate-limit", "", "read", Nothing),
    ("PUT", "/api/v1/routes/{route}/rate-limit", "/api/v1/routes/checkout/rate-limit", r#"{"policy":"made"}"#, "admin", Nothing),
    ("DELETE", "/api/v1/routes/{route}/rate-limit", "/api/v1/routes/checkout/rate-limit", "", "admin", Nothing),
    ("GET", "/api/v1/consumers", "/api/v1/consumers", "", "read", Nothing),
    ("GET", "/api/v1/consumers/{id}/rate-limit", "/api/v1/consumers/TENANT/rate-limit", "", "read", Nothing),
    ("PUT", "/api/v1/consumers/{id}/rate-limit", "/api/v1/consumers/TENANT/rate-limit", r#"{"limits":"9/hour"}"#, "admin", Nothing),
    ("DELETE", "/api/v1/consumers/{id}/rate-limit", "/api/v1/consumers/TENANT/rate-limit", "", "admin", Nothing),
    ("POST", "/api/v1/accounts", "/api/v1/accounts", r#"{"tenant":"TENANT","host":"smtp.example.com"}"#, "admin", Nothing),
    ("PUT", "/api/v1/accounts/{tenant}/{id}", "/api/v1/accounts/TENANT/main", r#"{"host":"smtp.example.com"}"#, "admin", Nothing),
    ("POST", "/account", "/account", r#"{"tenant_id":"TENANT","id":"main","host":"smtp.example.com"}"#, "admin", Nothing),
    ("DELETE", "/api/v1/accounts/{tenant}/{id}", "/api/v1/accounts/TENANT/main", "", "admin", Nothing),
    ("GET", "/api/v1/top", "/api/v1/top", "", "read", Nothing),
    ("GET", "/api/v1/rules", "/api/v1/rules", "", "read", Nothing),
    ("GET", "/api/v1/status", "/api/v1/status", "", "read", Nothing),
    ("GET", "/api/v1/status/history", "/api/v1/status/history", "", "read", Nothing),
    ("GET", "/api/v1/status/stream", "/api/v1/status/stream", "", "read", Nothing),
    ("GET", "/api/v1/changes", "/api/v1/changes", "", "read", Nothing),
    ("GET", "/metrics", "/metrics", "", "read", Nothing),
    ("POST", "/api/v1/reload", "/api/v1/reload", "", "admin", Nothing),
    ("GET", "/livez", "/livez", "", "check", Open),
    ("GET", "/readyz", "/readyz", "", "check", Open),
    ("GET", "/api/v1/openapi.json", "/api/v1/openapi.json", "", "check", Open),
];

/// The only endpoint that accepts every method and has a token header of its own.
const FOR_PROXIES: (&str, &str) = ("GET", "/api/v1/forward-auth/{policy}");

const ROLES: [(&str, Role); 3] = [("check", Role::Check), ("read", Role::Read), ("admin", Role::Admin)];
const TENANTS: [Option<&str>; 3] = [None, Some("acme"), Some("globex")];

/// A door with a relay for two tenants, and the directory of its queue.
struct Post {
    door: Door,
    _home: tempfile::TempDir,
}

/// What a tenant has.
struct Things {
    tenant: &'static str,
    message: String,
    token: String,
    receipt: String,
}

fn policies() -> Policies {
    let rules = [
        rule("account", &["tenant", "account"], &["1000/hour"]),
        rule("slots", &["tenant"], &["100 at once"]),
        rule("sender", &["sender"], &["1000/hour"]),
        rule("ip", &["ip"], &["1000/hour"]),
    ];
    let rules: Vec<_> = rules.into_iter().map(Arc::new).collect();
    let policy = |name: &str, of: &[usize]| {
        Policy::new(name.into(), of.iter().map(|index| Arc::clone(&rules[*index])).collect(), true)
    };
    let policies =
        vec![policy("deliver", &[0]), policy("jobs", &[1]), policy("accept", &[2, 0]), policy("ip", &[3])];
    let kinds = Kinds::new([("region".into(), FieldKind::Text)]);
    Policies::new(true, rules, policies).with_roster(Arc::new(Roster::new(kinds, Vec::new())))
}

/// A token: the role and the tenant of its key.
fn token(role: &str, tenant: Option<&str>) -> String {
    format!("{role}-of-{}", tenant.unwrap_or("none"))
}

fn keys() -> Vec<AccessKey> {
    let pairs = ROLES.iter().flat_map(|role| TENANTS.map(|tenant| (role, tenant)));
    let key = |((name, role), tenant): (&(&str, Role), Option<&str>)| {
        let name = token(name, tenant);
        let tenant = tenant.map(|name| MailTenant { name: name.into(), senders: Arc::default() });
        AccessKey { hash: Sha256::digest(&name).into(), name, role: *role, tenant }
    };
    pairs.map(key).collect()
}

impl Post {
    fn open() -> Self {
        let home = tempfile::tempdir().unwrap();
        let start = |admissions: Admissions, clock: Arc<ManualClock>| {
            let mut settings = RelaySettings::new("relay.example", home.path().join("queue"));
            settings.queue.min_free = 0;
            settings.secret_key = Some(SecretKey([7; 32]));
            settings.accept.max_size = 1 << 20;
            let starting = Relay::start(settings, RelayParts { admissions, clock });
            let relay = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(starting));
            Arc::new(relay.unwrap())
        };
        let door = Door::with_relay(policies(), keys(), StoreKind::Memory, Some(&start));
        // Streams end after their first event.
        door.live.end();
        Self { door, _home: home }
    }

    /// Other files compare the replies with the document, which takes longer than all else here.
    async fn ask(&self, token: &str, method: &str, path: &str, body: &str) -> Reply {
        let request = Request::builder().method(method).uri(path).header("x-api-token", token);
        let request = request.header("content-type", "application/json");
        self.door.answer(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    async fn post(&self, token: &str, path: &str, body: Value) -> Value {
        let reply = self.ask(token, "POST", path, &body.to_string()).await;
        assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
        reply.json()
    }

    /// Gives a tenant an account, a message, a hold and two decisions.
    async fn furnish(&self, tenant: &'static str) -> Things {
        let boss = "admin-of-none";
        let account = json!({
            "tenant": tenant, "id": "main", "host": "192.0.2.1", "port": 2525, "limits": ["1000/hour"],
        });
        self.post(boss, "/api/v1/accounts", account).await;
        let message =
            json!({ "tenant": tenant, "from": "a@x.example", "to": "b@example.com", "subject": "x" });
        let message = self.post(boss, "/api/v1/messages", message).await["id"].as_str().unwrap().to_owned();
        let fields = json!({ "tenant": tenant, "account": "main" });
        let check = json!({ "policy": "deliver", "fields": fields });
        let receipt = self.post(boss, "/api/v1/check", check).await["receipt"].as_str().unwrap().to_owned();
        let hold = json!({ "policy": "jobs", "fields": { "tenant": tenant }, "id": "held" });
        self.post(boss, "/api/v1/holds", hold).await;
        let costly = json!({ "policy": "deliver", "fields": fields, "cost": 1_000_000 }).to_string();
        assert_eq!(self.ask(boss, "POST", "/api/v1/check", &costly).await.status, 429);
        let key = format!("/api/v1/decisions?verdict=deny&key={tenant},main");
        let denied = self.ask(boss, "GET", &key, "").await.json();
        let token = denied["decisions"][0]["token"].as_str().unwrap().to_owned();
        Things { tenant, message, token, receipt }
    }
}

impl Things {
    fn fill(&self, text: &str) -> String {
        let text = text.replace("TENANT", self.tenant).replace("MESSAGE", &self.message);
        text.replace("TOKEN", &self.token).replace("RECEIPT", &self.receipt)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_matrix_has_every_route_of_the_api() {
    let post = Post::open();
    let document = post.door.document().await;
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        documented
            .extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    let tabled = CASES.iter().map(|case| (case.0, case.1)).chain([FOR_PROXIES]);
    let tabled: BTreeSet<_> = tabled.map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(tabled, documented);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_tenant_reaches_only_what_carries_that_tenant() {
    let post = Post::open();
    let all = [post.furnish("acme").await, post.furnish("globex").await];
    for case @ (method, _, path, body, needs, reach) in CASES {
        let least = ROLES.iter().position(|(role, _)| role == needs).unwrap();
        for (rank, (role, _)) in ROLES.iter().enumerate() {
            for (own, things) in TENANTS.iter().flat_map(|own| all.iter().map(move |things| (*own, things))) {
                let token = token(role, own);
                let reply = post.ask(&token, method, &things.fill(path), &things.fill(body)).await;
                let mine = own.is_none_or(|own| own == things.tenant);
                let admitted = match reach {
                    Open => true,
                    Nothing => rank >= least && own.is_none(),
                    Own => rank >= least && mine,
                    List | Itself => rank >= least,
                };
                // Without a tenant of its own, only an admin chooses whom a message is from.
                let chooses = *path == "/api/v1/messages" && *method == "POST" && own.is_none();
                let admitted = admitted && (!chooses || *role == "admin");
                let about = format!("{case:?} as {token} about {}: {reply:?}", things.tenant);
                if !admitted {
                    assert!(matches!(reply.status, 403 | 404), "{about}");
                    assert!(reply.status == 403 || path.contains("MESSAGE"), "{about}");
                    continue;
                }
                assert!(!matches!(reply.status, 401 | 403), "{about}");
                // The first one to delete a message leaves none for the others.
                let is_gone = path.ends_with("/delete") && reply.status == 404;
                if matches!(reach, Own | List | Itself) && !is_gone {
                    assert!((200..300).contains(&reply.status), "{about}");
                }
                if *reach == List {
                    let shows = |tenant: &str| reply.text.contains(tenant);
                    assert!(shows(things.tenant) == mine, "{about}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_tenant_cannot_spend_the_limits_of_another() {
    let post = Post::open();
    let used = async |rule: &str, key: &str| {
        let path = format!("/api/v1/counters/{rule}/{key}");
        post.ask("admin-of-none", "GET", &path, "").await.json()["limits"][0]["used"].as_u64().unwrap()
    };
    let foreign = json!({ "tenant": "acme", "account": "main" });
    let mut attempts = vec![json!({ "policy": "deliver", "fields": foreign, "cost": 99 })];
    attempts.push(json!({ "policy": "deliver", "fields": foreign, "dry_run": true }));
    // No rule of the policy counts the region. The lists may have it.
    let listed = json!({ "tenant": "acme", "account": "main", "region": "eu" });
    attempts.push(json!({ "policy": "deliver", "fields": listed }));
    // A sender's limit has no tenant, so it may be another's.
    let own = json!({ "tenant": "globex", "account": "main", "sender": "a@acme.example" });
    attempts.push(json!({ "policy": "accept", "fields": own }));
    attempts.push(json!({ "policy": "accept", "fields": { "sender": "a@acme.example" } }));
    for attempt in &attempts {
        let mut acquired = attempt.clone();
        acquired.as_object_mut().unwrap().remove("dry_run");
        for (path, body) in [("/api/v1/check", attempt), ("/api/v1/acquire", &acquired)] {
            let refused = post.ask("check-of-globex", "POST", path, &body.to_string()).await;
            assert!(refused.status == 403 && refused.detail().contains("tenant `globex`"), "{refused:?}");
        }
    }
    let ours = json!({ "policy": "deliver", "fields": { "tenant": "globex", "account": "main" } });
    let batch = json!({ "attempts": [attempts[0], ours, attempts[3]] });
    let decided = post.post("check-of-globex", "/api/v1/check", batch).await;
    let statuses: Vec<u64> =
        decided["decisions"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [403, 200, 403]);
    assert_eq!(used("account", "acme,main").await, 0);
    assert_eq!(used("sender", "a@acme.example").await, 0);
    assert_eq!(used("account", "globex,main").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_no_other_keys_of_its_own_decisions() {
    let post = Post::open();
    let fields = json!({ "tenant": "acme", "account": "main", "sender": "ceo@globex.example" });
    let attempt = json!({ "policy": "accept", "fields": fields, "cost": 5_000 }).to_string();
    assert_eq!(post.ask("check-of-none", "POST", "/api/v1/check", &attempt).await.status, 429);
    let seen = post.ask("read-of-acme", "GET", "/api/v1/decisions", "").await;
    assert!(!seen.text.contains("ceo@globex"), "{seen:?}");
    let entry = &seen.json()["decisions"][0];
    assert_eq!(entry["keys"], json!([{ "rule": "account", "key": "acme,main" }]));
    // It cannot find out the other key by asking for it.
    for (token, key, found) in [
        ("read-of-acme", "ceo@globex.example", 0),
        ("read-of-acme", "acme,main", 1),
        ("read-of-none", "ceo@globex.example", 1),
    ] {
        let seen = post.ask(token, "GET", &format!("/api/v1/decisions?key={key}"), "").await.json();
        assert_eq!(seen["decisions"].as_array().unwrap().len(), found, "{key} as {token}");
    }
    let path = format!("/api/v1/decisions/{}", entry["token"].as_str().unwrap());
    let one = post.ask("read-of-acme", "GET", &path, "").await;
    assert!(one.status == 200 && !one.text.contains("ceo@globex"), "{one:?}");
    assert_eq!(one.json()["rules"].as_array().unwrap().len(), 1);
    let all = post.ask("read-of-none", "GET", &path, "").await;
    assert_eq!(all.json()["rules"].as_array().unwrap().len(), 2);
    assert_eq!(post.ask("read-of-globex", "GET", &path, "").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_needs_a_key_without_a_tenant() {
    let post = Post::open();
    let status = async |token: &str| {
        let headers = [("x-tollgate-token", token), ("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
        post.door.send(Method::GET, "/api/v1/forward-auth/ip", &headers, Vec::new()).await.status
    };
    assert_eq!(status("check-of-none").await, 200);
    assert_eq!(status("check-of-acme").await, 500);
    assert_eq!(status("admin-of-acme").await, 500);
}
