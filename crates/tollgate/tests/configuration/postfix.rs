//! The section of the Postfix policy service: what it means, and the exact words in which mistakes are refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate::config::{self, Config, Format};
use tollgate_postfix::PolicyAddress;

const RULES: &str = "
store: memory
rules:
  sender: { by: sender, limits: 100/hour }
  user: { by: user, limits: 100/hour }
  held: { by: sender, limits: 5 at once for 60s }
  key: { by: api_key, limits: 5/hour }
  domain: { by: domain, limits: 5/hour }
fields: { domain: { of: sender } }
policies: { mail.accept: [sender, domain], mail.submit: [user], mail.held: [held], mail.key: [key] }
";

fn try_load(sections: &str) -> Result<Config, String> {
    let text = format!("{RULES}{sections}\n");
    let loaded = config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty());
    loaded.map_err(|error| error.to_string())
}

/// The first message, behind its place.
fn refused(sections: &str) -> String {
    let error = try_load(sections).unwrap_err();
    let (_, message) = error.split_once("t.yaml:").unwrap();
    message.split_once(": ").unwrap().1.lines().next().unwrap().to_owned()
}

fn warnings(sections: &str) -> Vec<String> {
    try_load(sections).unwrap().own_warnings().into_iter().map(|warning| warning.message).collect()
}

#[test]
fn the_section_means_what_it_says() {
    let config = try_load(
        "listen: { postfix: 'unix:/run/tollgate/policy' }
postfix: { policy: mail.accept, contexts: { submission: mail.submit }, ports: { 587: mail.submit }, max_connections: 7 }",
    )
    .unwrap();
    let postfix = config.postfix.unwrap();
    assert_eq!(postfix.address, PolicyAddress::Unix("/run/tollgate/policy".into()));
    let settings = postfix.settings;
    assert_eq!((&*settings.policy, settings.max_connections), ("mail.accept", 7));
    assert_eq!(settings.contexts.get("submission").map(|name| &**name), Some("mail.submit"));
    assert_eq!(settings.ports.get(&587).map(|name| &**name), Some("mail.submit"));
    let config = try_load("listen: { postfix: 127.0.0.1:0 }\npostfix: { policy: mail.accept }").unwrap();
    assert_eq!(config.postfix.unwrap().settings.max_connections, 1_000);
    assert!(try_load("").unwrap().postfix.is_none());
}

#[test]
fn mistakes_are_refused_with_a_remedy() {
    let at = "listen: { postfix: 127.0.0.1:10031 }\n";
    for (sections, expected) in [
        (
            "postfix: { policy: mail.accept }".to_owned(),
            "postfix: Postfix cannot connect: add its listener, as in `listen: { postfix: 127.0.0.1:10031 }`",
        ),
        (
            at.to_owned(),
            "listen.postfix: no policy decides requests of Postfix: add one, as in `postfix: { policy: mail.accept }`",
        ),
        (
            format!("{at}postfix: {{ policy: mail.acept }}"),
            "postfix.policy: there is no policy `mail.acept`; did you mean `mail.accept`?",
        ),
        (
            format!("{at}postfix: {{ policy: mail.accept, contexts: {{ submission: mail.submitt }} }}"),
            "postfix.contexts.submission: there is no policy `mail.submitt`; did you mean `mail.submit`?",
        ),
        (
            format!("{at}postfix: {{ policy: mail.key }}"),
            "postfix.policy: policy `mail.key` uses the field `api_key`, which no request of Postfix has: the fields here are `ip`",
        ),
        (
            format!("{at}postfix: {{ policy: mail.accept, ports: {{ submission: mail.submit }} }}"),
            "postfix.ports.submission: `submission` is not a port, as in `587`",
        ),
        (
            format!("{at}postfix: {{ policy: mail.accept, max_connections: 0 }}"),
            "postfix.max_connections: `0` is too little or too much: write a number from 1 to 100000",
        ),
        (
            "listen: { postfix: localhost:10031 }\npostfix: { policy: mail.accept }".to_owned(),
            "listen.postfix: `localhost:10031` is neither an address and a port, as in `127.0.0.1:10031`, nor a socket, as in `unix:/run/tollgate/policy`",
        ),
        (
            "listen: { postfix: 'unix:policy' }\npostfix: { policy: mail.accept }".to_owned(),
            "listen.postfix: `unix:policy` does not name a socket: write its whole path, as in `unix:/run/tollgate/policy`",
        ),
        (
            "listen: { postfix: 127.0.0.1:8080 }\npostfix: { policy: mail.accept }".to_owned(),
            "listen.postfix: `127.0.0.1:8080` is where the HTTP interface listens: give one of them another port",
        ),
    ] {
        let said = refused(&sections);
        assert!(said.starts_with(expected), "{sections}\n{said}");
    }
}

#[test]
fn valid_but_doubtful_settings_give_warnings() {
    let said = warnings("listen: { postfix: 0.0.0.0:10031 }\npostfix: { policy: mail.held }");
    assert!(said[0].contains("`0.0.0.0:10031` can be reached from other machines"), "{said:?}");
    assert!(
        said[1].contains("policy `mail.held` has a limit `at once`, which never applies here"),
        "{said:?}"
    );
    assert_eq!(warnings("listen: { postfix: '[::1]:10031' }\npostfix: { policy: mail.accept }"), [""; 0]);
}
