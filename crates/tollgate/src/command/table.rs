//! The tables that commands print, without frames, so that other tools can process them.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Row, Table, presets};

use super::words;

/// A table under construction.
pub(crate) struct TextTable {
    table: Table,
    columns: usize,
}

/// How a line is highlighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Normal,
    /// A limit is exceeded or an attempt denied.
    Bad,
    /// Less important.
    Faint,
}

impl TextTable {
    /// A table with these columns. A title that starts with `>` marks a column of numbers.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let mut table = Table::new();
        // Styles are always written; the stream removes them where colours are not supported.
        table.load_style(presets::NOTHING).enforce_styling();
        table.style_text_only();
        table.set_content_arrangement(ContentArrangement::Dynamic);
        let title = |title: &&str| Cell::new(title.trim_start_matches('>')).add_attribute(Attribute::Bold);
        table.set_header(titles.iter().map(title));
        for (index, title) in titles.iter().enumerate() {
            let Some(column) = table.column_mut(index) else { continue };
            column.set_padding((0, 2));
            if title.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table, columns: titles.len() }
    }

    /// As `new`, but long lines are not wrapped.
    pub(crate) fn unfolded(titles: &[&str]) -> Self {
        let mut table = Self::new(titles);
        table.table.set_content_arrangement(ContentArrangement::Disabled);
        table
    }

    /// Adds a line. Control characters in the texts are removed.
    pub(crate) fn line(&mut self, tone: Tone, cells: impl AsRef<[String]>) {
        let cells = cells.as_ref();
        debug_assert_eq!(cells.len(), self.columns, "a line has as many cells as there are titles");
        let cell = |text: &String| {
            let cell = Cell::new(words::plain(text));
            match tone {
                Tone::Normal => cell,
                Tone::Bad => cell.fg(Color::Red),
                Tone::Faint => cell.add_attribute(Attribute::Dim),
            }
        };
        self.table.add_row(Row::from(cells.iter().map(cell).collect::<Vec<_>>()));
    }

    /// Whether it has no lines.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl std::fmt::Display for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in self.table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text, or `-` if there is none.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
