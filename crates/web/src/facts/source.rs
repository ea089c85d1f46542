//! Where the value of a field comes from: its name says it, or an alias does.

use std::fmt;

use tollgate_core::policy::{Policy, nearest};

/// A part of a request that rules may count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'n> {
    /// `route`: the name of the route.
    Route,
    /// `ip`: the address of the client.
    Ip,
    /// `method`: the method.
    Method,
    /// `path`: the path in its normal form, without query.
    Path,
    /// `host`: the host in lower case, without port.
    Host,
    /// `header.NAME`: a header.
    Header(&'n str),
    /// `cookie.NAME`: a cookie.
    Cookie(&'n str),
    /// `query.NAME`: a member of the query, decoded.
    Query(&'n str),
    /// `subject`: the `sub` of a verified token.
    Subject,
    /// `claim.NAME`: a claim of a verified token, if it is a text, a number or a truth.
    Claim(&'n str),
    /// `api_key`: the name of the key that the request came with.
    ApiKey,
    /// `consumer`: whom the key or the token belongs to.
    Consumer,
}

/// What there is, in the words of an error.
const ALL: &str = "route, ip, method, path, host, header.NAME, cookie.NAME, query.NAME, subject, claim.NAME, api_key and consumer";
/// What is compared with a misspelt name.
const NAMES: [&str; 8] = ["route", "ip", "method", "path", "host", "subject", "api_key", "consumer"];

impl<'n> Source<'n> {
    /// The source of this name.
    #[inline]
    pub fn parse(name: &'n str) -> Option<Self> {
        Some(match name {
            "ip" => Self::Ip,
            "route" => Self::Route,
            "consumer" => Self::Consumer,
            "api_key" => Self::ApiKey,
            "subject" => Self::Subject,
            "method" => Self::Method,
            "path" => Self::Path,
            "host" => Self::Host,
            _ => return Self::parse_named(name),
        })
    }

    fn parse_named(name: &'n str) -> Option<Self> {
        let (family, name) = name.split_once('.')?;
        let token = !name.is_empty() && name.bytes().all(is_of_a_token);
        match family {
            "header" if token => Some(Self::Header(name)),
            "cookie" if token => Some(Self::Cookie(name)),
            "query" if !name.is_empty() => Some(Self::Query(name)),
            "claim" if !name.is_empty() => Some(Self::Claim(name)),
            _ => None,
        }
    }

    /// Whether its value is whatever the client says. Who is limited by such a value alone can say
    /// something else each time.
    pub fn by_client(&self) -> bool {
        match self {
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::Path | Self::Host | Self::Method => {
                true
            }
            Self::Route | Self::Ip | Self::Subject | Self::Claim(_) | Self::ApiKey | Self::Consumer => false,
        }
    }
}

/// What names of headers and cookies are made of (RFC 9110, section 5.6.2).
fn is_of_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, name) = match self {
            Self::Route => ("route", ""),
            Self::Ip => ("ip", ""),
            Self::Method => ("method", ""),
            Self::Path => ("path", ""),
            Self::Host => ("host", ""),
            Self::Header(name) => ("header.", *name),
            Self::Cookie(name) => ("cookie.", *name),
            Self::Query(name) => ("query.", *name),
            Self::Subject => ("subject", ""),
            Self::Claim(name) => ("claim.", *name),
            Self::ApiKey => ("api_key", ""),
            Self::Consumer => ("consumer", ""),
        };
        write!(f, "{family}{name}")
    }
}

/// Other names for sources: `user` for `subject`, `tenant` for `header.x-tenant`.
#[derive(Clone, Debug, Default)]
pub struct Aliases(Box<[(Box<str>, Box<str>)]>);

/// An alias that cannot be. The fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAlias {
    /// It stands for nothing that there is.
    NoSource {
        /// The alias.
        alias: String,
        /// What it stands for.
        source: String,
    },
    /// Its name has a meaning of its own.
    Taken {
        /// The alias.
        alias: String,
    },
    /// It is there twice.
    Twice {
        /// The alias.
        alias: String,
    },
}

/// A field that no part of a request is called. The fault of whoever wrote the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The field.
    pub field: String,
    /// The policy that knows it.
    pub policy: String,
    /// The nearest name there is.
    pub near: Option<String>,
}

impl Aliases {
    /// These aliases, each with the source that it stands for.
    pub fn new<A, S>(pairs: impl IntoIterator<Item = (A, S)>) -> Result<Self, BadAlias>
    where
        A: Into<String>,
        S: Into<String>,
    {
        let mut known: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (alias, source) in pairs {
            let (alias, source) = (alias.into(), source.into());
            if Source::parse(&alias).is_some() {
                return Err(BadAlias::Taken { alias });
            }
            if Source::parse(&source).is_none() {
                return Err(BadAlias::NoSource { alias, source });
            }
            if known.iter().any(|(earlier, _)| **earlier == *alias) {
                return Err(BadAlias::Twice { alias });
            }
            known.push((alias.into(), source.into()));
        }
        Ok(Self(known.into()))
    }

    /// Where the value of a field comes from.
    #[inline]
    pub fn source<'n>(&'n self, field: &'n str) -> Option<Source<'n>> {
        Source::parse(field).or_else(|| {
            let (_, source) = self.0.iter().find(|(alias, _)| **alias == *field)?;
            Source::parse(source)
        })
    }

    /// Whether every field of a policy has a source.
    pub fn check(&self, policy: &Policy) -> Result<(), UnknownField> {
        let Some(field) = policy.fields().find(|field| self.source(field).is_none()) else { return Ok(()) };
        let names = NAMES.into_iter().chain(self.0.iter().map(|(alias, _)| &**alias));
        let near = nearest(field, names);
        Err(UnknownField { field: field.to_owned(), policy: policy.name.to_string(), near })
    }
}

impl fmt::Display for BadAlias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource { alias, source } => {
                write!(f, "`{alias}` stands for `{source}`, which is no part of a request; there are {ALL}")
            }
            Self::Taken { alias } => {
                write!(f, "`{alias}` has a meaning of its own and cannot stand for anything else")
            }
            Self::Twice { alias } => write!(f, "`{alias}` is there twice"),
        }
    }
}

impl std::error::Error for BadAlias {}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, policy, near } = self;
        let hint = near.as_ref().map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        write!(
            f,
            "policy `{policy}` counts by `{field}`, which is no part of a request{hint}; there are {ALL}, and whatever `fields` names"
        )
    }
}

impl std::error::Error for UnknownField {}
