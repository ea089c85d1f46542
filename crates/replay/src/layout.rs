//! Chooses the columns of a log that are the time, the client and the fields of policies.
//!
//! `--map` may name the column of a field. Otherwise the field is looked for in its usual columns. If no column
//! has it, that is an error that names the `--map` to add.

mod usual;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use smallvec::SmallVec;
use tollgate_core::Span;
use tollgate_core::key::MOST_FIELD_BYTES;
use tollgate_core::policy::nearest;
use tollgate_web::facts::Facts;
use tollgate_web::{Aliases, Identity, path};

use crate::log::format::{DURATION_PARTS, DURATIONS, Format, Taken, address_of};
use crate::log::{Columns, Unreadable};

/// A longer duration is cut to this.
const LONGEST: Span = Span::from_secs(86_400);

/// `--map FIELD=COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The field, or `time` or `duration`.
    pub field: Box<str>,
    /// The column. After a second `=`, a constant.
    pub column: Box<str>,
}

/// A field that attempts need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its name.
    pub field: Arc<str>,
    /// The rule or the route that needs the field, or `--by`, for the error; `None` if the field may be missing.
    pub needed_by: Option<String>,
    /// The part of a request to which the configuration gave this field's name: `header.x-tenant`.
    pub source: Option<String>,
}

/// The positions of the time, the duration and the fields in a line.
#[derive(Debug)]
pub struct Layout {
    /// The columns that the splitter reads.
    pub columns: Vec<Box<str>>,
    pub(crate) time: usize,
    pub(crate) taken: Taken,
    /// The columns whose sum is the duration, with the microseconds of one unit.
    duration: SmallVec<[(usize, f64); 1]>,
    pub(crate) status: Option<usize>,
    pub(crate) agent: Option<usize>,
    pub(crate) slots: Vec<Slot>,
    /// JSON columns that `--map` names and the sample lacks, with the error to report if no later line has
    /// them.
    pub(crate) unsampled: Vec<(usize, BadLayout)>,
}

/// The source of the value of one field.
#[derive(Debug)]
pub(crate) struct Slot {
    origin: SlotOrigin,
}

#[derive(Debug)]
enum SlotOrigin {
    Column(usize, Form),
    Constant(Box<str>),
    /// No column has it, and no attempt needs it.
    Nowhere,
}

/// The conversion of a column to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// As it is.
    Text,
    /// An address, perhaps with a port.
    Address,
    /// The last address of a list. The proxy added that one itself.
    LastAddress,
    /// The host of a URL or an authority.
    Host,
    /// The path of a URL or a request target.
    Path,
    /// The first word of a request line.
    MethodOfRequest,
    /// The path in a request line.
    PathOfRequest,
    /// The host in a request line, if its target is a URL.
    HostOfRequest,
    /// A parameter of the query in a request target.
    Query(Arc<str>),
    /// A parameter of the query in a request line.
    QueryOfRequest(Arc<str>),
    /// The part after the `@`.
    Domain,
}

/// Why a log cannot be replayed with these settings. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadLayout {
    /// No column holds a field.
    Missing {
        field: String,
        /// The rule or the route that needs the field, or `--by`.
        needed_by: String,
        /// The format of the log.
        format: &'static str,
        /// The columns of the log.
        columns: Vec<String>,
    },
    /// `--map` names a column that the log does not have.
    NoColumn {
        column: String,
        /// The format of the log.
        format: &'static str,
        /// The most similar column.
        near: Option<String>,
        /// The columns of the log.
        columns: Vec<String>,
    },
    /// No column holds a time.
    NoTime {
        /// The columns of the log.
        columns: Vec<String>,
    },
    /// The unit after a duration's column does not exist.
    BadUnit { unit: String },
}

impl BadLayout {
    /// The column that the log does not have.
    pub(crate) fn column(&self) -> Option<&str> {
        match self {
            Self::NoColumn { column, .. } => Some(column),
            Self::Missing { .. } | Self::NoTime { .. } | Self::BadUnit { .. } => None,
        }
    }
}

