//! Patterns of hosts and paths, and which of two is more specific.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A host, or all names below one: `example.com`, `*.example.com`.
///
/// Case and port do not matter. `*.example.com` is every name that ends in `.example.com`, however
/// many labels come before; `example.com` itself is not one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(Box<str>),
    /// All names with this suffix, which begins with a full stop.
    Below(Box<str>),
}

/// A path pattern: `/a`, `/a/{id}/b`, `/a/*`.
///
/// `{name}` matches one segment that is not empty. A final `/*` matches everything below: `/a/*` matches
/// `/a`, `/a/` and all that begins with `/a/`. Normalised paths are compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    pub(crate) segments: Vec<Segment>,
    /// Whether the pattern ends in `/*`.
    pub(crate) open: bool,
}

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    Literal(Box<str>),
    Parameter(Box<str>),
}

/// A text that is not a pattern. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern {
    text: String,
    reason: Cow<'static, str>,
}

impl HostPattern {
    /// Whether it matches a host in lower case without a port.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *host,
            Self::Below(end) => host.len() > end.len() && host.ends_with(&**end),
        }
    }
}

impl PathPattern {
    /// Matches every path.
    pub const ALL: Self = Self { segments: Vec::new(), open: true };

    /// Whether it matches a normalised path.
    pub fn matches(&self, path: &str) -> bool {
        let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
        for segment in &self.segments {
            match (segment, parts.next()) {
                (Segment::Literal(text), Some(part)) if **text == *part => {}
                (Segment::Parameter(_), Some(part)) if !part.is_empty() => {}
                _ => return false,
            }
        }
        self.open || parts.next().is_none()
    }

    /// Whether it matches every path.
    pub fn is_all(&self) -> bool {
        self.open && self.segments.is_empty()
    }

    /// The pattern without its `/*`: `/a` and `/a/` for `/a/*`, and the pattern itself for any other.
    pub fn without_below(&self) -> Vec<Self> {
        let own = Self { segments: self.segments.clone(), open: false };
        if !self.open {
            return vec![own];
        }
        let mut slashed = own.clone();
        slashed.segments.push(Segment::Literal("".into()));
        vec![own, slashed]
    }

    /// Which of two comes first where both match: one without parameters, then one without `/*`, then the
    /// longer of two with `/*`, else the one with a literal where the other first has a parameter.
    pub fn compare(&self, other: &Self) -> Ordering {
        let plain = |pattern: &Self| pattern.segments.iter().all(|segment| !segment.is_parameter());
        let rank = |pattern: &Self| match (pattern.open, plain(pattern)) {
            (false, true) => 0,
            (false, false) => 1,
            (true, _) => 2,
        };
        let kinds = |pattern: &Self| pattern.segments.iter().map(Segment::is_parameter).collect::<Vec<_>>();
        rank(self)
            .cmp(&rank(other))
            .then_with(|| other.segments.len().cmp(&self.segments.len()))
            .then_with(|| kinds(self).cmp(&kinds(other)))
    }
}

impl Segment {
    pub(crate) fn is_parameter(&self) -> bool {
        matches!(self, Self::Parameter(_))
    }

    fn parse(text: &str) -> Result<Self, Cow<'static, str>> {
        if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let good = !name.is_empty() && name.len() <= 64 && name.bytes().all(fits);
            let reason = "the name of a parameter is letters, digits, `-` and `_`";
            return if good { Ok(Self::Parameter(name.into())) } else { Err(reason.into()) };
        }
        match text.find(['*', '{', '}']) {
            Some(_) if text.contains('*') => Err("`*` stands alone, after the last `/`".into()),
            Some(_) => Err("a parameter is a whole segment: `/{id}/`".into()),
            None => Ok(Self::Literal(text.into())),
        }
    }
}

impl BadPattern {
    fn new(text: &str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.chars().take(100).collect(), reason: reason.into() }
    }
}

impl FromStr for HostPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let below = text.strip_prefix('*');
        let name = below.map_or(Some(text), |rest| rest.strip_prefix('.'));
        let name = name.ok_or_else(|| BadPattern::new(text, "`*` is followed by a full stop"))?;
        let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
        if name.is_empty() || name.len() > 253 || !name.bytes().all(fits) {
            return Err(BadPattern::new(text, "a host is a name or an address, without port"));
        }
        // A name has no colon, and an IPv6 address has at least two.
        if name.contains(':') && name.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(BadPattern::new(text, "a host is written without port"));
        }
        let lower = name.to_ascii_lowercase();
        let lower = lower.strip_suffix('.').unwrap_or(&lower);
        Ok(match below {
            Some(_) => Self::Below(format!(".{lower}").into()),
            None if lower.contains(':') => Self::Exact(format!("[{lower}]").into()),
            None => Self::Exact(lower.into()),
        })
    }
}

impl FromStr for PathPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let bad = |reason: Cow<'static, str>| BadPattern::new(text, reason);
        let rest = text.strip_prefix('/').ok_or_else(|| bad("a path begins with `/`".into()))?;
        if let Some(odd) = text.bytes().find(|byte| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#')) {
            return Err(bad(
                format!("`{}` cannot be part of a path", char::from(odd).escape_default()).into()
            ));
        }
        let open = rest == "*" || rest.ends_with("/*");
        let closed = if open { rest[..rest.len() - 1].trim_end_matches('/') } else { rest };
        if open && closed.is_empty() {
            return Ok(Self::ALL);
        }
        let segments = closed.split('/').map(Segment::parse).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        if segments.len() > 64 {
            return Err(bad("a path has at most 64 segments".into()));
        }
        Ok(Self { segments, open })
    }
}

/// Prints in the form that it is parsed from.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(end) => write!(f, "*{end}"),
        }
    }
}

/// Prints in the form that it is parsed from.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Parameter(name) => write!(f, "/{{{name}}}")?,
            }
        }
        if self.open { f.write_str("/*") } else { Ok(()) }
    }
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a pattern: {}", self.text, self.reason)
    }
}

impl std::error::Error for BadPattern {}
