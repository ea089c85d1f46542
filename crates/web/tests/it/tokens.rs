//! Tokens are accepted if a key signed them with one of its own algorithms, and if they are valid now, from
//! the right issuer and for the right audience.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{START, clock};
use data_encoding::BASE64URL_NOPAD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_core::{Span, Timestamp};
use tollgate_store::ManualClock;
use tollgate_web::identity::{ApiKey, ApiKeys, BadCredential, TokenKey, TokenSettings, Tokens, X_API_KEY};
use tollgate_web::{Credentials, Identity, Problem};

const SECRET: &[u8] = b"a secret that is long enough to be one";
const RSA_PRIVATE: &str = include_str!("../keys/rsa.private.pem");
const RSA_PUBLIC: &str = include_str!("../keys/rsa.public.pem");
const P256_PRIVATE: &str = include_str!("../keys/p256.private.pem");
const P256_PUBLIC: &str = include_str!("../keys/p256.public.pem");
const P384_PRIVATE: &str = include_str!("../keys/p384.private.pem");
const P384_PUBLIC: &str = include_str!("../keys/p384.public.pem");
const ED_PRIVATE: &str = include_str!("../keys/ed25519.private.pem");
const ED_PUBLIC: &str = include_str!("../keys/ed25519.public.pem");
const JWKS: &str = include_str!("../keys/jwks.json");

fn settings(keys: Vec<TokenKey>) -> TokenSettings {
    TokenSettings { keys, ..TokenSettings::default() }
}

fn believing(settings: TokenSettings) -> Credentials {
    by_clock(settings, &clock())
}

fn by_clock(settings: TokenSettings, clock: &Arc<ManualClock>) -> Credentials {
    Credentials::new(None, Some(Tokens::new(settings, Arc::clone(clock) as _).unwrap()))
}

fn secret() -> Credentials {
    believing(settings(vec![TokenKey::Secret(SECRET.to_vec())]))
}

/// Signs claims. `name` is the id of the key, if the token says it.
fn signed(algorithm: Algorithm, name: Option<&str>, claims: &Value) -> String {
    use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512};
    let key = match algorithm {
        HS256 | HS384 | HS512 => EncodingKey::from_secret(SECRET),
        ES256 => EncodingKey::from_ec_pem(P256_PRIVATE.as_bytes()).unwrap(),
        ES384 => EncodingKey::from_ec_pem(P384_PRIVATE.as_bytes()).unwrap(),
        EdDSA => EncodingKey::from_ed_pem(ED_PRIVATE.as_bytes()).unwrap(),
        _ => EncodingKey::from_rsa_pem(RSA_PRIVATE.as_bytes()).unwrap(),
    };
    let header = Header { kid: name.map(Into::into), ..Header::new(algorithm) };
    encode(&header, claims, &key).unwrap()
}

/// Claims that are good for an hour.
fn good() -> Value {
    json!({ "sub": "alice", "exp": START + 3_600 })
}

fn hs256(claims: &Value) -> String {
    signed(Algorithm::HS256, None, claims)
}

/// A token of these parts, signed with the secret.
fn by_hand(head: &str, claims: &str) -> String {
    let message = format!("{}.{}", encoded(head), encoded(claims));
    let key = EncodingKey::from_secret(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

fn encoded(part: &str) -> String {
    BASE64URL_NOPAD.encode(part.as_bytes())
}

fn send(credentials: &Credentials, token: &str) -> Result<Identity, BadCredential> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap());
    credentials.recognise(&headers)
}

fn refused(credentials: &Credentials, token: &str) -> BadCredential {
    send(credentials, token).expect_err("it is not to be believed")
}

#[test]
fn a_token_gives_the_subject_and_its_claims() {
    let claims = json!({
        "sub": "alice", "exp": START + 60, "plan": "gold", "level": 3, "admin": true, "groups": ["a"], "org": { "id": 1 },
    });
    let identity = send(&secret(), &hs256(&claims)).unwrap();
    assert_eq!(identity.subject.as_deref(), Some("alice"));
    assert_eq!(identity.consumer.as_deref(), Some("alice"), "the subject, unless another claim is named");
    let claim = |name| identity.claim(name);
    assert_eq!((claim("plan"), claim("level"), claim("admin")), (Some("gold"), Some("3"), Some("true")));
    assert_eq!((claim("groups"), claim("org"), claim("email")), (None, None, None));
}