impl Mapping {
    /// Reads `FIELD=COLUMN`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((field, column)) if !field.is_empty() && (1..=MOST_FIELD_BYTES).contains(&column.len()) => {
                Ok(Self { field: field.into(), column: column.into() })
            }
            _ => {
                Err("write FIELD=COLUMN, as in `user=remote_user`, or FIELD==TEXT for a constant".to_owned())
            }
        }
    }
}

impl Layout {
    /// Finds the fields in the columns of a format.
    pub fn new(
        format: &Format,
        mappings: &[Mapping],
        wishes: &[Wish],
        taken: Option<Taken>,
    ) -> Result<Self, BadLayout> {
        let known: Vec<&str> = format.columns().collect();
        let mut search = Search { format, known, mappings, columns: Vec::new(), unsampled: Vec::new() };
        // The positions of the columns of a pattern and of a mail log are fixed.
        if !matches!(format, Format::Json { .. }) {
            search.columns = search.known.iter().map(|name| (*name).into()).collect();
        }
        let time = search.time()?;
        let duration = search.duration()?;
        let status = search.usual("status")?;
        let agent = search.usual("user_agent")?;
        let slots = wishes.iter().map(|wish| search.slot(wish)).collect::<Result<_, _>>()?;
        let taken = taken.unwrap_or_else(|| Format::taken(&search.columns[time]));
        let Search { columns, unsampled, .. } = search;
        Ok(Self { columns, time, taken, duration, status, agent, slots, unsampled })
    }

    /// Whether lines have a duration.
    pub fn has_durations(&self) -> bool {
        !self.duration.is_empty()
    }

    /// The duration of a request; zero if it is not known.
    #[inline]
    pub(crate) fn duration_of(&self, columns: Columns<'_>) -> Span {
        let part = |(place, unit): &(usize, f64)| {
            let number = columns.value(*place).and_then(|value| std::str::from_utf8(value).ok());
            let number = number.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
            // The cast limits negative numbers, infinity and NaN to valid numbers.
            ((number * unit).round() as u64).min(LONGEST.as_micros())
        };
        Span::from_micros(self.duration.iter().map(part).sum()).min(LONGEST)
    }
}

impl Slot {
    /// Appends the value of a line to the text. Returns whether the line has one.
    #[inline]
    pub(crate) fn write(&self, columns: Columns<'_>, out: &mut String) -> Result<bool, Unreadable> {
        let (place, form) = match &self.origin {
            SlotOrigin::Column(place, form) => (*place, form),
            SlotOrigin::Constant(text) => {
                out.push_str(text);
                return Ok(true);
            }
            SlotOrigin::Nowhere => return Ok(false),
        };
        let Some(value) = columns.value(place) else { return Ok(false) };
        let text = std::str::from_utf8(value).map_err(|_| Unreadable::NotUtf8)?;
        let length = out.len();
        form.write(text, out)?;
        if out.len() - length > MOST_FIELD_BYTES {
            out.truncate(length);
            return Err(Unreadable::NoNormalForm);
        }
        Ok(out.len() > length)
    }
}

impl Form {
    #[inline]
    fn write(&self, text: &str, out: &mut String) -> Result<(), Unreadable> {
        match self {
            Self::Text => out.push_str(text),
            Self::Address if text.contains(':') => out.push_str(address_of(text)),
            Self::Address => out.push_str(text),
            Self::LastAddress => out.push_str(address_of(text.rsplit(',').next().unwrap_or(text).trim())),
            Self::Host => write_host(text, out)?,
            Self::HostOfRequest => {
                if let (Some(authority), _) = parts_of(target_of(text)) {
                    write_host(authority, out)?;
                }
            }
            Self::Path => write_path(text, out)?,
            Self::PathOfRequest => write_path(target_of(text), out)?,
            Self::MethodOfRequest => out.push_str(text.split(' ').next().unwrap_or(text)),
            Self::Query(name) => write_query(name, text, out),
            Self::QueryOfRequest(name) => write_query(name, target_of(text), out),
            Self::Domain => out.push_str(text.rsplit_once('@').map_or("", |(_, domain)| domain)),
        }
        Ok(())
    }
}

