//! The errors of a configuration: each with its position, the written value and the remedy.

use std::fmt;
use std::sync::Arc;

use tollgate_core::grammar::GrammarError;

use super::Warning;
use super::tree::{Node, Path, Place, SyntaxError};
use crate::printable::{plain, plain_in_place};

/// An invalid configuration. Its author's fault; nothing was started or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The errors in the order in which they were found; never empty.
    pub problems: Vec<Problem>,
    /// How many more were found; an endless list would not help.
    pub more: usize,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its position.
    pub place: Place,
    /// The path of the setting, such as `rules.domain.limits[1]`; empty for the whole configuration.
    pub path: String,
    /// What is wrong, and how to correct it.
    pub message: String,
    /// The wrong text, and the index of the character at which the error is, from 0.
    pub pointer: Option<(String, usize)>,
}

/// The errors found so far in one tree.
pub(super) struct Findings<'t> {
    tree: &'t Node,
    problems: Vec<Problem>,
    more: usize,
    warnings: Vec<Warning>,
    more_warnings: usize,
}

/// How many errors are listed, and how many warnings.
const MOST_LISTED: usize = 50;

impl ConfigError {
    /// The error for a whole file.
    pub(crate) fn of_source(source: &str, message: String) -> Self {
        Problem::new(Place::Source { source: Arc::from(source) }, String::new(), message).into()
    }
}

impl Problem {
    pub(super) fn new(place: Place, path: String, message: String) -> Self {
        let message = if place.is_yaml() { in_words_of_yaml(&message) } else { message };
        Self { place, path, message, pointer: None }
    }
}

impl<'t> Findings<'t> {
    pub(super) fn new(tree: &'t Node) -> Self {
        Self { tree, problems: Vec::new(), more: 0, warnings: Vec::new(), more_warnings: 0 }
    }

    /// Reports an error in the value at `path`.
    pub(super) fn value(&mut self, path: &Path, message: impl Into<String>) {
        self.report(|tree| Problem::new(tree.place_at(path).clone(), path.to_string(), message.into()));
    }

    /// Reports an error in the last key of `path`.
    pub(super) fn key(&mut self, path: &Path, message: impl Into<String>) {
        self.report(|tree| Problem::new(tree.key_place_at(path).clone(), path.to_string(), message.into()));
    }

    /// Reports a syntax error in a text.
    pub(super) fn grammar(&mut self, path: &Path, error: GrammarError) {
        self.report(|tree| {
            let column = error.text[..error.at].chars().count();
            let place = tree.place_at(path).clone();
            Problem {
                pointer: Some((error.text, column)),
                ..Problem::new(place, path.to_string(), error.problem)
            }
        });
    }

    /// Warns about a value that is valid but may not be intended.
    pub(super) fn warn(&mut self, path: &Path, message: &str, remedy: &str) {
        if self.warnings.len() < MOST_LISTED {
            let message = format!("{}: {path}: {message}", self.tree.place_at(path));
            self.warnings.push(Warning { policy: None, message, remedy: remedy.to_owned() });
        } else {
            self.more_warnings += 1;
        }
    }

    /// The warnings so far.
    pub(super) fn warnings(&mut self) -> Vec<Warning> {
        if let (Some(last), 1..) = (self.warnings.last_mut(), self.more_warnings) {
            last.message.push_str(&format!("; {} more values have such warnings", self.more_warnings));
        }
        std::mem::take(&mut self.warnings)
    }

    /// Finding a position takes time in proportion to the tree, so only listed errors get one.
    fn report(&mut self, problem: impl FnOnce(&Node) -> Problem) {
        if self.problems.len() < MOST_LISTED {
            self.problems.push(problem(self.tree));
        } else {
            self.more += 1;
        }
    }

    /// Returns `made` if there is no error, otherwise all errors.
    pub(super) fn conclude<T>(self, made: Option<T>) -> Result<T, ConfigError> {
        match made {
            Some(made) if self.problems.is_empty() => Ok(made),
            _ => Err(ConfigError { problems: self.problems, more: self.more }),
        }
    }
}

/// Replaces the terms of TOML by those of YAML. Text in backticks was written by the user and stays.
fn in_words_of_yaml(message: &str) -> String {
    let parts = message.split('`').enumerate();
    let parts =
        parts.map(
            |(index, part)| {
                if index % 2 == 0 { part.replace("a table", "a mapping") } else { part.to_owned() }
            },
        );
    parts.collect::<Vec<_>>().join("`")
}

/// `; did you mean …?`, if there is a similar name.
pub(super) fn hint(near: Option<String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Names in backticks, separated by commas.
pub(super) fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// A user's text, shortened and on one line.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        out.push('…');
    }
    out
}

impl From<SyntaxError> for ConfigError {
    fn from(error: SyntaxError) -> Self {
        vec![error].into()
    }
}

impl From<Vec<SyntaxError>> for ConfigError {
    fn from(errors: Vec<SyntaxError>) -> Self {
        let problem = |error: SyntaxError| Problem::new(error.place, String::new(), error.message);
        errors.into_iter().map(problem).collect::<Vec<_>>().into()
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        vec![problem].into()
    }
}

impl From<Vec<Problem>> for ConfigError {
    fn from(problems: Vec<Problem>) -> Self {
        Self { problems, more: 0 }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", plain(&self.place.to_string()))?;
        if !self.path.is_empty() {
            write!(f, "{}: ", plain(&self.path))?;
        }
        f.write_str(&plain(&self.message))?;
        let Some((text, column)) = &self.pointer else { return Ok(()) };
        // A caret can only point into a short single line.
        let line: String = plain_in_place(text).chars().take(200).collect();
        write!(f, "\n    {line}\n    {}^", " ".repeat((*column).min(200)))
    }
}

impl std::error::Error for ConfigError {}
