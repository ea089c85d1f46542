//! A gateway's certificate is renewed while it serves: the files are written, and the program is signalled.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;

use crate::program::{Home, Server, Signal, text, wait_until};
use crate::upstream::Upstream;
use serde_json::json;

/// A certificate for loopback and its key, both as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Identity {
    fn new() -> Self {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        Self { certificate: certified.cert.pem(), key: certified.signing_key.serialize_pem() }
    }

    fn write(&self, home: &Home) {
        std::fs::write(home.path("certificate.pem"), &self.certificate).unwrap();
        std::fs::write(home.path("key.pem"), &self.key).unwrap();
    }

    /// The file that curl trusts.
    fn trusted(&self, home: &Home, name: &str) -> std::path::PathBuf {
        std::fs::write(home.path(name), &self.certificate).unwrap();
        home.path(name)
    }
}

fn configure(home: &Home, upstream: &Upstream) {
    home.configure(&format!(
        "store: memory
rules: {{ all: {{ limits: 1000/day }} }}
policies: {{ p: [all] }}
gateway:
  listen: {{ address: 127.0.0.1:0, tls: {{ certificate: {}, key: {} }} }}
  upstreams: {{ shop: {} }}
  routes: {{ all: {{ path: /*, upstream: shop, policy: p }} }}
",
        home.path("certificate.pem").display(),
        home.path("key.pem").display(),
        upstream.address
    ));
}

/// The status of a response from a server with this certificate; `None` if there is none.
fn status(server: &Server, trusted: &Path) -> Option<u16> {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "20", "--output", "/dev/null", "--write-out", "%{http_code}"])
        .arg("--cacert")
        .arg(trusted)
        .arg(format!("https://{}/", server.gateways[0]))
        .output()
        .unwrap();
    output.status.success().then(|| text(&output.stdout).parse().unwrap())
}

#[test]
fn a_renewed_certificate_is_shown_after_a_reload() {
    let (home, upstream) = (Home::empty(), Upstream::start());
    let [old, new] = [(); 2].map(|()| Identity::new());
    let [trust_old, trust_new] = [old.trusted(&home, "old.pem"), new.trusted(&home, "new.pem")];
    old.write(&home);
    configure(&home, &upstream);
    let server = home.start();
    assert_eq!([&trust_old, &trust_new].map(|trusted| status(&server, trusted)), [Some(200), None]);
    new.write(&home);
    server.signal(Signal::HUP);
    wait_until("the new certificate", || status(&server, &trust_new) == Some(200));
    assert_eq!(status(&server, &trust_old), None);
    assert!(!server.log().contains("needs a restart"), "{}", server.log());
}

#[test]
fn a_certificate_that_does_not_go_with_its_key_changes_nothing() {
    let (home, upstream) = (Home::empty(), Upstream::start());
    let [old, new] = [(); 2].map(|()| Identity::new());
    let trust_old = old.trusted(&home, "old.pem");
    old.write(&home);
    configure(&home, &upstream);
    let server = home.start();
    std::fs::write(home.path("certificate.pem"), &new.certificate).unwrap();
    let refused = server.post("/api/v1/reload", &json!({}));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("the key is not the one"), "{}", refused.text());
    assert_eq!(status(&server, &trust_old), Some(200));
}