fn write_host(authority: &str, out: &mut String) -> Result<(), Unreadable> {
    out.push_str(&path::normal_host(authority).map_err(|_| Unreadable::NoNormalForm)?);
    Ok(())
}

fn write_path(target: &str, out: &mut String) -> Result<(), Unreadable> {
    let (_, rest) = parts_of(target);
    let raw = rest.split(['?', '#']).next().unwrap_or(rest);
    out.push_str(&path::normal(raw).map_err(|_| Unreadable::NoNormalForm)?);
    Ok(())
}

/// Decodes a parameter as the gateway does.
#[cold]
fn write_query(name: &Arc<str>, target: &str, out: &mut String) {
    let Some((_, query)) = target.split_once('?') else { return };
    let facts = Facts {
        route: "",
        client: IpAddr::from([0, 0, 0, 0]),
        address: None,
        method: &Method::GET,
        path: "/",
        query: Some(query),
        host: "",
        headers: &http::HeaderMap::new(),
        identity: &Identity::default(),
        body: None,
    };
    let (names, aliases) = ([Arc::clone(name)], Aliases::default());
    // A parameter that is ambiguous has no value, because the gateway refuses such a request.
    if let Ok(asked) = facts.ask_alone(&names, &aliases)
        && let Some((_, value)) = asked.pairs().first()
    {
        out.push_str(value);
    }
}

/// The target of a request line: `GET /path HTTP/1.1`.
fn target_of(request: &str) -> &str {
    let rest = request.split_once(' ').map_or("", |(_, rest)| rest);
    rest.rsplit_once(' ').map_or(rest, |(target, _)| target)
}

/// Splits a URL into its authority and the rest from its path on. Another text has no authority.
fn parts_of(target: &str) -> (Option<&str>, &str) {
    let url = ["https://", "http://"].iter().find_map(|scheme| target.strip_prefix(scheme));
    let Some(url) = url else { return (None, target) };
    let end = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (authority, rest) = url.split_at(end);
    (Some(authority), if rest.starts_with('/') { rest } else { "/" })
}

/// Finds columns, and collects those that are used.
struct Search<'s> {
    format: &'s Format,
    known: Vec<&'s str>,
    mappings: &'s [Mapping],
    columns: Vec<Box<str>>,
    unsampled: Vec<(usize, BadLayout)>,
}