#[test]
fn the_claim_that_names_the_consumer_is_a_choice() {
    let settings =
        TokenSettings { consumer: "client_id".into(), ..settings(vec![TokenKey::Secret(SECRET.to_vec())]) };
    let credentials = believing(settings);
    let claims = json!({ "sub": "alice", "client_id": 77, "exp": START + 60 });
    assert_eq!(send(&credentials, &hs256(&claims)).unwrap().consumer.as_deref(), Some("77"));
    let identity = send(&credentials, &hs256(&good())).unwrap();
    assert_eq!((identity.subject.as_deref(), identity.consumer), (Some("alice"), None));
}

#[test]
fn a_request_without_a_token_is_anonymous() {
    for value in [None, Some("Basic dXNlcjpwYXNz"), Some("Bear"), Some("Bearing x"), Some("")] {
        let headers =
            value.map(|value| (AUTHORIZATION, HeaderValue::from_static(value))).into_iter().collect();
        assert!(secret().recognise(&headers).unwrap().subject.is_none(), "{value:?}");
    }
}

fn authorized(value: String) -> Result<Identity, BadCredential> {
    let headers = [(AUTHORIZATION, HeaderValue::try_from(value).unwrap())];
    secret().recognise(&headers.into_iter().collect())
}

#[test]
fn the_scheme_is_read_in_any_case_and_with_any_blanks() {
    for scheme in ["bEARER  ", "Bearer\t", "bearer \t ", "\tBEARER "] {
        let identity = authorized(format!("{scheme}{}", hs256(&good()))).unwrap();
        assert_eq!(identity.subject.as_deref(), Some("alice"), "{scheme:?}");
    }
}

#[test]
fn a_malformed_bearer_header_is_refused_and_not_anonymous() {
    for scheme in ["Bearer", "bearer:", "Bearer=", "Bearer,", "BearerToken ", "Bearer\u{a0}", "Bearer\" "] {
        let said = authorized(format!("{scheme}{}", hs256(&good())));
        assert_eq!(said.unwrap_err(), BadCredential::Malformed, "{scheme:?}");
    }
    assert_eq!(authorized("Bearer ".into()).unwrap_err(), BadCredential::Malformed);
}

#[test]
fn two_tokens_are_one_too_many() {
    let value = HeaderValue::try_from(format!("Bearer {}", hs256(&good()))).unwrap();
    let headers = [(AUTHORIZATION, value.clone()), (AUTHORIZATION, value)];
    assert_eq!(secret().recognise(&headers.into_iter().collect()).unwrap_err(), BadCredential::Twice);
}

#[test]
fn every_kind_of_key_verifies_its_own_algorithms_and_no_others() {
    use Algorithm::*;
    let all = [HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA];
    let kinds: [(TokenKey, &[Algorithm]); 5] = [
        (TokenKey::Secret(SECRET.to_vec()), &[HS256, HS384, HS512]),
        (TokenKey::Pem(RSA_PUBLIC.into()), &[RS256, RS384, RS512, PS256, PS384, PS512]),
        (TokenKey::Pem(P256_PUBLIC.into()), &[ES256]),
        (TokenKey::Pem(P384_PUBLIC.into()), &[ES384]),
        (TokenKey::Pem(ED_PUBLIC.into()), &[EdDSA]),
    ];
    for (key, own) in kinds {
        let credentials = believing(settings(vec![key.clone()]));
        for algorithm in all {
            let sent = send(&credentials, &signed(algorithm, None, &good()));
            assert_eq!(sent.is_ok(), own.contains(&algorithm), "{key:?} {algorithm:?}: {sent:?}");
        }
    }
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    // A public key is used as the secret of an HMAC.
    for public in [RSA_PUBLIC, P256_PUBLIC, ED_PUBLIC] {
        let credentials = believing(settings(vec![TokenKey::Pem(public.into())]));
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let key = EncodingKey::from_secret(public.as_bytes());
            let token = encode(&Header::new(algorithm), &good(), &key).unwrap();
            assert_eq!(refused(&credentials, &token), BadCredential::UnknownSigner);
        }
    }
    let set = believing(settings(vec![TokenKey::Jwks(JWKS.into())]));
    for name in [None, Some("rsa")] {
        let header = Header { kid: name.map(Into::into), ..Header::new(Algorithm::HS256) };
        let token = encode(&header, &good(), &EncodingKey::from_secret(RSA_PUBLIC.as_bytes())).unwrap();
        assert_eq!(refused(&set, &token), BadCredential::UnknownSigner);
    }
}

