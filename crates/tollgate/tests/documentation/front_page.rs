//! The front page is short, and each of its statements about other programs and each figure has a source.

use crate::pages::Page;

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// The rows of tables, without the lines under their heads.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).map(cells)
}

#[test]
fn the_front_page_is_short_and_has_the_two_commands() {
    let page = Page::at("README.md").text;
    let (front, _) = page.split_once("\n## Limits\n").expect("a section on limits");
    let words = front.split_whitespace().count();
    assert!(words <= 900, "{words} words stand before the limits");
    assert!(front.contains("\ncargo run --release -- serve ") && front.contains("\n./test "), "{front}");
}

#[test]
fn each_cell_of_the_comparison_has_a_source() {
    let page = Page::at("README.md").text;
    let (_, rest) = page.split_once("\n## Why not something else?\n").expect("a comparison");
    let table: Vec<_> = rows(rest.split("\n## ").next().unwrap_or_default()).collect();
    let (head, table) = table.split_first().expect("a table");
    assert!(head.len() == 7 && (6..=8).contains(&table.len()), "{} rows of {}", table.len(), head.len());
    let sources = Page::at("docs/comparison.md").text;
    for (column, program) in head.iter().enumerate().skip(1) {
        let section = sources.split("\n## ").find(|section| section.starts_with(&format!("{program}\n")));
        let section: Vec<_> = rows(section.unwrap_or_else(|| panic!("no sources of {program}"))).collect();
        for row in table {
            let written = section.iter().find(|line| line[0] == row[0]);
            let written = written.unwrap_or_else(|| panic!("no source of {} of {program}", row[0]));
            assert_eq!(written[1], row[column], "{} of {program}", row[0]);
            assert!(written[2].contains("](") || written[2] == "the same page", "{written:?}");
        }
        assert_eq!(section.len(), table.len() + 1, "sources of other cells of {program}");
    }
}

#[test]
fn the_figures_of_the_front_page_are_those_of_the_benchmarks() {
    let page = Page::at("README.md").text;
    let (_, rest) = page.split_once("](docs/benchmarks.md): ").expect("figures");
    let figures = rest.split("\n\n").next().unwrap_or_default();
    let benchmarks = Page::at("docs/benchmarks.md").text;
    let measured: Vec<&str> = benchmarks.split(|c: char| !c.is_ascii_digit()).collect();
    let written = figures.split(|c: char| !c.is_ascii_digit() && c != ',').map(|word| word.replace(',', ""));
    let numbers: Vec<String> = written.filter(|word| !word.is_empty()).collect();
    assert_eq!(numbers.len(), 6, "three figures, each beside another program's: {figures}");
    for number in numbers {
        assert!(measured.contains(&&*number), "{number} is not in the benchmarks");
    }
}
