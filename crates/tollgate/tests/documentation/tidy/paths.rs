//! The tables of paths in ARCHITECTURE.md and `docs/inside-the-engine.md`: they name files and functions that
//! exist, and the two most travelled paths stay short.

use std::collections::BTreeSet;
use std::fs;

use super::root;

/// One line of a table: files, and the functions in them.
struct Row {
    files: Vec<String>,
    functions: Vec<String>,
}

/// The texts between backquotes in a cell.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<_> = line.split('|').collect();
    let files = quoted(cells[1]);
    // A file after another one in a cell is in the same crate.
    let source = files[0].split_once("/src/").map_or("", |(name, _)| name).to_owned();
    let whole = |file: &String| {
        if file.contains("/src/") { file.clone() } else { format!("{source}/src/{file}") }
    };
    Row { files: files.iter().map(whole).collect(), functions: quoted(cells[2]) }
}

/// The rows of the tables of paths in a text.
fn rows(text: &str) -> Vec<Row> {
    let tables = text.split("\n## The path of ").skip(1);
    let lines = tables.flat_map(|section| section.split("\n## ").next().unwrap_or(section).lines());
    lines.filter(|line| line.starts_with("| `")).map(row).collect()
}

/// The rows of the table below this heading of ARCHITECTURE.md.
fn path(heading: &str) -> Vec<Row> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let start = text.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no `{heading}`"));
    let end = text[start + 1..].find("\n## ").map_or(text.len(), |end| start + 1 + end);
    rows(&text[start..end])
}

fn files(rows: &[Row]) -> BTreeSet<String> {
    rows.iter().flat_map(|row| row.files.iter().cloned()).collect()
}

#[test]
fn the_paths_name_files_and_functions_that_exist() {
    for (page, least) in [("ARCHITECTURE.md", 60), ("docs/inside-the-engine.md", 50)] {
        let rows = rows(&fs::read_to_string(root().join(page)).unwrap());
        let mut functions = 0;
        for Row { files, functions: names } in &rows {
            let read = |file: &String| {
                let source = fs::read_to_string(root().join("crates").join(file));
                source.unwrap_or_else(|_| panic!("{page}: no {file}"))
            };
            let sources: Vec<String> = files.iter().map(read).collect();
            let has = |source: &String, name: &String| {
                source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name}<"))
            };
            for name in names {
                assert!(sources.iter().any(|source| has(source, name)), "no function `{name}` in {files:?}");
            }
            for (file, source) in files.iter().zip(&sources) {
                assert!(names.iter().any(|name| has(source, name)), "{page} names no function of {file}");
            }
            functions += names.len();
        }
        assert!(functions >= least, "{page} has its tables: {functions} functions");
    }
}

#[test]
fn the_two_most_travelled_paths_cross_few_files() {
    let check = path("The path of a check");
    assert!(files(&check).len() <= 22, "the path of a check crosses {} files", files(&check).len());
    // A gateway request has the decision in the middle.
    let at =
        |file: &str| check.iter().position(|row| row.files[0].ends_with(file)).expect("a row of the check");
    let mut gateway = files(&path("The path of a gateway request"));
    gateway.extend(files(&check[at("engine/src/admit.rs")..=at("engine/src/journal.rs")]));
    assert!(gateway.len() <= 35, "the path of a gateway request crosses {} files", gateway.len());
}

#[test]
fn the_map_stays_a_map() {
    let lines = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map").lines().count();
    assert!(
        lines <= 200,
        "ARCHITECTURE.md has {lines} lines: move explanations to docs/inside-the-engine.md"
    );
}
