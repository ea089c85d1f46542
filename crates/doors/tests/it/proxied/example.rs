//! Starts proxies from the examples in the documentation.

use std::path::Path;

use tollgate_testbed::{Front, FrontOptions, Port};

/// A proxy that has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    Nginx,
    Caddy,
    Haproxy,
}

/// What a proxy does without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Refuse,
    Pass,
}

impl Proxy {
    /// Starts it from its example. `change` replaces the addresses of the other servers. Without a token, the
    /// example's own stays.
    pub fn start(self, change: impl Fn(&str) -> String, without: Without, token: Option<&str>) -> Front {
        let text = change(&self.example(without));
        let port = |port: u16| format!("127.0.0.1:{port}");
        let with_token = |front: FrontOptions| match token {
            Some(token) => front.variable("TOLLGATE_TOKEN", token),
            None => front,
        };
        match self {
            Self::Nginx => Front::nginx().start(|own, _| {
                let text = replace(&text, "listen 80;", &format!("listen {};", port(own)));
                token.map_or(text.clone(), |token| {
                    replace(&text, "X-Tollgate-Token \"\"", &format!("X-Tollgate-Token \"{token}\""))
                })
            }),
            Self::Caddy => {
                let silent = Port::claim();
                with_token(Front::caddy()).start(move |own, _| {
                    let text = replace(&text, "\tservers {", "\tadmin off\n\tservers {");
                    let text = replace(&text, "127.0.0.1:8079", &port(silent.number()));
                    replace(&text, ".example.com {", &format!(".example.com:{own} {{"))
                })
            }
            Self::Haproxy => with_token(Front::haproxy()).start(|own, home: &Path| {
                // Abstract socket names are visible to the whole machine.
                let socket = format!("abns@tollgate-{own}");
                let script = replace(&self.script(without), "abns@tollgate", &socket);
                let script = replace(&script, "timeout = 3000", "timeout = 30000");
                std::fs::write(home.join("tollgate.lua"), script).unwrap();
                let text = replace(&text, "bind :80", &format!("bind {}", port(own)));
                let text = replace(&text, "/etc/haproxy", &home.display().to_string());
                replace(&text, "abns@tollgate", &socket)
            }),
        }
    }

    /// The example, changed to let requests pass without a response if `without` says so.
    fn example(self, without: Without) -> String {
        let open = |text: &str, lines: &[&str]| match without {
            Without::Refuse => text.to_owned(),
            Without::Pass => {
                lines.iter().fold(text.to_owned(), |text, line| replace(&text, &format!("# {line}"), line))
            }
        };
        match self {
            Self::Nginx => open(&read("nginx.conf"), &["error_page 502 504 = @tollgate_silent;"]),
            Self::Caddy => {
                let lines = ["to 127.0.0.1:8079", "lb_policy first", "lb_retries 1", "fail_duration 2s"];
                open(&read("Caddyfile"), &lines)
            }
            Self::Haproxy => read("haproxy.cfg"),
        }
    }

    /// The script that HAProxy runs.
    fn script(self, without: Without) -> String {
        let text = read("tollgate.lua");
        match without {
            Without::Refuse => text,
            Without::Pass => replace(&text, "WITHOUT_ANSWER = \"refuse\"", "WITHOUT_ANSWER = \"pass\""),
        }
    }
}

/// An example.
fn read(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/forward-auth");
    std::fs::read_to_string(directory.join(name)).unwrap()
}

/// Replaces a text that must occur.
fn replace(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the example does not say `{from}` any more");
    text.replace(from, to)
}
