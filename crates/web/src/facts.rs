//! The fields of a request that rules count by.
//!
//! The name of a field says where its value comes from; [`Source`] has the names. Values are borrowed from
//! the request where possible: address, route, method, host, path, headers and identity need no allocation.
//!
//! A client that sends a value twice could show one to the rules and the other to the service. So a header,
//! cookie or query parameter that occurs several times with different values makes the request invalid;
//! neither value is chosen. Bodies that a guard reads are checked more strictly: see [`account`].

mod account;
mod body;
mod method_override;
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
pub use source::{Aliases, BadAlias, DEFAULT_BY, Reach, Source, UnknownField};

/// The facts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'r> {
    /// The name of its route.
    pub route: &'r str,
    /// The client's address: see [`crate::address`].
    pub client: IpAddr,
    /// The same address as text, if the caller has it, with an IPv4-mapped IPv6 address as IPv4.
    pub address: Option<&'r str>,
    pub method: &'r Method,
    /// Its path in the normal form: see [`crate::path`].
    pub path: &'r str,
    /// Its query, as the client sent it.
    pub query: Option<&'r str>,
    /// Its host in the normal form: see [`crate::host`]; empty if it has none.
    pub host: &'r str,
    pub headers: &'r HeaderMap,
    /// The proved identity of the caller.
    pub identity: &'r Identity,
    /// Its body, if the door has read it. Otherwise fields of the body have no source.
    pub body: Option<&'r Body>,
}

/// The fields of a request with their values, in the order of the policy.
#[derive(Debug, Default)]
pub struct Asked<'r> {
    fields: SmallVec<[(&'r str, Value<'r>); 6]>,
}

/// Fields and values, as an [`Attempt`](tollgate_core::Attempt) holds them.
pub type Pairs<'a> = SmallVec<[(&'a str, &'a str); 6]>;

/// A value: text, or an address in a small buffer.
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
        /// The source of the field.
        source: String,
    },
    /// A value is longer than [`MOST_FIELD_BYTES`]. The caller's fault.
    TooLong {
        /// The source of the field.
        source: String,
        /// The length of the value.
        bytes: usize,
    },
    /// The field has several different values. The caller's fault.
    Twice {
        /// The source of the field.
        source: String,
    },
    /// There is a `;`, at which some parsers start another value. The caller's fault.
    Parted {
        /// The source of the field.
        source: String,
    },
    /// The body is not valid JSON, although its type says so. The caller's fault.
    NotJson {
        /// The source of the field.
        source: String,
    },
    /// Two parsers could read it differently. The caller's fault.
    Unclear {
        /// The source of the field.
        source: String,
        why: &'static str,
    },
    /// No source has this name. The operator's fault, for using this policy here.
    NoSource { field: String },
}

/// A fault of a value.
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

    /// As [`Facts::ask`], with other fields beside those of the policy. An extra field without a source is
    /// skipped. The result is large, so it is built in place.
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

    /// The values of these fields. A name without a source is left out.
    pub fn ask_alone(&self, fields: &'r [Arc<str>], aliases: &'r Aliases) -> Result<Asked<'r>, BadFact> {
        let mut asked = Asked::default();
        self.add(fields, aliases, &mut asked)?;
        Ok(asked)
    }

    /// Refuses a request with a method override in a header, in the query, or in a body that was read. A
    /// service could treat it as another method.
    pub fn check_method(&self) -> Result<(), BadFact> {
        method_override::check(self).map_err(|wrong| wrong.of(Source::Method))
    }

    /// Adds the values of other fields.
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

    /// Adds the values of a policy's fields.
    fn add_policy(
        &self,
        policy: &'r Policy,
        aliases: &'r Aliases,
        asked: &mut Asked<'r>,
    ) -> Result<(), BadFact> {
        for name in policy.fields() {
            // The most common fields are members of `self` and need no lookup.
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

    /// The value of a field that every request has, if it is not too long.
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

    /// The source of a field, if this door can read it.
    #[inline]
    fn source(&self, name: &'r str, aliases: &'r Aliases) -> Option<Source<'r>> {
        aliases.source(name).filter(|source| self.body.is_some() || !source.is_of_body())
    }

    /// The value of a source; `None` if the request lacks it.
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
            // An empty value counts as missing.
            text => Ok(text.filter(|text| !text.is_empty()).map(Value::Text)),
        }
    }
}

/// Decides whether a field without a source is an error. It is one if a key needs it. A derived field needs
/// no source of its own. A number that a limit bounds may be missing, since such a limit can be set at run
/// time and must not make the whole service fail.
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
    fn common_fields_match_their_sources() {
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
