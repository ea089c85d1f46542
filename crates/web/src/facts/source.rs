//! The source of a field's value, given by its name or an alias.

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
    /// `query.NAME`: a query parameter, decoded.
    Query(&'n str),
    /// `subject`: the `sub` of a verified token.
    Subject,
    /// `claim.NAME`: a claim of a verified token, if it is a text, a number or a boolean.
    Claim(&'n str),
    /// `api_key`: the name of the request's API key.
    ApiKey,
    /// `consumer`: the owner of the API key or token.
    Consumer,
    /// `form.NAME`: a member of a form body. Only guards read it.
    Form(&'n str),
    /// `json.NAME`: a member of a JSON body, if it is a text or a whole number; dots lead into objects. Only
    /// guards read it.
    Json(&'n str),
}

/// The fields of a policy that names none: it limits each client on each route.
pub const DEFAULT_BY: [&str; 2] = ["route", "ip"];
/// All sources, for error messages.
const ALL: &str = "route, ip, method, path, host, header.NAME, cookie.NAME, query.NAME, subject, claim.NAME, api_key and consumer";
/// The further sources of guards.
const OF_BODIES: &str = ", form.NAME and json.NAME";
/// The names that a misspelt name is compared with.
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

    /// Whether every request has this field, and its headers are not needed for it.
    #[inline(always)]
    pub fn is_at_hand(name: &str) -> bool {
        matches!(name, "ip" | "route" | "method" | "path" | "host")
    }

    fn parse_named(name: &'n str) -> Option<Self> {
        let (family, name) = name.split_once('.')?;
        let token = !name.is_empty() && name.bytes().all(is_of_a_token);
        match family {
            "header" if token => Some(Self::Header(name)),
            "cookie" if token => Some(Self::Cookie(name)),
            "query" if !name.is_empty() => Some(Self::Query(name)),
            "claim" if !name.is_empty() => Some(Self::Claim(name)),
            "form" if !name.is_empty() => Some(Self::Form(name)),
            "json" if !name.split('.').any(str::is_empty) => Some(Self::Json(name)),
            _ => None,
        }
    }

    /// Whether the client chooses the value freely. A rule keyed only on such values is easy to evade.
    pub fn by_client(&self) -> bool {
        match self {
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::Path | Self::Host | Self::Method => {
                true
            }
            Self::Form(_) | Self::Json(_) => true,
            Self::Route | Self::Ip | Self::Subject | Self::Claim(_) | Self::ApiKey | Self::Consumer => false,
        }
    }

    /// Whether the client must prove the value. Credentials are checked only if a rule needs them, since a
    /// service may have its own.
    pub fn is_proved(&self) -> bool {
        matches!(self, Self::Subject | Self::Claim(_) | Self::ApiKey | Self::Consumer)
    }

    /// Whether the value is in the query.
    pub fn is_of_query(&self) -> bool {
        matches!(self, Self::Query(_))
    }

    /// Whether the body must be read for the value.
    pub fn is_of_body(&self) -> bool {
        matches!(self, Self::Form(_) | Self::Json(_))
    }
}

/// The bytes of header and cookie names (RFC 9110, section 5.6.2).
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
            Self::Form(name) => ("form.", *name),
            Self::Json(name) => ("json.", *name),
        };
        write!(f, "{family}{name}")
    }
}

/// Other names for sources: `user` for `subject`, `tenant` for `header.x-tenant`.
#[derive(Clone, Debug, Default)]
pub struct Aliases(Box<[(Box<str>, Box<str>)]>);

/// An invalid alias. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAlias {
    /// Its source does not exist.
    NoSource {
        alias: String,
        /// The unknown source.
        source: String,
        /// Whether sources in the body are allowed.
        reach: Reach,
    },
    /// Its name is that of a source.
    Taken { alias: String },
    /// It is defined twice.
    Twice { alias: String },
}

/// A field without a source. The fault of the rule's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    pub field: String,
    /// The policy that uses it.
    pub policy: String,
    /// The most similar name.
    pub near: Option<String>,
    /// Whether sources in the body are allowed.
    pub reach: Reach,
}

