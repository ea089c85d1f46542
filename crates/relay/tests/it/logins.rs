//! Logins through a real connection: TLS, tenants, and a guard's ladder.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{self, Client, Stand, guarded, plain, policies, rule};
use tollgate_relay::server::{BadUsers, PasswordHash, User, Users};

fn strangers(policies: tollgate_core::Policies) -> Stand {
    Stand::new(policies, |settings| settings.networks.clear())
}

#[test]
fn a_user_sends_for_its_tenant_and_from_its_domains() {
    let rules = vec![rule("user", &["user"], &["2/hour"]), rule("ip", &["ip"], &["100/hour"])];
    let stand = strangers(policies(rules, &[("accept", &["user", "ip"])]));
    let mut client = stand.secured();
    assert_eq!(client.ask(&plain("app", "secret")), "235 2.7.0 Authentication successful");
    assert_eq!(client.ask("MAIL FROM:<a@globex.example>"), "550 5.7.1 You may not send as globex.example");
    for _ in 0..2 {
        assert!(client.message("a@acme.EXAMPLE", &["b@y.test"]).starts_with("250"));
    }
    assert!(
        client
            .message("a@acme.example", &["b@y.test"])
            .starts_with("451 4.7.1 Rate limit exceeded: user app, 2/hour;")
    );
    let (envelope, text) = stand.intake.kept().remove(0);
    assert_eq!(envelope.tenant, "acme");
    assert!(String::from_utf8(text).unwrap().contains(" with ESMTPSA id "));
    let mut other = Client::connect(stand.secure_address);
    other.secure();
    other.expect("220 relay.test ESMTP tollgate");
    other.ask("EHLO client.test");
    assert_eq!(other.ask(&plain("other", "sesame")), "235 2.7.0 Authentication successful");
    assert!(other.message("a@any.example", &["b@y.test"]).starts_with("250"));
    assert_eq!(stand.intake.kept()[2].0.tenant, "globex");
}

#[test]
fn commands_sent_with_starttls_are_discarded() {
    let stand = strangers(policies(vec![], &[]));
    let mut client = stand.greeted();
    client.send("STARTTLS\r\nNOOP\r\nMAIL FROM:<injected@x.test>\r\n");
    client.expect("220 2.0.0 Ready to start TLS");
    client.secure();
    // The first reply inside TLS is to the first command inside TLS.
    assert_eq!(client.ask("VRFY a"), "252 2.5.0 Cannot verify; send the message");
}

#[test]
fn a_login_without_tls_or_with_a_wrong_password_fails() {
    let stand = strangers(policies(vec![], &[]));
    let mut client = stand.greeted();
    assert_eq!(client.ask(&plain("app", "secret")), "538 5.7.11 Encryption required: begin TLS first");
    let mut client = stand.secured();
    for login in
        [plain("app", "Secret"), plain("App", "secret"), plain("nobody", "secret"), plain("other", "secret")]
    {
        assert_eq!(client.ask(&login), "535 5.7.8 Authentication failed");
    }
    assert_eq!(client.ask("MAIL FROM:<a@acme.example>"), "530 5.7.0 Authentication required");
    assert_eq!(client.ask(&plain("app", "wrong")), "421 4.7.0 Too many failed logins");
    assert!(client.is_closed());
}

#[test]
fn failures_lock_an_account_across_connections_until_time_has_passed() {
    let rules = vec![
        rule("account", &["user"], &["ladder 3 lock 15m forget 15m"]),
        rule("address", &["ip"], &["ladder 100 lock 1h"]),
    ];
    let stand = strangers(guarded(rules, &["account", "address"]));
    for _ in 0..3 {
        assert_eq!(stand.secured().ask(&plain("app", "guess")), "535 5.7.8 Authentication failed");
    }
    let locked = "454 4.7.0 Too many failed logins; try again in 900 s";
    assert_eq!(stand.secured().ask(&plain("app", "guess")), locked);
    assert_eq!(stand.secured().ask(&plain("app", "secret")), locked, "the right password does not help");
    assert_eq!(stand.secured().ask(&plain("other", "sesame")), "235 2.7.0 Authentication successful");
    stand.advance(901);
    assert_eq!(stand.secured().ask(&plain("app", "secret")), "235 2.7.0 Authentication successful");
    assert_eq!(
        stand.secured().ask(&plain("app", "guess")),
        "535 5.7.8 Authentication failed",
        "the ladder was cleared"
    );
}