impl Search<'_> {
    fn place(&mut self, column: &str) -> usize {
        self.columns.iter().position(|known| **known == *column).unwrap_or_else(|| {
            self.columns.push(column.into());
            self.columns.len() - 1
        })
    }

    fn mapped(&self, field: &str) -> Option<&str> {
        self.mappings.iter().rev().find(|mapping| *mapping.field == *field).map(|mapping| &*mapping.column)
    }

    /// The position of a column that `--map` names. A JSON column may be missing from the sample and come
    /// later.
    fn named(&mut self, column: &str) -> Result<usize, BadLayout> {
        let name = column.strip_prefix('$').unwrap_or(column);
        if self.known.contains(&name) {
            return Ok(self.place(name));
        }
        let missing = BadLayout::NoColumn {
            column: name.to_owned(),
            format: self.format.name(),
            near: nearest(name, self.known.iter().copied()),
            columns: self.names(),
        };
        if !matches!(self.format, Format::Json { .. }) {
            return Err(missing);
        }
        let place = self.place(name);
        self.unsampled.push((place, missing));
        Ok(place)
    }

    fn names(&self) -> Vec<String> {
        self.known.iter().map(ToString::to_string).collect()
    }

    fn time(&mut self) -> Result<usize, BadLayout> {
        if let Some(column) = self.mapped("time").map(ToOwned::to_owned) {
            return self.named(&column);
        }
        let known: Vec<Box<str>> = self.known.iter().map(|name| (*name).into()).collect();
        let place = self.format.place_of_time(&known);
        let place = place.ok_or_else(|| BadLayout::NoTime { columns: self.names() })?;
        Ok(self.place(&known[place]))
    }

    /// The columns of the duration, and their units in microseconds.
    fn duration(&mut self) -> Result<SmallVec<[(usize, f64); 1]>, BadLayout> {
        let Some(mapped) = self.mapped("duration").map(ToOwned::to_owned) else {
            if DURATION_PARTS.iter().all(|name| self.known.contains(name)) {
                return Ok(DURATION_PARTS.iter().map(|name| (self.place(name), 1e6)).collect());
            }
            // Caddy writes seconds.
            let caddy = (self.format.name() == "caddy").then_some(("duration", 1e6));
            let usual = caddy.into_iter().chain(DURATIONS).find(|(name, _)| self.known.contains(name));
            return Ok(usual.map(|(name, unit)| (self.place(name), unit)).into_iter().collect());
        };
        let (column, unit) = mapped.rsplit_once(':').unwrap_or((&mapped, "s"));
        let unit = match unit {
            "s" => 1e6,
            "ms" => 1e3,
            "us" => 1.0,
            "ns" => 1e-3,
            unit => return Err(BadLayout::BadUnit { unit: unit.to_owned() }),
        };
        Ok([(self.named(column)?, unit)].into_iter().collect())
    }

    /// The position of a field's usual column, if the log has one.
    fn usual(&mut self, field: &str) -> Result<Option<usize>, BadLayout> {
        if let Some(column) = self.mapped(field).map(ToOwned::to_owned) {
            return self.named(&column).map(Some);
        }
        let usual = usual::columns(field).into_iter().find(|(column, _)| self.known.contains(&&**column));
        Ok(usual.map(|(column, _)| self.place(&column)))
    }

    fn slot(&mut self, wish: &Wish) -> Result<Slot, BadLayout> {
        let field = Arc::clone(&wish.field);
        if let Some(column) = self.mapped(&field).map(ToOwned::to_owned) {
            if let Some(constant) = column.strip_prefix('=') {
                return Ok(Slot { origin: SlotOrigin::Constant(constant.into()) });
            }
            let form = usual::form_of(&field, &column);
            return Ok(Slot { origin: SlotOrigin::Column(self.named(&column)?, form) });
        }
        let sources = wish.source.iter().flat_map(|source| usual::columns(source));
        let mut usual = usual::columns(&field).into_iter().chain(sources);
        let usual = usual.find(|(column, _)| self.known.contains(&&**column));
        match (usual, &wish.needed_by) {
            (Some((column, form)), _) => {
                let place = self.place(&column);
                Ok(Slot { origin: SlotOrigin::Column(place, form) })
            }
            (None, None) => Ok(Slot { origin: SlotOrigin::Nowhere }),
            (None, Some(needed_by)) => Err(BadLayout::Missing {
                field: field.to_string(),
                needed_by: needed_by.clone(),
                format: self.format.name(),
                columns: self.names(),
            }),
        }
    }
}

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { field, needed_by, format, columns } => write!(
                f,
                "{needed_by} needs the field `{field}`, which this log ({format}) does not have: add `--map {field}=COLUMN`; its columns are {}",
                columns.join(", ")
            ),
            Self::NoColumn { column, format, near, columns } => {
                write!(f, "this log ({format}) has no column `{column}`")?;
                match near {
                    Some(near) => write!(f, "; did you mean `{near}`?"),
                    None => write!(f, ": its columns are {}", columns.join(", ")),
                }
            }
            Self::NoTime { columns } => write!(
                f,
                "no column holds a time: add `--map time=COLUMN`; the columns are {}",
                columns.join(", ")
            ),
            Self::BadUnit { unit } => {
                write!(
                    f,
                    "`{unit}` is no unit of a duration: write `duration=COLUMN:ms`, with s, ms, us or ns"
                )
            }
        }
    }
}

impl std::error::Error for BadLayout {}
