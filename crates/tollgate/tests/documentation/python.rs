//! The Python samples of the pages are true: they are run against a real server, with the client of this tree.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::PathBuf;
use std::process::Command;

use crate::pages::{Page, pages};
use crate::server::{Server, root};
use tollgate_testbed::Postgres;

const TABLES: &str = "
CREATE TABLE deals (id text PRIMARY KEY, advertiser text NOT NULL, channel text NOT NULL,
    status text NOT NULL DEFAULT 'OPEN', created timestamptz NOT NULL DEFAULT now());
CREATE ROLE reader LOGIN;
GRANT SELECT ON deals TO reader;";

fn python() -> PathBuf {
    let python = root().join(".venv/bin/python");
    assert!(python.exists(), "{} is missing: run `./test`", python.display());
    python
}

/// The configuration of a page's samples: the one that it names, or else the first one that it shows.
fn config(page: &Page, directory: &std::path::Path) -> Option<PathBuf> {
    if let Some(served) = page.served() {
        return served.config;
    }
    let blocks = page.blocks();
    let shown = blocks.iter().find(|block| block.language == "yaml" && !block.fragment)?;
    let file = directory.join("page.yaml");
    // On any port, and with the relay's queue beside it. A slow machine is not an outage.
    let text = shown.text.replace("127.0.0.1:2525", "127.0.0.1:0").replace("dir: ./queue", "dir: QUEUE");
    let text = text.replace("dir: QUEUE", &format!("dir: {}", directory.join("queue").display()));
    let text = text.replace("      at_most:", "      timeout: 10s\n      at_most:");
    std::fs::write(&file, text).unwrap();
    Some(file)
}

#[test]
fn every_python_sample_runs() {
    let mut run = 0;
    for page in pages().into_iter().chain([Page::at("clients/python/README.md")]) {
        let program = page.program();
        if program.is_empty() {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let shop = program.contains("SHOP_DATABASE_OWNER").then(Postgres::start);
        let owner = shop.as_ref().map(Postgres::url).unwrap_or_default();
        if let Some(shop) = &shop {
            shop.sql(TABLES);
        }
        let reader = owner.replace("postgres@", "reader@");
        let variables =
            [("SHOP_DATABASE_URL", &*reader), ("TOLLGATE_KEY_SECRET", "a-secret-that-all-nodes-know")];
        let server = Server::start(config(&page, directory.path()).as_deref(), &variables);
        let output = Command::new(python())
            .args(["-W", "error", "-c", &program.replace("127.0.0.1:8080", &server.address)])
            .env_clear()
            .env("PYTHONPATH", root().join("clients/python/src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SHOP_DATABASE_OWNER", &owner)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}: {}", page.name(), String::from_utf8_lossy(&said));
        run += 1;
    }
    assert!(run >= 6, "only {run} pages were found");
}

#[test]
fn the_guide_shows_the_examples_that_are_tested() {
    let blocks = Page::at("docs/clients/python.md").blocks();
    for name in ["flask_app.py", "fastapi_app.py"] {
        let text = std::fs::read_to_string(root().join("clients/python/examples").join(name)).unwrap();
        assert!(blocks.iter().any(|block| block.text == text), "{name} is not shown as it is");
    }
}
