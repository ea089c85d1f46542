//! Serves the configurations that pages show, and runs the transcripts below each of them.
//!
//! Configurations are served on free ports, with counters in memory. A configuration may name addresses of this machine:
//! `127.0.0.1:9000` is the service of the examples, and `127.0.0.1:8000` is the gateway of the configuration before it. A block without policies is added to the first configuration of its page.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

use crate::pages::Page;
use crate::server::{Server, root};
use crate::transcript::{self, Places};

/// The variables that the configurations of pages name.
pub(crate) const SECRETS: [(&str, &str); 13] = [
    ("ACME_PASSWORD", "a-password-at-a-provider"),
    ("APP_PASSWORD", "a-password-of-an-application"),
    ("ACME_API_KEY", "a-key-of-a-consumer"),
    ("ACME_SECOND_API_KEY", "another-key-of-a-consumer"),
    ("TOLLGATE_ADMIN_TOKEN", "a-token-of-the-admin"),
    ("TOLLGATE_CHECK_TOKEN", "a-token-of-a-checker"),
    ("TOLLGATE_READ_TOKEN", "a-token-of-a-reader"),
    ("TOLLGATE_TOKEN_SECRET", "a-secret-that-both-sides-of-a-token-know"),
    ("TOLLGATE_KEY_SECRET", "a-secret-that-all-nodes-know"),
    ("TOLLGATE_REDIS_PASSWORD", "a-password"),
    ("TOLLGATE_DB_PASSWORD", "a-password"),
    ("SHOP_DATABASE_URL", "postgres://tollgate_reader@localhost/shop"),
    ("TOLLGATE_WEBHOOK_SECRET", "a-secret-that-a-webhook-knows"),
];

/// The value of one of them.
pub(crate) fn secret(name: &str) -> &'static str {
    SECRETS.iter().find(|(known, _)| *known == name).unwrap().1
}

/// Serves the configuration in this file, with more variables.
pub(crate) fn serve(config: &Path, more: &[(&str, &str)]) -> Server {
    let text = std::fs::read_to_string(config).unwrap();
    let has = |section: &str| text.lines().any(|line| line.starts_with(section));
    let queue = config.with_file_name("queue").display().to_string();
    let mut variables = SECRETS.to_vec();
    if has("gateway:") {
        variables.push(("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0"));
    }
    if has("relay:") {
        variables.push(("TOLLGATE__RELAY__LISTEN", "[{ smtp: '127.0.0.1:0' }]"));
        variables.push(("TOLLGATE__RELAY__QUEUE__DIR", &queue));
        variables.push(("TOLLGATE__RELAY__QUEUE__MIN_FREE", "0"));
    }
    if has("postfix:") {
        variables.push(("TOLLGATE__LISTEN__POSTFIX", "127.0.0.1:0"));
    }
    variables.extend(more);
    Server::start(Some(config), &variables)
}

/// The service that the examples call: `examples/shop/shop.py`. It ends with the test.
pub(crate) struct Shop {
    process: Child,
    pub(crate) address: String,
}

impl Shop {
    pub(crate) fn open() -> Self {
        let mut process = Command::new("python3")
            .arg(root().join("examples/shop/shop.py"))
            .arg("0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listens on http://").unwrap().to_owned();
        Self { process, address }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A token of ada, as the configuration of the page accepts it.
fn token() -> String {
    let claims = json!({ "sub": "ada", "iss": "https://login.example.com", "exp": 4_000_000_000_u64 });
    let secret = secret("TOLLGATE_TOKEN_SECRET");
    encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
}

/// The addresses of a server and of the service, and the values of the variables in commands.
fn places(server: &Server, shop: &Shop) -> Places {
    let mut places = transcript::places(server, None);
    if let Some(gateway) = &server.gateway {
        places.push(("127.0.0.1:8000", gateway.clone()));
        places.push(("http://localhost/", format!("http://{gateway}/")));
    }
    places.push(("127.0.0.1:9000", shop.address.clone()));
    places.push(("$ACME_API_KEY", secret("ACME_API_KEY").to_owned()));
    places.push(("$TOKEN", token()));
    places
}

/// Serves the configurations of a page in turn, and runs the transcripts below each. Returns how many commands ran, and
/// where their output differs.
pub(crate) fn run(page: &Page) -> (usize, Vec<String>) {
    let (shop, home) = (Shop::open(), transcript::directory());
    let mut places: Places = vec![("127.0.0.1:9000", shop.address.clone())];
    let (mut servers, mut first) = (Vec::new(), None);
    let (mut ran, mut wrong) = (0, Vec::new());
    for (number, block) in page.blocks().into_iter().enumerate() {
        if block.is_config() {
            let first = first.get_or_insert_with(|| block.text.clone());
            let text =
                if block.text.contains("policies:") { block.text } else { format!("{first}{}", block.text) };
            let text = places.iter().fold(text, |text, (said, real)| text.replace(said, real));
            let file = home.path().join(format!("{number}.{}", block.language));
            std::fs::write(&file, text).unwrap();
            let server = serve(&file, &[]);
            places = self::places(&server, &shop);
            servers.push(server);
        } else if block.language == "console" {
            for step in transcript::steps(&block.text) {
                ran += 1;
                if let Err(difference) = transcript::run(&step, &places, home.path()) {
                    wrong.push(format!("{}:{}: {difference}", page.name(), block.line));
                }
            }
        }
    }
    (ran, wrong)
}
