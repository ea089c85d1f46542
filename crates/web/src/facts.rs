//! The fields of a request that rules count by.
//!
//! The name of a field says where its value comes from; [`Source`] has the names. Values are borrowed
//! from the request wherever that is possible: asking by address, route, method, host, path, header,
//! or by who somebody is, allocates nothing.
//!
//! Where a client can say a thing twice, it could say one thing to the rules and another to the service
//! behind them. So a header, cookie or member of the query that is there several times, with values
//! that differ, makes the request a bad one; neither value is chosen. Where a guard has the body read, the
//! rules are stricter still: see [`account`].

mod account;
mod body;
mod said;
mod source;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Method};
use smallvec::SmallVec;
use tollgate_core::Policy;
use tollgate_core::key::MOST_FIELD_BYTES;

use crate::identity::Identity;
pub use body::{Body, BodyKind, Unreadable};
use said::IpText;
pub use source::{Aliases, BadAlias, Reach, Source, UnknownField};

/// The facts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'r> {
    /// The name of the route it takes.
    pub route: &'r str,
    /// Whose it is: see [`crate::address`].
    pub client: IpAddr,
    /// The same as text, if somebody has it: as it prints, and an IPv4 address inside an IPv6 one as
    /// IPv4.
    pub address: Option<&'r str>,
    /// Its method.
    pub method: &'r Method,
    /// Its path in the normal form: see [`crate::path`].
    pub path: &'r str,
    /// Its query, as it was sent.
    pub query: Option<&'r str>,
    /// Its host in the normal form: see [`crate::host`]; empty if it has none.
    pub host: &'r str,
    /// Its headers.
    pub headers: &'r HeaderMap,
    /// The proved identity of the caller.
    pub identity: &'r Identity,
    /// What it brings, where it was read before anybody asks; elsewhere nothing can be asked of it.
    pub body: Option<&'r Body>,
}

/// Fields and values, in the order in which a policy knows them.
#[derive(Debug, Default)]
pub struct Asked<'r> {
    fields: SmallVec<[(&'r str, Value<'r>); 6]>,
}

/// Fields and values, as an [`Attempt`](tollgate_core::Attempt) holds them.
pub type Pairs<'a> = SmallVec<[(&'a str, &'a str); 6]>;

/// A value: borrowed, or as small as an address.
#[derive(Debug)]
enum Value<'r> {
    Text(Cow<'r, str>),
    Ip(IpText),
}

/// Why the fields of a request cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadFact {
    /// A value is not UTF-8. The caller's fault.
    NotUtf8 {
        /// Where it was looked for.
        source: String,
    },
    /// A value is longer than [`MOST_FIELD_BYTES`]. The caller's fault.
    TooLong {
        /// Where it was looked for.
        source: String,
        /// How long it is.
        bytes: usize,
    },
    /// There are several values. The caller's fault.
    Twice {
        /// Where it was looked for.
        source: String,
    },
    /// There is a `;` where some readers begin another value and others do not. The caller's fault.
    Parted {
        /// Where it was looked for.
        source: String,
    },
    /// The body is not what it says to be. The caller's fault.
    NotJson {
        /// What was looked for.
        source: String,
    },
    /// Two parsers could read it differently. The caller's fault.
    Unclear {
        /// What was looked for.
        source: String,
        /// Why.
        why: &'static str,
    },
    /// No source has this name. The fault of whoever gave the policy to the route.
    NoSource {
        /// The field.
        field: String,
    },
}

/// What is wrong with a value, wherever it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    NotUtf8,
    TooLong(usize),
    Twice,
    Parted,
    NotJson,
    Unclear(&'static str),
}