#[test]
fn a_client_that_tries_one_wrong_password_with_every_mechanism_fails_once() {
    let rules = vec![rule("account", &["user"], &["ladder 2 lock 15m forget 15m"])];
    let stand = strangers(guarded(rules, &["account"]));
    let in_base64 = |text: &str| data_encoding::BASE64.encode(text.as_bytes());
    let try_login = |client: &mut support::Client, password: &str| {
        client.ask("AUTH LOGIN");
        client.ask(&in_base64("app"));
        client.ask(&in_base64(password))
    };
    // As `smtplib.SMTP.login` of Python does.
    let mut client = stand.secured();
    assert_eq!(client.ask(&plain("app", "guess")), "535 5.7.8 Authentication failed");
    assert_eq!(try_login(&mut client, "guess"), "535 5.7.8 Authentication failed");
    assert_eq!(
        stand.secured().ask(&plain("app", "secret")),
        "235 2.7.0 Authentication successful",
        "one failure of two"
    );
    // Another password is another failure.
    let mut client = stand.secured();
    assert_eq!(client.ask(&plain("app", "guess")), "535 5.7.8 Authentication failed");
    assert_eq!(try_login(&mut client, "other"), "535 5.7.8 Authentication failed");
    assert!(stand.secured().ask(&plain("app", "secret")).starts_with("454 4.7.0"), "two failures");
}

#[test]
fn failures_lock_an_address_whatever_the_account() {
    let stand = strangers(guarded(vec![rule("address", &["ip"], &["ladder 4 lock 1h"])], &["address"]));
    for number in 0..4 {
        let reply = stand.secured().ask(&plain(&format!("user{number}"), "guess"));
        assert_eq!(reply, "535 5.7.8 Authentication failed");
    }
    assert!(stand.secured().ask(&plain("app", "secret")).starts_with("454 4.7.0"));
}

#[test]
fn a_success_is_no_failure() {
    let stand = strangers(guarded(vec![rule("account", &["user"], &["ladder 3 lock 15m"])], &["account"]));
    for _ in 0..10 {
        assert!(stand.secured().ask(&plain("app", "secret")).starts_with("235"));
    }
    // While the guard is missing, every login fails.
    let stand = Stand::new(policies(vec![], &[]), |settings| settings.guard = Some("login".into()));
    assert_eq!(stand.secured().ask(&plain("app", "secret")), "454 4.7.0 Temporary authentication failure");
}

#[test]
fn passwords_are_kept_as_hashes() {
    let hash = PasswordHash::of("secret");
    assert_eq!(PasswordHash::read(&hash.written()), Some(hash.clone()));
    assert_ne!(PasswordHash::of("secret"), hash, "each has its own salt");
    // From Python: hashlib.pbkdf2_hmac('sha256', b'secret', b'saltsalt', 1000)
    let foreign = "pbkdf2-sha256$1000$c2FsdHNhbHQ=$hgR9HsqtKupWxpnv8y99TrPDajTT/9PcSTlNafpdLXQ=";
    let user = |name: &str, password: PasswordHash, senders: &[&str]| User {
        name: name.into(),
        tenant: "t".into(),
        senders: senders.iter().map(|domain| (*domain).to_owned()).collect(),
        password,
    };
    let users = Users::new(vec![user("a", PasswordHash::read(foreign).unwrap(), &[])]).unwrap();
    assert!(users.identify("a", "secret").is_some() && users.identify("a", "Secret").is_none());
    for wrong in ["secret", "pbkdf2-sha256$0$AA==$AA==", "pbkdf2-sha256$1000$AA==$AA==", "md5$1$AA==$AA=="] {
        assert_eq!(PasswordHash::read(wrong), None);
    }
    let shown = format!("{:?}", user("a", hash.clone(), &[]));
    assert!(!shown.contains(&hash.written()[20..]), "{shown}");
    let twice = Users::new(vec![user("a", hash.clone(), &[]), user("a", hash.clone(), &[])]);
    assert_eq!(twice.unwrap_err(), BadUsers::Twice { name: "a".into() });
    assert!(Users::new(vec![user("a", hash, &["not a domain"])]).is_err());
}
