//! Blocks of the guides that are neither transcripts nor complete configurations: shell lines, and parts of
//! configurations of tollgate and of other programs. Each is executed. `documentation/covered.rs` names the test of each
//! block.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::shown;
use crate::transcript;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::pages::{Block, Page};
use crate::program::{self, Connection, Home};
use crate::server::root;
use serde_json::{Value, json};
use tollgate_testbed::{Front, Server as Redis};

/// The blocks of a page in a language, or its fragments.
fn blocks(page: &str, language: &str) -> Vec<Block> {
    let (language, fragment) =
        language.strip_suffix(" fragment").map_or((language, false), |name| (name, true));
    let blocks = Page::at(page).blocks().into_iter();
    let found: Vec<Block> =
        blocks.filter(|block| block.language == language && block.fragment == fragment).collect();
    assert!(!found.is_empty(), "{page} has no {language}");
    found
}

/// The only block of a page in a language.
fn block(page: &str, language: &str) -> String {
    let mut found = blocks(page, language);
    assert_eq!(found.len(), 1, "{page}: {language}");
    found.remove(0).text
}

/// A shell line that serves, and what it printed up to the address.
struct Serving {
    process: Child,
    printed: String,
    address: String,
}

impl Serving {
    /// Runs a line in a directory, on a free port.
    fn line(line: &str, directory: &Path, more: &[(&str, &str)]) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
        assert!(line.contains("tollgate serve"), "{line}");
        let mut process = Command::new("sh")
            .args(["-c", &line.replace("tollgate serve", "exec tollgate serve")])
            .current_dir(directory)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
            .env("TOLLGATE__LISTEN__HTTP", "127.0.0.1:0")
            .envs(more.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
        let (mut printed, mut address) = (String::new(), None);
        // The line after the address has a request to try.
        while address.is_none() || !printed.contains("\ntry: ") {
            let line = lines.next().unwrap_or_else(|| panic!("`{line}` does not serve: {printed}"));
            if line.starts_with("tollgate ") {
                address = line.split_once(" listens on http://").map(|(_, address)| address.to_owned());
            }
            printed.push_str(&line);
            printed.push('\n');
        }
        drop(lines);
        Self { process, printed, address: address.unwrap() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_first_start_prints_what_the_page_shows() {
    let page = "docs/guides/first-steps.md";
    let line = block(page, "sh").replace("cargo run --release -- serve", "tollgate serve");
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::line(&line, directory.path(), &[]);
    assert_eq!(serving.printed.replace(&serving.address, "127.0.0.1:8080"), block(page, "text"));
}

#[test]
fn the_python_client_is_installed_and_served_as_the_page_says() {
    let page = "docs/clients/python.md";
    let lines = blocks(page, "sh");
    let [install, serve] = &lines[..] else { panic!("{} lines", lines.len()) };
    let directory = tempfile::tempdir().unwrap();
    let packages = directory.path().join("packages");
    let output = Command::new("sh")
        .args(["-c", &install.text])
        .current_dir(root())
        .env("PATH", format!("{}:/usr/bin:/bin", root().join(".venv/bin").display()))
        // Into a directory of the test, and without the network.
        .env("PIP_TARGET", &packages)
        .env("PIP_NO_BUILD_ISOLATION", "0")
        .env("PIP_NO_INDEX", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let config = Page::at(page).blocks().into_iter().find(Block::is_config).unwrap();
    std::fs::write(directory.path().join("tollgate.yaml"), config.text).unwrap();
    let more = [("TOLLGATE__RELAY__LISTEN", "[{ smtp: '127.0.0.1:0' }]")];
    let serving = Serving::line(&serve.text, directory.path(), &more);
    let program = "import sys; from tollgate import Client; print(Client(sys.argv[1]).check('api', ip='192.0.2.7').allowed)";
    let output = Command::new(root().join(".venv/bin/python"))
        .args(["-c", program, &format!("http://{}", serving.address)])
        .env_clear()
        .env("PYTHONPATH", &packages)
        .output()
        .unwrap();
    assert_eq!(program::text(&output.stdout), "True\n", "{}", program::text(&output.stderr));
}

#[test]
fn the_console_works_behind_the_nginx_of_the_page() {
    let location = block("docs/guides/console.md", "nginx fragment");
    let home = Home::empty().variable("TOLLGATE__STORE", "memory");
    let server = home.start();
    assert!(location.contains("127.0.0.1:8080"), "{location}");
    let location = location.replace("127.0.0.1:8080", &server.address.to_string());
    let front =
        Front::nginx().start(|port, _| format!("server {{ listen 127.0.0.1:{port};\n{location} }}\n"));
    let ask =
        |path: &str| Connection::open(([127, 0, 0, 1], front.port()).into()).ask("GET", path, &[], None);
    let page = ask("/tollgate/");
    assert_eq!(page.status, 200, "{}", page.text());
    // The files that the page names are relative to it.
    let text = page.text().to_owned();
    let files: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|start| text.split(start).skip(1).map(|rest| rest.split('"').next().unwrap()))
        .filter(|file| !file.starts_with("data:"))
        .collect();
    assert!(!files.is_empty(), "{text}");
    for file in files {
        let file = file.trim_start_matches("./");
        assert_eq!(ask(&format!("/tollgate/{file}")).status, 200, "{file}");
    }
    assert_eq!(ask("/tollgate/api/v1/rules").status, 200);
    server.stop();
}

#[test]
fn traefik_is_answered_at_the_address_of_the_page() {
    let page = "docs/guides/forward-auth.md";
    let traefik: Value = serde_saphyr::from_str(&block(page, "yaml fragment")).unwrap();
    let address = traefik["http"]["middlewares"]["limits"]["forwardAuth"]["address"].as_str().unwrap();
    let path = address.strip_prefix("http://127.0.0.1:8080").unwrap();
    let form = block(page, "text");
    let (before, rest) = form.trim().split_once("{policy}").unwrap();
    let (policy, query) = path.strip_prefix(before).unwrap().split_once('?').unwrap();
    assert!(rest.starts_with('?') && query.starts_with("route=") && rest.contains("route="), "{form}");
    let home = Home::with(&blocks(page, "yaml")[0].text).variable("TOLLGATE__STORE", "memory");
    let server = home.start();
    // Its middleware sends these headers, and sets them itself with `trustForwardHeader: false`.
    let headers = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-uri", "/a?b=c"),
        ("x-forwarded-for", "192.0.2.7"),
    ];
    let first = server.connect().ask("GET", path, &headers, None);
    assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, Some("49")), "{policy}");
    let route = query.split(['=', '&']).nth(1).unwrap();
    let set = home.run(&server, &["set", "client", &format!("{route},192.0.2.7"), "1/hour"]);
    assert!(set.status.success(), "{}", program::text(&set.stderr));
    let statuses = [0, 1].map(|_| server.connect().ask("GET", path, &headers, None).status);
    assert_eq!(statuses[1], 429, "{statuses:?}");
    server.stop();
}