impl<'r> Facts<'r> {
    /// The values of a policy's fields in the request. Fields that the request lacks are left out.
    pub fn ask(&self, policy: &'r Policy, aliases: &'r Aliases) -> Result<Asked<'r>, BadFact> {
        let mut asked = Asked::default();
        self.add_policy(policy, aliases, &mut asked)?;
        Ok(asked)
    }

    /// As [`Facts::ask`], with what it says of other fields beside those of the policy. Of these, what no
    /// part of a request is called is left out too. The answer is large, so it is made where it stands.
    pub fn ask_beside(
        &self,
        policy: &'r Policy,
        beside: &'r [Arc<str>],
        aliases: &'r Aliases,
        asked: &mut Asked<'r>,
    ) -> Result<(), BadFact> {
        self.add_policy(policy, aliases, asked)?;
        self.add(beside, aliases, asked)
    }

    /// What the request says of these fields. What no part of a request is called is left out too.
    pub fn ask_alone(&self, fields: &'r [Arc<str>], aliases: &'r Aliases) -> Result<Asked<'r>, BadFact> {
        let mut asked = Asked::default();
        self.add(fields, aliases, &mut asked)?;
        Ok(asked)
    }

    /// Adds what it says of other fields.
    fn add(&self, names: &'r [Arc<str>], aliases: &'r Aliases, asked: &mut Asked<'r>) -> Result<(), BadFact> {
        for name in names {
            let known = asked.fields.iter().any(|(field, _)| **field == **name);
            let Some(source) = self.source(name, aliases).filter(|_| !known) else { continue };
            if let Some(value) = self.value(source).map_err(|wrong| wrong.of(source))? {
                asked.fields.push((name, value));
            }
        }
        Ok(())
    }

    /// Adds what it says of the fields of a policy.
    fn add_policy(
        &self,
        policy: &'r Policy,
        aliases: &'r Aliases,
        asked: &mut Asked<'r>,
    ) -> Result<(), BadFact> {
        for name in policy.fields() {
            // What most rules count by is there already, and needs no looking for.
            if let Some(text) = self.at_hand(name) {
                asked.fields.push((name, Value::Text(Cow::Borrowed(text))));
                continue;
            }
            let Some(source) = self.source(name, aliases) else {
                missing(name, policy)?;
                continue;
            };
            if let Some(value) = self.value(source).map_err(|wrong| wrong.of(source))? {
                asked.fields.push((name, value));
            }
        }
        Ok(())
    }

    /// The value of a field that every request has, if it is of the usual length.
    #[inline(always)]
    fn at_hand(&self, name: &str) -> Option<&'r str> {
        let text = match name {
            "ip" => self.address?,
            "route" => self.route,
            "method" => self.method.as_str(),
            "path" => self.path,
            "host" => self.host,
            _ => return None,
        };
        (1..=MOST_FIELD_BYTES).contains(&text.len()).then_some(text)
    }

    /// Where the value of a field comes from, as far as this door looks.
    #[inline]
    fn source(&self, name: &'r str, aliases: &'r Aliases) -> Option<Source<'r>> {
        aliases.source(name).filter(|source| self.body.is_some() || !source.is_of_body())
    }

    /// The value of one source; `None` if the request says nothing of it.
    #[inline]
    fn value(&self, source: Source<'r>) -> Result<Option<Value<'r>>, Wrong> {
        let text = match source {
            Source::Ip => {
                let written = self.address.map(|address| Value::Text(address.into()));
                return Ok(Some(
                    written.unwrap_or_else(|| Value::Ip(IpText::of(self.client.to_canonical()))),
                ));
            }
            Source::Route => Some(self.route.into()),
            Source::Method => Some(self.method.as_str().into()),
            Source::Path => Some(self.path.into()),
            Source::Host => Some(self.host.into()),
            Source::Header(name) => said::header(self.headers, name)?.map(Cow::Borrowed),
            Source::Cookie(name) => said::cookie(self.headers, name)?,
            Source::Query(name) => self.query.map_or(Ok(None), |query| match self.body {
                Some(body) => body.query(name, query),
                None => said::query(query, name),
            })?,
            Source::Subject => self.identity.subject.as_deref().map(Cow::Borrowed),
            Source::Claim(name) => self.identity.claim(name).map(Cow::Borrowed),
            Source::ApiKey => self.identity.api_key.as_deref().map(Cow::Borrowed),
            Source::Consumer => self.identity.consumer.as_deref().map(Cow::Borrowed),
            Source::Form(name) => self.body.map_or(Ok(None), |body| body.form(name, self.query))?,
            Source::Json(path) => self.body.map_or(Ok(None), |body| body.json(path, self.query))?,
        };
        match text {
            Some(text) if text.len() > MOST_FIELD_BYTES => Err(Wrong::TooLong(text.len())),
            // Nothing is as good as absent.
            text => Ok(text.filter(|text| !text.is_empty()).map(Value::Text)),
        }
    }
}

