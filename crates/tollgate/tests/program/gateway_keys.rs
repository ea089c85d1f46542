//! API keys at the gateway: which routes need them, what the upstream sees of them, and how one gateway
//! counts guesses for another that has the keys.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, Server};
use crate::upstream::Upstream;

const KEY: &str = "acme knows this and nobody else";

fn knows_keys(upstream: &Upstream) -> Home {
    Home::with(&format!(
        "store: memory
clients:
  trusted_proxies: [127.0.0.1]
  api_keys: {{ keys: [{{ name: acme-1, consumer: acme, token_env: ACME_API_KEY }}] }}
rules:
  client: {{ by: ip, limits: 1000/hour }}
  consumer: {{ by: consumer, limits: 1000/hour }}
policies: {{ both: [client, consumer], known: [consumer], anybody: [client] }}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ shop: {} }}
  routes:
    both: {{ path: /both, upstream: shop, policy: both }}
    known: {{ path: /known, upstream: shop, policy: known }}
    anybody: {{ path: /anybody, upstream: shop, policy: anybody }}
",
        upstream.address
    ))
    .variable("ACME_API_KEY", KEY)
}

fn counts_guesses(before: &Server) -> Home {
    Home::with(&format!(
        "store: memory
rules: {{ guesses: {{ by: ip, limits: 3/hour, count_when: 401 }} }}
policies: {{ guesses: [guesses] }}
gateway:
  listen: 127.0.0.1:0
  workers: 1
  upstreams: {{ keys: {} }}
  routes: {{ all: {{ upstream: keys, policy: guesses }} }}
",
        before.gateways[0]
    ))
}

fn ask(server: &Server, path: &str, key: Option<&str>) -> u16 {
    let header = key.map(|key| ("x-api-key", key));
    server.gateway().ask("GET", path, header.as_slice(), None).status
}

#[test]
fn a_key_is_looked_at_where_something_counts_by_it_and_passed_on_as_it_came() {
    let upstream = Upstream::start();
    let home = knows_keys(&upstream);
    let server = home.start();
    let statuses = |key| ["/both", "/known", "/anybody"].map(|path| ask(&server, path, key));
    assert_eq!(statuses(None), [200, 401, 200]);
    assert_eq!(statuses(Some("a guess")), [401, 401, 200]);
    assert_eq!(statuses(Some(KEY)), [200, 200, 200]);
    let authorization = [("authorization", "Basic YTpi"), ("x-api-key", KEY)];
    assert_eq!(server.gateway().ask("GET", "/known", &authorization, None).status, 200);
    let seen = upstream.last();
    assert_eq!((seen.header("x-api-key"), seen.header("authorization")), (Some(KEY), Some("Basic YTpi")));
}

#[test]
fn guesses_are_counted_by_a_gateway_before_the_one_that_knows_the_keys() {
    let upstream = Upstream::start();
    let inner_home = knows_keys(&upstream);
    let inner = inner_home.start();
    let outer_home = counts_guesses(&inner);
    let outer = outer_home.start();
    for _ in 0..5 {
        assert_eq!(ask(&outer, "/known", Some(KEY)), 200, "who knows the key uses up nothing");
    }
    let guesses: Vec<u16> = (0..5).map(|_| ask(&outer, "/known", Some("a guess"))).collect();
    assert_eq!(guesses, [401, 401, 401, 429, 429]);
    assert_eq!(upstream.count(), 5);
}