/// Sends a policy request as Postfix does. Returns the action.
fn policy_request(door: &mut TcpStream, number: u32, more: &str) -> String {
    let request = format!(
        "request=smtpd_access_policy\nprotocol_state=DATA\nsender=app@here.test\nclient_address=192.0.2.7\n\
         recipient_count=1\ninstance=1.{number}\n{more}\n\n"
    );
    door.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 1_024];
    let length = door.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn contexts_and_ports_choose_the_policy_as_the_guide_to_postfix_says() {
    let fragment = block("docs/guides/postfix.md", "yaml fragment");
    let home = Home::with(&format!(
        "store: memory\nlisten: {{ postfix: 127.0.0.1:0 }}\n{fragment}\
         rules: {{ sender: {{ by: sender, limits: 9/hour }}, ip: {{ by: ip, limits: 9/hour }} }}\n\
         policies: {{ mail.accept: [sender], mail.submit: [ip] }}\n"
    ));
    let server = home.start();
    let mut door = TcpStream::connect(server.policy_door.unwrap()).unwrap();
    for (number, more) in
        (1..).zip(["policy_context=", "policy_context=submission", "server_port=465", "server_port=25"])
    {
        assert_eq!(policy_request(&mut door, number, more), "action=DUNNO\n\n", "{more}");
    }
    let left = (server.remaining("sender", "app@here.test"), server.remaining("ip", "192.0.2.7"));
    assert_eq!(left, (7, 7));
    server.stop();
}