/// A key cannot do without a field that has no source, unless it is derived; then it cannot do without the
/// field that it is derived from. A number that some limit bounds can: such a limit may be set at run time,
/// and must not take the whole service down.
#[cold]
fn missing(name: &str, policy: &Policy) -> Result<(), BadFact> {
    if policy.derived().any(|(field, _)| field == name) {
        return Ok(());
    }
    let mut keys = policy.rules.iter().flat_map(|rule| &rule.by);
    let needed = keys.any(|field| *field.name == *name) || policy.derived().any(|(_, of)| of == name);
    if needed { Err(BadFact::NoSource { field: name.to_owned() }) } else { Ok(()) }
}

impl Asked<'_> {
    /// The fields of an attempt.
    #[inline]
    pub fn pairs(&self) -> Pairs<'_> {
        self.fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

impl Value<'_> {
    #[inline]
    fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Ip(text) => text.as_str(),
        }
    }
}

impl Wrong {
    #[cold]
    fn of(self, source: Source<'_>) -> BadFact {
        let source = source.to_string();
        match self {
            Self::NotUtf8 => BadFact::NotUtf8 { source },
            Self::TooLong(bytes) => BadFact::TooLong { source, bytes },
            Self::Twice => BadFact::Twice { source },
            Self::Parted => BadFact::Parted { source },
            Self::NotJson => BadFact::NotJson { source },
            Self::Unclear(why) => BadFact::Unclear { source, why },
        }
    }
}

impl fmt::Display for BadFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { source } => write!(f, "the value of `{source}` is not UTF-8"),
            Self::TooLong { source, bytes } => {
                write!(
                    f,
                    "the value of `{source}` is {bytes} bytes long; at most {MOST_FIELD_BYTES} are allowed"
                )
            }
            Self::Twice { source } => {
                write!(f, "`{source}` is there several times, or under names that are nearly the same")
            }
            Self::Parted { source } => {
                write!(
                    f,
                    "there is a `;` beside `{source}`, which servers read differently: write `%3B` in a value"
                )
            }
            Self::NotJson { source } => {
                write!(f, "the body is not JSON, so there is no `{source}` in it")
            }
            Self::Unclear { source, why } => {
                write!(f, "the service could read another `{source}` than the gateway: {why}")
            }
            Self::NoSource { field } => write!(f, "no part of a request is called `{field}`"),
        }
    }
}

impl std::error::Error for BadFact {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_hand_is_what_its_source_says() {
        let facts = Facts {
            route: "shop",
            client: IpAddr::from([192, 0, 2, 7]),
            address: Some("192.0.2.7"),
            method: &Method::GET,
            path: "/cart",
            query: None,
            host: "example.org",
            headers: &HeaderMap::new(),
            identity: &Identity::default(),
            body: None,
        };
        let names = ["ip", "route", "method", "path", "host", "subject", "api_key", "consumer", "header.x"];
        for name in names {
            let at_hand = facts.at_hand(name);
            assert_eq!(at_hand.is_some(), Source::is_at_hand(name), "{name}");
            let value = facts.value(Source::parse(name).expect("a name")).expect("a good request");
            assert_eq!(at_hand, value.as_ref().map(Value::as_str), "{name}");
        }
    }
}
