//! The API gateway: `gateway.ratelimit` in its application.yml, and policies exported from its API.
//!
//! The numbers of its policies are in its database: they come as JSON, or as an answer.

use tollgate_tree::{Node, Path, Place, Value};

use crate::draft::{PolicyDraft, RuleDraft};
use crate::section::{Number, Section};
use crate::store;
use crate::work::Work;

pub(crate) fn read(trees: &[&Node], work: &mut Work<'_>) {
    let mut settings: Option<Place> = None;
    let mut policies = Vec::new();
    for tree in trees {
        match &tree.value {
            Value::List(nodes) => {
                policies.extend(nodes.iter().filter_map(|node| read_policy(node, work)));
            }
            _ if tree.entry("gateway").is_some() => settings = read_settings(tree, work),
            _ => policies.extend(read_policy(tree, work)),
        }
    }
    let first = settings.or_else(|| trees.first().map(|tree| tree.place.clone()));
    if let Some(place) = first {
        if policies.is_empty() {
            policies.push(assumed_policy(&place, work));
        }
        write_gateway(&policies, &place, work);
        work.differs(&place, "the client's address is taken from `X-Forwarded-For` only if `clients.trusted_proxies` names the proxy, and from the right: there the leftmost value counts, which the client chooses");
        work.differs(&place, "Retry-After is the time to the next token, not to a full bucket");
    }
}

/// The settings of the file. Returns their place.
fn read_settings(tree: &Node, work: &mut Work<'_>) -> Option<Place> {
    let mut top = Section::of(tree, Path::default(), work)?;
    let address = spring_redis(&mut top, work);
    let mut gateway = top.section("gateway", work)?;
    let mut limits = gateway.section("ratelimit", work)?;
    let place = limits.place.clone();
    let enabled = limits.flag("fallback-enabled", work);
    let reduction = limits.number("fallback-reduction", work);
    outage(enabled, reduction, work);
    if let Some((_, place)) = limits.whole("local-cache-ttl-seconds", work) {
        work.differs(place, "local buckets need no TTL: an idle one is forgotten when it is full again, so no token is minted early");
    }
    let prefix = limits.text("redis-key-prefix", work);
    if let Some((prefix, place)) = &prefix {
        work.exact(place, format!("`key_prefix: {prefix}`"));
    }
    let prefix = prefix.map_or("ratelimit".to_owned(), |(prefix, _)| prefix);
    store::redis(address.as_ref().map(|(url, place)| (url.clone(), place)), Some(&prefix), &place, work);
    limits.leave("the gateway has no such setting", work);
    gateway.leave("it is not about limits", work);
    top.leave("it is not about limits", work);
    Some(place)
}

/// What rules do without Redis.
fn outage(enabled: Option<(bool, &Place)>, reduction: Option<(Number, &Place)>, work: &mut Work<'_>) {
    if let Some((false, place)) = enabled {
        work.draft.on_outage = Some("allow".to_owned());
        work.exact(place, "`on_outage: allow`: without Redis, requests pass");
        return;
    }
    let share = match reduction {
        None | Some((Number::Whole(0), _)) => 0.5,
        Some((Number::Whole(_), _)) => 1.0,
        Some((Number::Decimal(share), _)) => share.min(1.0),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and 100")]
    let percent = (share * 100.0).round().clamp(1.0, 100.0) as u64;
    work.draft.on_outage = Some(format!("local {percent}%"));
    if let Some((_, place)) = enabled {
        work.exact(place, "without Redis, each node counts by itself");
    }
    let Some((written, place)) = reduction else { return };
    #[expect(clippy::cast_precision_loss, reason = "it is at most 100")]
    let exact = (share * 100.0 - percent as f64).abs() < 1e-9;
    if exact {
        work.exact(place, format!("`on_outage: local {percent}%`: rate and burst, each at least 1"));
    } else {
        work.differs(place, format!("{written} is rounded to whole percents: `on_outage: local {percent}%`"));
    }
}

/// The address of Redis in `spring.data.redis` or `spring.redis`.
pub(crate) fn spring_redis<'t>(top: &mut Section<'t>, work: &mut Work<'_>) -> Option<(String, Place)> {
    let mut spring = top.section("spring", work)?;
    let redis = match spring.section("data", work) {
        Some(mut data) => data.section("redis", work),
        None => None,
    };
    let mut redis = match redis {
        Some(redis) => redis,
        None => spring.section("redis", work)?,
    };
    let place = redis.place.clone();
    if let Some((url, _)) = redis.text("url", work) {
        return Some((url, place));
    }
    let (host, _) = redis.text("host", work)?;
    let port = redis.whole("port", work).map_or(6379, |(port, _)| port);
    Some((format!("redis://{host}:{port}"), place))
}