/// The part of a request that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The head, as for every rule.
    Head,
    /// The body too, as for guards.
    Body,
}

impl Reach {
    fn covers(self, source: Source<'_>) -> bool {
        self == Self::Body || !source.is_of_body()
    }

    /// The further sources, for error messages.
    fn more(self) -> &'static str {
        match self {
            Self::Head => "",
            Self::Body => OF_BODIES,
        }
    }
}

impl Aliases {
    /// These aliases, each with the source that it stands for.
    pub fn new<A, S>(pairs: impl IntoIterator<Item = (A, S)>) -> Result<Self, BadAlias>
    where
        A: Into<String>,
        S: Into<String>,
    {
        let mut known = Vec::new();
        Self::add(&mut known, pairs, Reach::Head)?;
        Ok(Self(known.into()))
    }

    /// These aliases, preceded by others that may refer to the body.
    pub fn with<A, S>(&self, pairs: impl IntoIterator<Item = (A, S)>) -> Result<Self, BadAlias>
    where
        A: Into<String>,
        S: Into<String>,
    {
        let mut known = Vec::new();
        Self::add(&mut known, pairs, Reach::Body)?;
        let own = self.0.iter().filter(|(alias, _)| known.iter().all(|(other, _)| other != alias));
        let own: Vec<_> = own.cloned().collect();
        known.extend(own);
        Ok(Self(known.into()))
    }

    fn add<A, S>(
        known: &mut Vec<(Box<str>, Box<str>)>,
        pairs: impl IntoIterator<Item = (A, S)>,
        reach: Reach,
    ) -> Result<(), BadAlias>
    where
        A: Into<String>,
        S: Into<String>,
    {
        for (alias, source) in pairs {
            let (alias, source) = (alias.into(), source.into());
            if Source::parse(&alias).is_some() {
                return Err(BadAlias::Taken { alias });
            }
            if !Source::parse(&source).is_some_and(|source| reach.covers(source)) {
                return Err(BadAlias::NoSource { alias, source, reach });
            }
            if known.iter().any(|(earlier, _)| **earlier == *alias) {
                return Err(BadAlias::Twice { alias });
            }
            known.push((alias.into(), source.into()));
        }
        Ok(())
    }

    /// The source of a field.
    #[inline]
    pub fn source<'n>(&'n self, field: &'n str) -> Option<Source<'n>> {
        Source::parse(field).or_else(|| {
            let (_, source) = self.0.iter().find(|(alias, _)| **alias == *field)?;
            Source::parse(source)
        })
    }

    /// Whether every field of a policy has a readable source or is derived from such a field.
    pub fn check(&self, policy: &Policy, reach: Reach) -> Result<(), UnknownField> {
        let covered = |field: &&str| self.source(field).is_some_and(|source| reach.covers(source));
        let derived = |field: &&str| policy.derived().any(|(own, _)| own == *field);
        let Some(field) = policy.fields().find(|field| !covered(field) && !derived(field)) else {
            return Ok(());
        };
        let names = NAMES.into_iter().chain(self.0.iter().map(|(alias, _)| &**alias));
        let near = nearest(field, names);
        Err(UnknownField { field: field.to_owned(), policy: policy.name.to_string(), near, reach })
    }
}

impl fmt::Display for BadAlias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource { alias, source, reach } => {
                let more = reach.more();
                write!(
                    f,
                    "`{alias}` stands for `{source}`, which is not part of a request; there are {ALL}{more}"
                )
            }
            Self::Taken { alias } => {
                write!(f, "`{alias}` is a built-in name and cannot be redefined")
            }
            Self::Twice { alias } => write!(f, "`{alias}` is there twice"),
        }
    }
}

impl std::error::Error for BadAlias {}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, policy, near, reach } = self;
        let more = reach.more();
        let hint = near.as_ref().map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        write!(
            f,
            "policy `{policy}` counts by `{field}`, which is not part of a request{hint}; there are {ALL}{more}, and whatever `fields` names"
        )
    }
}

impl std::error::Error for UnknownField {}
