//! The account in the body of a login.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use serde::Deserialize;
use tollgate::config::{Format, load_str};
use tollgate_web::Identity;
use tollgate_web::facts::{Aliases, Body, BodyKind, Facts};

/// A login has one account or is refused, and a plain parser finds the same one. The first byte chooses the kind of the
/// body.
pub fn login_body(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let (kind, field) = match choice % 2 {
        0 => ("application/x-www-form-urlencoded", "form.user"),
        _ => ("application/json", "json.user"),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let kind = BodyKind::of(&headers).expect("it is a plain content type");
    let config = format!("rules: {{ r: {{ by: {field}, limits: 1/day }} }}\npolicies: {{ p: [r] }}\n");
    let config = load_str(&config, Format::Yaml, "fuzzed", std::iter::empty()).expect("it is correct");
    let read = Body::new(kind, Bytes::copy_from_slice(body));
    let facts = Facts {
        route: "login",
        client: "192.0.2.7".parse().expect("an address"),
        address: None,
        method: &Method::POST,
        path: "/login",
        query: None,
        host: "shop.example",
        headers: &headers,
        identity: &Identity::default(),
        body: Some(&read),
    };
    let policy = config.policies.find("p").expect("it is there");
    let aliases = Aliases::default();
    let Ok(asked) = facts.ask(policy, &aliases) else { return };
    let pairs = asked.pairs();
    for (_, value) in &pairs {
        assert!(!value.is_empty() && !value.chars().any(char::is_control), "{value:?}");
    }
    let own = pairs.iter().find(|(name, _)| *name == field).map(|(_, value)| (*value).to_owned());
    let other = match kind {
        BodyKind::Form => Some(in_form(body)),
        BodyKind::Json => in_json(body),
    };
    if let Some(other) = other {
        assert_eq!(own, other, "the account in {:?}", body.escape_ascii().to_string());
    }
}

/// The account in a form; `None` if there is none, or an empty one.
fn in_form(body: &[u8]) -> Option<String> {
    let users = form_urlencoded::parse(body).filter(|(name, _)| name == "user");
    let users: Vec<_> = users.map(|(_, value)| value.into_owned()).collect();
    assert!(users.len() <= 1, "there are several accounts: {users:?}");
    users.into_iter().next().filter(|user| !user.is_empty())
}

/// The account in JSON, as in [`in_form`], if it is a text or a number that every parser reads alike. `None` if this
/// parser refuses the body: half of a surrogate pair elsewhere in it is no concern of the gateway.
fn in_json(body: &[u8]) -> Option<Option<String>> {
    /// Serde refuses a member that occurs twice here.
    #[derive(Deserialize)]
    struct Login {
        user: Option<serde_json::Value>,
    }
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    if !value.is_object() {
        return Some(None);
    }
    let login: Login = serde_json::from_slice(body).expect("an object with one account at most");
    Some(match login.user {
        Some(serde_json::Value::String(user)) => Some(user).filter(|user| !user.is_empty()),
        Some(serde_json::Value::Number(number)) => {
            let exact = number.as_i64().filter(|number| number.unsigned_abs() < 1 << 53);
            exact.map(|number| number.to_string())
        }
        _ => None,
    })
}
