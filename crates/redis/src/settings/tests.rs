//! Valid and invalid URLs.

use super::*;

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

fn parsed(url: &str) -> Settings {
    Settings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn single(address: Address) -> Topology {
    Topology::Single(address)
}

#[test]
fn one_server_is_at_a_host_or_a_socket() {
    let table = [
        ("redis://localhost", tcp("localhost", 6379), 0),
        ("valkey://valkey.example.com:6380/3", tcp("valkey.example.com", 6380), 3),
        ("redis://127.0.0.1/", tcp("127.0.0.1", 6379), 0),
        ("redis://[::1]", tcp("::1", 6379), 0),
        ("redis://[2001:db8::1]:7000/15", tcp("2001:db8::1", 7000), 15),
        ("redis://host?db=2", tcp("host", 6379), 2),
        ("unix:/run/redis.sock", Address::Unix("/run/redis.sock".into()), 0),
        ("unix:///run/a@b/redis.sock?db=4", Address::Unix("/run/a@b/redis.sock".into()), 4),
        ("unix:./redis.sock", Address::Unix("./redis.sock".into()), 0),
        ("redis+unix:///run/with%20space", Address::Unix("/run/with space".into()), 0),
        ("valkey+unix:///run/v.sock", Address::Unix("/run/v.sock".into()), 0),
    ];
    for (url, address, database) in table {
        let settings = parsed(url);
        assert_eq!((settings.topology, settings.database), (single(address), database), "{url}");
        assert_eq!((settings.tls, settings.user, settings.password), (None, None, None), "{url}");
    }
}

#[test]
fn several_servers_are_sentinels_or_a_cluster() {
    let settings = parsed("redis+sentinel://a,b:1,[::1]:2/main/5");
    let sentinels = vec![tcp("a", 26379), tcp("b", 1), tcp("::1", 2)];
    assert_eq!(settings.topology, Topology::Sentinel { sentinels, service: "main".to_owned() });
    assert_eq!((settings.database, settings.tls), (5, None));
    let settings = parsed("valkeys+cluster://u:p@a:1,b/");
    assert_eq!(settings.topology, Topology::Cluster { seeds: vec![tcp("a", 1), tcp("b", 6379)] });
    assert_eq!((settings.tls, settings.user.as_deref()), (Some(Tls::default()), Some("u")));
}

#[test]
fn a_login_is_before_the_host_and_may_be_escaped() {
    let table = [
        ("redis://:secret@h", None, Some("secret")),
        ("redis://u:secret@h", Some("u"), Some("secret")),
        ("redis://u@h", Some("u"), None),
        ("redis://@h", None, None),
        ("redis://u:p:q@r@h", Some("u"), Some("p:q@r")),
        ("redis://%75:p%2F%3f%23%40%25%C3%A9@h", Some("u"), Some("p/?#@%é")),
        ("redis+unix://u:secret@/run/x", Some("u"), Some("secret")),
        ("redis+sentinel://:secret@a,b/main", None, Some("secret")),
    ];
    for (url, user, password) in table {
        let settings = parsed(url);
        assert_eq!(settings.user.as_deref(), user, "{url}");
        assert_eq!(settings.password.as_ref().map(|password| password.0.as_str()), password, "{url}");
    }
}

#[test]
fn an_s_is_for_tls_and_nothing_else_turns_it_on() {
    for (url, tls) in
        [("redis://h", false), ("rediss://h", true), ("valkey://h", false), ("valkeys://h", true)]
    {
        assert_eq!(parsed(url).tls, tls.then(Tls::default), "{url}");
    }
    assert!(parsed("rediss+sentinel://h/main").tls.is_some());
    assert!(parsed("rediss+cluster://h").tls.is_some());
}

#[test]
fn an_invalid_address_is_refused() {
    let shown = |scheme: &str| UrlError::UnknownScheme { scheme: Some(scheme.to_owned()) };
    let hidden = UrlError::UnknownScheme { scheme: None };
    let table = [
        ("", UrlError::NoScheme),
        ("localhost", UrlError::NoScheme),
        ("redis:localhost", UrlError::NoScheme),
        ("localhost:6379", UrlError::NoScheme),
        ("http://h", shown("http")),
        ("redis+sentinels://h/main", shown("redis+sentinels")),
        ("hunter2:secret@h", UrlError::NoScheme),
        ("hunter2://h", hidden),
        ("redis://", UrlError::NoHost),
        ("redis://:6379", UrlError::NoHost),
        ("redis://u:p@", UrlError::NoHost),
        ("redis+cluster://a,,b", UrlError::NoHost),
        ("redis://a b", UrlError::BadHost),
        ("redis://[::1", UrlError::BadHost),
        ("redis://[h]:1", UrlError::BadHost),
        ("redis://[::1]x", UrlError::BadHost),
        ("redis://h:0", UrlError::BadPort { port: None }),
        ("redis://h:", UrlError::BadPort { port: None }),
        ("redis://:s@h:65536", UrlError::BadPort { port: Some("65536".to_owned()) }),
        ("redis://user:hunter2", UrlError::BadPort { port: None }),
        ("redis://::1", UrlError::NoHost),
        ("redis://h/x", UrlError::BadDatabase),
        ("redis://h/1/2", UrlError::BadDatabase),
        ("redis://h/-1", UrlError::BadDatabase),
        ("redis://h/1?db=1", UrlError::TwoDatabases),
        ("unix:/a?db=1&db=1", UrlError::TwoDatabases),
        ("redis+cluster://h/1", UrlError::DatabaseOfCluster),
        ("unix:", UrlError::NoSocket),
        ("unix://", UrlError::NoSocket),
        ("redis+unix://h/run/x", UrlError::HostOfSocket),
        ("rediss+unix:///run/x", UrlError::TlsOnSocket),
        ("redis+sentinel://h", UrlError::NoService),
        ("redis+sentinel://h/", UrlError::NoService),
        ("redis+sentinel://h//1", UrlError::NoService),
        ("redis://a,b", UrlError::SeveralHosts),
        ("redis://h?protocol=3", UrlError::UnknownParameter),
        ("redis://h#x", UrlError::Fragment),
        ("redis://:hun/ter2@h", UrlError::UnescapedLogin),
        ("redis://:hun#ter2@h", UrlError::UnescapedLogin),
        ("redis://:hun?ter2@h", UrlError::UnescapedLogin),
        ("redis://:%zz@h", UrlError::BadEscape),
        ("redis://:%4@h", UrlError::BadEscape),
        ("redis://:%ff@h", UrlError::BadEscape),
    ];
    for (url, error) in table {
        assert_eq!(Settings::parse(url), Err(error), "{url}");
    }
}

#[test]
fn a_password_does_not_show_itself() {
    let settings = parsed("redis://u:hunter2@h");
    assert!(!format!("{settings:?}").contains("hunter2"));
    let slips = [
        "redis://:hunter2",
        "redis://u:hunter2",
        "redis://:hunter2/@h",
        "redis://:hun?hunter2@h",
        "redis://:hunter2@",
        "redis://:hunter2@h:x",
        "redis://:hunter2@h/x",
        "redis://:hunter2@a,b",
        "redis://:hunter2%@h",
        "reddis://:hunter2@h",
        "hunter2:x",
        "hunter2://x",
        "u:hunter2@h",
        "redis+unix://:hunter2@h/x",
    ];
    for url in slips {
        let error = Settings::parse(url).expect_err(url);
        assert!(!error.to_string().contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn an_address_shows_itself_as_it_is_written() {
    assert_eq!(tcp("::1", 1).to_string(), "[::1]:1");
    assert_eq!(tcp("h", 1).to_string(), "h:1");
    assert_eq!(Address::Unix("/run/x".into()).to_string(), "/run/x");
}
