//! Lists in pages; each page starts where the last one ended.

use super::endpoint::Ask;
use super::path;
use super::problem::Problem;

/// The most entries of a page.
pub(crate) const MOST: usize = 1_000;

/// The query parameters of a list in pages.
pub(crate) const QUERY: &[(&str, &str)] = &[
    ("limit", "how many; 100 by default, at most 1000"),
    ("after", "the last name of the page before: `next` in its answer"),
];

/// The requested page.
pub(crate) struct Page {
    pub(crate) limit: usize,
    pub(crate) after: Option<String>,
}

impl Page {
    pub(crate) fn of(ask: &Ask) -> Result<Self, Problem> {
        let after = ask.query("after").map(path::decode_query).transpose()?;
        Ok(Self { limit: limit(ask, 100)?, after })
    }

    /// The items of one page, given those after [`Page::after`] in the order of their names, and the name of
    /// the last one if there are more.
    pub(crate) fn cut<T>(&self, mut items: Vec<T>, name: impl Fn(&T) -> &str) -> (Vec<T>, Option<String>) {
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next = items.last().filter(|_| more).map(|last| name(last).to_owned());
        (items, next)
    }
}

/// The requested size of a page.
pub(crate) fn limit(ask: &Ask, otherwise: usize) -> Result<usize, Problem> {
    let Some(text) = ask.query("limit") else { return Ok(otherwise) };
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| Problem::bad_request(format!("`limit` is a number from 1 to {MOST}")))
}