#[test]
fn the_store_of_the_guide_to_redis_is_reached_over_tls() {
    let redis = Redis::redis().tls().start();
    let fragment = block("docs/guides/redis.md", "yaml fragment");
    let address = redis.url().strip_prefix("rediss://").unwrap().to_owned();
    let (place, file) = ("redis.internal:6380", "/etc/tollgate/redis-ca.pem");
    assert!(fragment.contains(place) && fragment.contains(file), "{fragment}");
    let fragment = fragment.replace(place, &address).replace(file, redis.authority().to_str().unwrap());
    // A slow machine is not an outage.
    let fragment = fragment.replace(" }", ", command_timeout: 10s, connect_timeout: 10s }");
    let home = Home::with(&format!(
        "{fragment}rules: {{ client: {{ by: ip, limits: 9/hour }} }}\npolicies: {{ api: [client] }}\n"
    ));
    let server = home.start();
    let answer = server.check(&json!({ "policy": "api", "fields": { "ip": "192.0.2.7" } })).ok();
    assert_eq!(answer["origin"], "store", "{answer}");
    assert_eq!(redis.command(&["EXISTS", "tollgate:{client:192.0.2.7}"]).number(), 1);
    server.stop();
}

#[test]
fn a_denial_has_the_link_of_the_page() {
    let fragment = block("docs/guides/why-was-i-limited.md", "yaml fragment");
    let example = std::fs::read_to_string(root().join("examples/denials.yaml")).unwrap();
    let config = example + &fragment;
    let home = Home::with(&config);
    let server = home.start();
    let attempt = json!({ "policy": "api", "fields": { "account": "ada" }, "cost": 3 });
    server.check(&attempt).ok();
    let denied = server.check(&attempt).json();
    let link = denied["decision_url"].as_str().unwrap_or_else(|| panic!("{denied}"));
    let start = fragment.split('\'').nth(1).unwrap().split("{token}").next().unwrap();
    assert!(link.starts_with(start), "{link}");
    let shown = home.run(&server, &["decisions", "--id", link]);
    assert!(shown.status.success(), "{}", program::text(&shown.stderr));
    server.stop();
}

#[test]
fn the_relay_of_the_page_takes_mail_of_its_network() {
    let page = Page::at("docs/guides/relay.md");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.yaml");
    // The page's provider takes no mail here, so that all of it waits.
    let config = page.blocks().into_iter().find(Block::is_config).unwrap().text;
    std::fs::write(&file, config.replace("smtp.example.com", "127.0.0.1")).unwrap();
    let server = shown::serve(&file, &[]);
    let line = block("docs/guides/relay.md", "sh").lines().last().unwrap().to_owned();
    assert!(line.starts_with("smtp-source -m 20 ") && line.ends_with(" 127.0.0.1:2525"), "{line}");
    let line = line.replace("127.0.0.1:2525", server.relay.as_ref().unwrap());
    let output =
        Command::new("sh").args(["-c", &line]).env("PATH", "/usr/sbin:/usr/bin:/bin").output().unwrap();
    assert!(output.status.success(), "{}", program::text(&output.stderr));
    let places = transcript::places(&server, None);
    let count = "tollgate queue list --json | grep -o '\"tenant\":\"acme\"' | wc -l";
    let step = transcript::Step { command: count.to_owned(), expected: "20".to_owned() };
    transcript::run(&step, &places, directory.path()).unwrap();
}
