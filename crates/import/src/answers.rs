//! What files do not say, and the operator does: the fields that a limit counts by, a limit, the store.

use std::collections::BTreeMap;
use std::fmt;

use tollgate_core::grammar;
use tollgate_core::key::check_field_name;

/// The answers of the operator.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The fields that make a key, by the name of what is limited.
    pub(crate) by: BTreeMap<String, Vec<String>>,
    /// Limits, by name.
    pub(crate) limits: BTreeMap<String, String>,
    /// The address of the store.
    pub(crate) store: Option<String>,
}

/// An answer that is none. The caller's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAnswer {
    /// The answer.
    pub text: String,
    /// What is wrong with it.
    pub message: String,
}

impl Answers {
    /// Adds the fields of a key, as in `api-write=user` or `orders=route,ip`.
    pub fn by(mut self, text: &str) -> Result<Self, BadAnswer> {
        let (name, fields) = named(text, "api-write=user")?;
        let fields: Vec<String> = fields.split(',').map(|field| field.trim().to_owned()).collect();
        for field in &fields {
            check_field_name(field).map_err(|message| bad(text, message))?;
        }
        if fields.len() > tollgate_core::Rule::MOST_FIELDS {
            return Err(bad(text, format!("at most {} fields make a key", tollgate_core::Rule::MOST_FIELDS)));
        }
        once(self.by.insert(name.to_owned(), fields), text)?;
        Ok(self)
    }

    /// Adds a limit, as in `route=10/s burst 50`.
    pub fn limit(mut self, text: &str) -> Result<Self, BadAnswer> {
        let (name, limit) = named(text, "route=10/s burst 50")?;
        let parsed = grammar::parse_explicit(limit).map_err(|error| bad(text, error.problem))?;
        let limit = parsed.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
        once(self.limits.insert(name.to_owned(), limit), text)?;
        Ok(self)
    }

    /// Sets the address of the store, as in `redis://localhost:6379`.
    #[must_use]
    pub fn store(mut self, address: &str) -> Self {
        self.store = Some(address.to_owned());
        self
    }
}

fn named<'t>(text: &'t str, example: &str) -> Result<(&'t str, &'t str), BadAnswer> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim(), value.trim()))
        }
        _ => Err(bad(text, format!("write a name and its answer, as in `{example}`"))),
    }
}

fn once<T>(before: Option<T>, text: &str) -> Result<(), BadAnswer> {
    match before {
        None => Ok(()),
        Some(_) => Err(bad(text, "this is answered twice: keep one of them".to_owned())),
    }
}

fn bad(text: &str, message: String) -> BadAnswer {
    BadAnswer { text: text.to_owned(), message }
}

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadAnswer {}
