//! The errors of a configuration: each with its position, the written value and the remedy.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tollgate_core::grammar::GrammarError;

use super::Warning;
use super::tree::{Node, Path, Place, Problems, SyntaxError};
use crate::printable::{plain, plain_in_place};

/// An invalid configuration. Its author's fault; nothing was started or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong; never empty.
    pub problems: Problems<ConfigProblem>,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
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
    problems: Problems<ConfigProblem>,
    warnings: Problems<Warning>,
}

impl ConfigError {
    /// The error for a whole file.
    pub(crate) fn of_source(source: &str, message: String) -> Self {
        ConfigProblem::new(Place::Source { source: Arc::from(source) }, String::new(), message).into()
    }
}

impl ConfigProblem {
    pub(super) fn new(place: Place, path: String, message: String) -> Self {
        let message = if place.is_yaml() { in_words_of_yaml(&message) } else { message };
        Self { place, path, message, pointer: None }
    }
}

impl<'t> Findings<'t> {
    pub(super) fn new(tree: &'t Node) -> Self {
        Self { tree, problems: Problems::default(), warnings: Problems::default() }
    }

    /// Reports an error in the value at `path`.
    pub(super) fn value(&mut self, path: &Path, message: impl Into<String>) {
        self.report(|tree| ConfigProblem::new(tree.place_at(path).clone(), path.to_string(), message.into()));
    }

    /// Reports an error in the last key of `path`.
    pub(super) fn key(&mut self, path: &Path, message: impl Into<String>) {
        self.report(|tree| {
            ConfigProblem::new(tree.key_place_at(path).clone(), path.to_string(), message.into())
        });
    }

    /// Reports a syntax error in a text.
    pub(super) fn grammar(&mut self, path: &Path, error: GrammarError) {
        self.report(|tree| {
            let column = error.text[..error.at].chars().count();
            let place = tree.place_at(path).clone();
            ConfigProblem {
                pointer: Some((error.text, column)),
                ..ConfigProblem::new(place, path.to_string(), error.problem)
            }
        });
    }

    /// Warns about a value that is valid but may not be intended.
    pub(super) fn warn(&mut self, path: &Path, message: &str, remedy: &str) {
        self.warnings.add(|| {
            let message = format!("{}: {path}: {message}", self.tree.place_at(path));
            Warning { policy: None, message, remedy: remedy.to_owned() }
        });
    }

    /// The warnings so far.
    pub(super) fn warnings(&mut self) -> Vec<Warning> {
        let found = std::mem::take(&mut self.warnings);
        let more = found.more();
        let mut warnings: Vec<Warning> = found.into_iter().collect();
        if let (Some(last), 1..) = (warnings.last_mut(), more) {
            last.message.push_str(&format!("; {more} more values have such warnings"));
        }
        warnings
    }

    /// Finding a position takes time in proportion to the tree, so only listed errors get one.
    fn report(&mut self, problem: impl FnOnce(&Node) -> ConfigProblem) {
        self.problems.add(|| problem(self.tree));
    }

    /// Returns `made` if there is no error, otherwise all errors.
    pub(super) fn conclude<T>(self, made: Option<T>) -> Result<T, ConfigError> {
        match made {
            Some(made) if self.problems.is_empty() => Ok(made),
            _ => Err(ConfigError { problems: self.problems }),
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

/// A user's text, shortened and on one line. A login in an address is not shown.
pub(super) fn shown(text: &str) -> String {
    let text = &*without_login(text);
    let mut out: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        out.push('…');
    }
    out
}

/// A text without the user and the password of an address, as in `redis://user:password@host`.
fn without_login(text: &str) -> Cow<'_, str> {
    let login = text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)));
    match login {
        Some((scheme, host)) => format!("{scheme}://***@{host}").into(),
        None => text.into(),
    }
}

impl From<SyntaxError> for ConfigError {
    fn from(error: SyntaxError) -> Self {
        vec![error].into()
    }
}

impl From<Vec<SyntaxError>> for ConfigError {
    fn from(errors: Vec<SyntaxError>) -> Self {
        let problem = |error: SyntaxError| ConfigProblem::new(error.place, String::new(), error.message);
        Self { problems: errors.into_iter().map(problem).collect() }
    }
}

impl From<ConfigProblem> for ConfigError {
    fn from(problem: ConfigProblem) -> Self {
        Self { problems: [problem].into_iter().collect() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.fmt(f)
    }
}

impl fmt::Display for ConfigProblem {
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