#[test]
fn a_token_without_signature_is_never_believed() {
    let claims = encoded(&good().to_string());
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        let head = encoded(&json!({ "alg": algorithm, "typ": "JWT" }).to_string());
        for signature in ["", "AAAA"] {
            let token = format!("{head}.{claims}.{signature}");
            assert_eq!(refused(&secret(), &token), BadCredential::UnknownSigner, "{algorithm}");
        }
    }
    let token = hs256(&good());
    let (message, _) = token.rsplit_once('.').unwrap();
    assert_eq!(refused(&secret(), &format!("{message}.")), BadCredential::Forged);
    assert_eq!(refused(&secret(), message), BadCredential::Malformed);
}

#[test]
fn a_changed_token_is_forged() {
    let token = hs256(&good());
    let (head, rest) = token.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let other = encoded(&json!({ "sub": "root", "exp": START + 3_600 }).to_string());
    assert_eq!(refused(&secret(), &format!("{head}.{other}.{signature}")), BadCredential::Forged);
    let strange = believing(settings(vec![TokenKey::Secret(vec![b'x'; 32])]));
    assert_eq!(refused(&strange, &token), BadCredential::Forged);
}

#[test]
fn an_invalid_token_is_refused() {
    let claims = good().to_string();
    for token in [
        "x".to_owned(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        format!("{}.e30.AA", encoded("[]")),
        by_hand("{}", &claims),
        by_hand(r#"{"alg":7}"#, &claims),
        by_hand(r#"{"alg":"HS256","alg":"none"}"#, &claims),
        by_hand(r#"{"alg":"HS256","kid":7}"#, &claims),
        by_hand(r#"{"alg":"HS256"}"#, "[]"),
        by_hand(r#"{"alg":"HS256"}"#, "nonsense"),
        by_hand(r#"{"alg":"HS256"}"#, r#"{"exp":9999999999,"nbf":"soon"}"#),
        format!("{}.e30.e30.e30.AA", encoded(r#"{"alg":"HS256"}"#)),
    ] {
        let bad = refused(&secret(), &token);
        assert!(matches!(bad, BadCredential::Malformed | BadCredential::Forged), "{token}: {bad:?}");
        assert_eq!(Problem::from(bad).status, 401);
    }
    assert!(
        send(&secret(), &by_hand(r#"{"alg":"HS256"}"#, &claims)).is_ok(),
        "the others fail for their reasons"
    );
}

#[test]
fn a_token_with_critical_extensions_is_refused() {
    let token = by_hand(r#"{"alg":"HS256","crit":["exp"]}"#, &good().to_string());
    assert_eq!(refused(&secret(), &token), BadCredential::UnknownSigner);
}

#[test]
fn tokens_are_bounded() {
    let long = |bytes: usize| hs256(&json!({ "sub": "a", "exp": START + 60, "pad": "x".repeat(bytes) }));
    assert!(send(&secret(), &long(5_000)).is_ok());
    assert_eq!(refused(&secret(), &long(Tokens::MOST_BYTES)), BadCredential::Malformed);
}

#[test]
fn a_token_is_valid_from_nbf_until_exp() {
    let clock = clock();
    let leeway = Span::from_secs(10);
    let settings = TokenSettings { leeway, ..settings(vec![TokenKey::Secret(SECRET.to_vec())]) };
    let credentials = by_clock(settings, &clock);
    let token = hs256(&json!({ "sub": "a", "nbf": START + 100, "exp": START + 200 }));
    let at = |micros: u64| {
        clock.set(Timestamp::from_micros(START * 1_000_000 + micros));
        send(&credentials, &token).map(|_| ())
    };
    // The second round finds the token in the cache, which must check it as strictly.
    for _ in 0..2 {
        assert_eq!(at(89_999_999), Err(BadCredential::TooEarly));
        assert_eq!(at(90_000_000), Ok(()));
        assert_eq!(at(209_999_999), Ok(()));
        assert_eq!(at(210_000_000), Err(BadCredential::Expired));
    }
}

#[test]
fn a_token_that_does_not_say_until_when_is_not_good() {
    for claims in [
        json!({ "sub": "a" }),
        json!({ "sub": "a", "exp": "9999999999" }),
        json!({ "sub": "a", "exp": null }),
    ] {
        assert_eq!(refused(&secret(), &hs256(&claims)), BadCredential::Expired, "{claims}");
    }
    assert!(send(&secret(), &hs256(&json!({ "exp": START as f64 + 0.5 }))).is_ok());
}

#[test]
fn issuer_and_audience_are_looked_at_where_they_are_asked_for() {
    let credentials = believing(TokenSettings {
        issuers: vec!["https://id.example".into(), "https://id2.example".into()],
        audiences: vec!["shop".into()],
        ..settings(vec![TokenKey::Secret(SECRET.to_vec())])
    });
    let sent = |issuer: Value, audience: Value| {
        send(&credentials, &hs256(&json!({ "exp": START + 60, "iss": issuer, "aud": audience }))).map(|_| ())
    };
    assert_eq!(sent(json!("https://id.example"), json!("shop")), Ok(()));
    assert_eq!(sent(json!("https://id2.example"), json!(["other", "shop"])), Ok(()));
    for issuer in [json!("https://evil.example"), json!(null), json!(["https://id.example"])] {
        assert_eq!(sent(issuer, json!("shop")), Err(BadCredential::WrongIssuer));
    }
    for audience in [json!("other"), json!([]), json!(["other", 7]), json!(null)] {
        assert_eq!(sent(json!("https://id.example"), audience), Err(BadCredential::WrongAudience));
    }
    assert_eq!(refused(&credentials, &hs256(&good())), BadCredential::WrongIssuer, "none at all");
    let claims = json!({ "exp": START + 60, "iss": "anybody", "aud": "anything" });
    assert!(send(&secret(), &hs256(&claims)).is_ok());
}

#[test]
fn a_set_of_keys_is_used_by_their_ids() {
    let credentials = believing(settings(vec![TokenKey::Jwks(JWKS.into())]));
    let sent = |algorithm, name| send(&credentials, &signed(algorithm, name, &good())).map(|_| ());
    for (algorithm, name) in [
        (Algorithm::RS256, "rsa"),
        (Algorithm::ES256, "p256"),
        (Algorithm::ES384, "p384"),
        (Algorithm::EdDSA, "ed25519"),
    ] {
        assert_eq!(sent(algorithm, Some(name)), Ok(()), "{name}");
        assert_eq!(sent(algorithm, None), Ok(()), "the one that fits");
        assert_eq!(sent(algorithm, Some("unknown")), Err(BadCredential::UnknownSigner));
        for other in ["rsa-enc", "rsa-oaep"] {
            assert_eq!(
                sent(algorithm, Some(other)),
                Err(BadCredential::UnknownSigner),
                "it is for another use"
            );
        }
    }
    assert_eq!(sent(Algorithm::RS512, Some("rsa")), Err(BadCredential::UnknownSigner), "the set says RS256");
    assert_eq!(sent(Algorithm::ES256, Some("p384")), Err(BadCredential::UnknownSigner));
    assert_eq!(sent(Algorithm::ES256, Some("rsa")), Err(BadCredential::UnknownSigner));
}

#[test]
fn keys_can_be_changed_while_tokens_of_the_old_ones_are_about() {
    let keys = vec![
        TokenKey::Secret(vec![b'n'; 32]),
        TokenKey::Secret(SECRET.to_vec()),
        TokenKey::Jwks(JWKS.into()),
    ];
    let credentials = believing(settings(keys));
    assert!(send(&credentials, &hs256(&good())).is_ok());
    assert!(send(&credentials, &signed(Algorithm::HS256, Some("any"), &good())).is_ok());
    assert!(send(&credentials, &signed(Algorithm::RS256, Some("rsa"), &good())).is_ok());
}

#[test]
fn keys_that_cannot_be_used_say_why() {
    let why = |key: TokenKey| Tokens::new(settings(vec![key]), clock()).unwrap_err().to_string();
    assert_eq!(
        why(TokenKey::Secret(b"short".to_vec())),
        "key 1: a secret of 5 bytes can be guessed; it needs at least 32, as `openssl rand -base64 48` gives"
    );
    assert!(why(TokenKey::Pem(RSA_PRIVATE.into())).starts_with("key 1: this is a private key"));
    for text in ["", "nonsense", include_str!("../keys/rsa.certificate.pem")] {
        assert!(
            why(TokenKey::Pem(text.into())).starts_with("key 1: this is not a public key in PEM"),
            "{text}"
        );
    }
    for text in ["", "[]", "{}", r#""s3cret""#, r#"{"keys": 7}"#] {
        let why = why(TokenKey::Jwks(text.into()));
        assert!(why.starts_with("key 1: this is not a set of keys") && !why.contains("s3cret"), "{why}");
    }
    let none = why(TokenKey::Jwks(r#"{"keys": [{"kty":"AKP"}, {"kty":"oct"}]}"#.into()));
    assert!(none.starts_with("key 1: none of the 2 keys of this set can verify signatures"), "{none}");
    let short = why(TokenKey::Jwks(r#"{"keys": [{"kty":"oct","k":"c2hvcnQ"}]}"#.into()));
    assert!(short.starts_with("key 1: a secret of 5 bytes can be guessed"), "{short}");
    let many = vec![TokenKey::Secret(SECRET.to_vec()); Tokens::MOST_KEYS + 1];
    let bad = Tokens::new(settings(many), clock()).unwrap_err();
    assert_eq!(bad.to_string(), "there are 33 keys; at most 32 are allowed");
    assert!(Tokens::new(settings(Vec::new()), clock()).is_err());
}

#[test]
fn secrets_are_not_shown() {
    let settings = settings(vec![TokenKey::Secret(SECRET.to_vec()), TokenKey::Pem(RSA_PUBLIC.into())]);
    let shown = format!("{settings:?} {:?}", believing(settings.clone()));
    let secret = String::from_utf8_lossy(SECRET);
    for hidden in [&*secret, &format!("{SECRET:?}")[1..20], "BEGIN PUBLIC"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    assert!(shown.contains("HS256"), "{shown}");
}

#[test]
fn the_consumer_of_an_api_key_goes_before_that_of_a_token() {
    let key = |consumer: Option<&str>| ApiKey {
        name: "ci".into(),
        consumer: consumer.map(Into::into),
        hash: <sha2::Sha256 as sha2::Digest>::digest("key").into(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {}", hs256(&good()))).unwrap());
    headers.insert(X_API_KEY, HeaderValue::from_static("key"));
    for (entry, consumer) in [(Some("builds"), "builds"), (None, "alice")] {
        let keys = ApiKeys::new(X_API_KEY, vec![key(entry)]).unwrap();
        let tokens = Tokens::new(settings(vec![TokenKey::Secret(SECRET.to_vec())]), clock()).unwrap();
        let identity = Credentials::new(Some(keys), Some(tokens)).recognise(&headers).unwrap();
        assert_eq!(identity.consumer.as_deref(), Some(consumer));
        assert_eq!((identity.api_key.as_deref(), identity.subject.as_deref()), (Some("ci"), Some("alice")));
    }
}

#[test]
fn a_remembered_token_keeps_its_own_identity() {
    // More tokens than slots, so that many share one.
    let credentials = secret();
    let count = Tokens::MOST_REMEMBERED + 100;
    let tokens: Vec<String> =
        (0..count).map(|n| hs256(&json!({ "sub": n.to_string(), "exp": START + 60 }))).collect();
    for _ in 0..2 {
        for (n, token) in tokens.iter().enumerate() {
            assert_eq!(send(&credentials, token).unwrap().subject.as_deref(), Some(&*n.to_string()));
        }
    }
}

proptest! {
    #[test]
    fn no_other_text_is_believed(
        at in any::<prop::sample::Index>(), byte in "[A-Za-z0-9._=-]", remembered: bool,
    ) {
        let credentials = secret();
        let token = hs256(&good());
        if remembered {
            prop_assert!(send(&credentials, &token).is_ok());
        }
        let at = at.index(token.len());
        let other = format!("{}{byte}{}", &token[..at], &token[at + 1..]);
        prop_assert_eq!(send(&credentials, &other).is_ok(), other == token);
    }

    #[test]
    fn whatever_is_sent_nothing_breaks(text in "[ -~]{0,80}", head in "\\PC{0,20}", claims in "\\PC{0,20}") {
        prop_assert!(send(&secret(), &text).is_err() || text.trim().is_empty());
        prop_assert!(send(&secret(), &by_hand(&head, &claims)).is_err());
    }
}
