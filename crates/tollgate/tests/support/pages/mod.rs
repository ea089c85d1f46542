//! Parses the pages of the documentation: fenced blocks, links, and instructions in comments.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

use std::path::{Path, PathBuf};

use crate::server::root;

/// One page.
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// One fenced block.
pub(crate) struct Block {
    /// The text after the fence, as in `yaml`.
    pub(crate) language: String,
    pub(crate) text: String,
    /// The line of its fence, counted from 1.
    pub(crate) line: usize,
    /// Whether `<!-- fragment -->` precedes it: it is part of something and not complete alone.
    pub(crate) fragment: bool,
}

/// The server of a page's transcripts.
pub(crate) struct Served {
    /// The configuration; the starter if there is none.
    pub(crate) config: Option<PathBuf>,
    /// Whether each configuration that the page shows is served for the transcripts below it.
    pub(crate) shown: bool,
    /// Whether counters are in Redis instead of in memory.
    pub(crate) on_redis: bool,
}

/// Every page: those at the top and all below `docs`.
pub(crate) fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    let mut open = vec![root().join("docs")];
    let top = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    found.extend(top.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found.into_iter().map(Page::read).collect()
}

impl Block {
    /// Whether it is a complete configuration.
    pub(crate) fn is_config(&self) -> bool {
        !self.fragment && ["yaml", "toml"].contains(&&*self.language)
    }
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap();
        Self { path, text }
    }

    /// One page, by its path below the top.
    pub(crate) fn at(path: &str) -> Self {
        Self::read(root().join(path))
    }

    /// The name of the page in messages.
    pub(crate) fn name(&self) -> String {
        self.path.strip_prefix(root()).unwrap().display().to_string()
    }

    /// The server of its transcripts: `<!-- serve: FILE -->`, or `<!-- serve: FILE on redis -->`. `starter`
    /// means no file, and `shown` the configurations of the page itself.
    pub(crate) fn served(&self) -> Option<Served> {
        let name = self.comment("serve")?;
        let (name, on_redis) = name.strip_suffix(" on redis").map_or((name, false), |name| (name, true));
        let shown = name == "shown";
        let config = (name != "starter" && !shown).then(|| root().join(name));
        Some(Served { config, shown, on_redis })
    }

    /// The text of an instruction: `<!-- NAME: TEXT -->`.
    pub(crate) fn comment(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.text.split_once(&format!("<!-- {name}: "))?;
        rest.split_once(" -->").map(|(text, _)| text)
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open = false;
        let mut before = "";
        for (index, line) in self.text.lines().enumerate() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                if !open {
                    let fragment = before == "<!-- fragment -->";
                    let language = language.trim().to_owned();
                    blocks.push(Block { language, text: String::new(), line: index + 1, fragment });
                }
                open = !open;
            } else if open {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            if !line.trim().is_empty() {
                before = line.trim();
            }
        }
        assert!(!open, "{}: a fence is never closed", self.name());
        blocks
    }

    /// Its Python samples as one program, with what `<!-- run` has the test do after them, up to `-->`.
    pub(crate) fn program(&self) -> String {
        let mut program = String::new();
        let mut end = None;
        for line in self.text.lines() {
            match (end, line) {
                (None, "```python") => end = Some("```"),
                (None, "<!-- run") => end = Some("-->"),
                (Some(last), line) if line == last => end = None,
                (Some(_), line) => program.push_str(line),
                (None, _) => continue,
            }
            program.push('\n');
        }
        program
    }

    /// The targets of its links, outside code.
    pub(crate) fn links(&self) -> Vec<String> {
        let mut links = Vec::new();
        let mut open = false;
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                open = !open;
            }
            // Every second piece between backticks is code.
            let prose: String = line.split('`').step_by(2).collect();
            for piece in prose.split("](").skip(1).filter(|_| !open) {
                links.extend(piece.split(')').next().map(ToOwned::to_owned));
            }
        }
        links
    }

    /// The anchors of its headings, as usual renderers make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let headings = self.text.lines().filter_map(|line| line.strip_prefix('#'));
        headings
            .map(|heading| {
                let heading = heading.trim_start_matches('#').trim().to_lowercase();
                let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                kept.collect::<String>().replace(' ', "-")
            })
            .collect()
    }

    /// The cells of the first column of every table, without their code marks.
    pub(crate) fn first_cells(&self) -> Vec<String> {
        let rows = self.text.lines().filter(|line| line.starts_with("| "));
        rows.filter_map(|row| row.split('|').nth(1)).map(|cell| cell.trim().replace('`', "")).collect()
    }

    /// The target of a link of this page.
    pub(crate) fn resolve(&self, link: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(link)
    }
}