/// A policy of its API: `{"name": …, "requestsPerSecond": 10, "burstSize": 50}`.
fn read_policy(node: &Node, work: &mut Work<'_>) -> Option<String> {
    let mut policy = Section::of(node, Path::default(), work)?;
    let name = policy.text("name", work).map_or("route".to_owned(), |(name, _)| name);
    let rate = policy.number("requestsPerSecond", work);
    let burst = policy.whole("burstSize", work);
    policy.leave("it is not about limits", work);
    let (Some((rate, place)), Some((burst, _))) = (rate, burst) else {
        work.wrong(&node.place, "the policy needs `requestsPerSecond` and `burstSize`");
        return None;
    };
    let limit = work.rewrite(place, &format!("{rate}/s burst={burst}"))?;
    work.exact(place, format!("`{name}` is `{}` for each route and client address", limit.limit));
    Some(add(&name, limit.limit, work))
}

fn assumed_policy(place: &Place, work: &mut Work<'_>) -> String {
    const ASSUMED: &str = "10/s burst 50";
    let limit = work.answered_limit("route").unwrap_or_else(|| {
        work.asks(place, format!("`requestsPerSecond` and `burstSize` of the routes are in the gateway's database, not in this file; assumed `{ASSUMED}`. Answer with `--limit 'route={ASSUMED}'`, or import its policies as JSON too"));
        ASSUMED.to_owned()
    });
    add("route", limit, work)
}

/// Adds a rule, and a policy of the same name. Returns the name.
fn add(name: &str, limit: String, work: &mut Work<'_>) -> String {
    let name = work.rule_names.free(name);
    work.draft.rules.push(RuleDraft {
        name: name.clone(),
        comments: vec!["A bucket for each route and client.".to_owned()],
        by: vec!["route".to_owned(), "ip".to_owned()],
        limits: vec![limit],
        ..RuleDraft::default()
    });
    let comments =
        vec!["Name it as the `policy` of a route; a route without one passes untouched.".to_owned()];
    work.draft.policies.push(PolicyDraft { name: name.clone(), comments, rules: vec![name.clone()] });
    name
}

/// The body of a denial there.
const ANSWERS: &str = r#"# The body of a denial, as the gateway there writes it.
answers:
  media: json
  body: |-
    {
        "type": "https://api.gateway/errors/rate-limit-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Rate limit exceeded. Try again in {retry_after} seconds.",
        "correlationId": "{correlation_id}"
    }"#;

/// Writes the gateway, with one route for each policy: the routes themselves are in the database.
fn write_gateway(policies: &[String], place: &Place, work: &mut Work<'_>) {
    work.exact(place, "`answers`: a denial has the body of the gateway there");
    work.asks(place, "the routes are in the gateway's database, not in this file; assumed one route for each policy and the upstream `127.0.0.1:9000`, with the gateway at `127.0.0.1:8000`. Change `gateway.routes`, `gateway.upstreams` and `gateway.listen`");
    let routes = policies.iter().map(|policy| {
        let path = if policies.len() == 1 { "/*".to_owned() } else { format!("/{policy}/*") };
        format!("    {policy}: {{ path: {path}, upstream: app, policy: {policy} }}")
    });
    let routes: Vec<String> = routes.collect();
    let head = "gateway:\n  listen: 127.0.0.1:8000\n  upstreams: { app: 127.0.0.1:9000 }\n  # The name of a route is a part of its buckets. A route without a policy passes untouched.\n  routes:\n";
    work.draft.sections.push(ANSWERS.to_owned());
    work.draft.sections.push(head.to_owned() + &routes.join("\n"));
}
