//! The formats of logs: their names, the form of their lines, and the moment that their times describe.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::pattern::{BadPattern, Pattern};
use super::stamp::Stamps;
use super::{Columns, Splitter, json, postfix};

/// The format of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Lines of a pattern.
    Pattern {
        /// The name of the format.
        name: &'static str,
        pattern: Pattern,
    },
    /// Lines of JSON. The columns are found in a sample.
    Json {
        /// The name of the format.
        name: &'static str,
        /// The columns that the sample has.
        columns: BTreeSet<String>,
    },
    /// Postfix's mail log.
    Postfix,
}

/// The moment that the time of a line describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The time at which the request began.
    AtStart,
    /// The time at which the request ended.
    AtEnd,
}

/// Why there is no format. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFormat {
    /// No known format has this name.
    UnknownName,
    /// No known format has lines like these.
    Unrecognised,
    /// No line is a JSON object.
    NoObject,
    /// The pattern cannot be used.
    Pattern(BadPattern),
}

/// The formats by name. The first that matches is chosen, so the more exact ones come first.
const PATTERNS: [(&str, &str); 6] = [
    (
        "alb",
        r#"$type $time $elb $remote_addr $target $request_processing_time $target_processing_time $response_processing_time $status $target_status_code $received_bytes $sent_bytes "$request" "$http_user_agent" $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $request_creation_time "#,
    ),
    (
        "envoy",
        r#"[$start_time] "$request" $status $response_flags $bytes_received $bytes_sent $duration_ms $upstream_service_time "$x_forwarded_for" "$http_user_agent" "$request_id" "$host" "$upstream_host""#,
    ),
    (
        "envoy",
        r#"[$start_time] "$request" $status $response_flags $response_code_details $connection_termination_details "$upstream_transport_failure_reason" $bytes_received $bytes_sent $duration_ms $upstream_service_time "$x_forwarded_for" "$http_user_agent" "$request_id" "$host" "$upstream_host""#,
    ),
    (
        "combined",
        r#"$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#,
    ),
    (
        "vhost",
        r#"$host $remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#,
    ),
    ("common", r#"$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent"#),
];

/// The columns that can contain the time, the most likely first.
pub const TIMES: [&str; 13] = [
    "request_creation_time",
    "start_time",
    "time_local",
    "time_iso8601",
    "msec",
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "date",
    "datetime",
    "StartUTC",
    "startTime",
];

/// The columns that can contain the duration, each with the microseconds of one unit.
pub const DURATIONS: [(&str, f64); 10] = [
    ("request_time", 1e6),
    ("request_time_ms", 1e3),
    ("request_time_us", 1.0),
    ("duration_ms", 1e3),
    ("duration_us", 1.0),
    ("delay", 1e6),
    ("latency_ms", 1e3),
    ("response_time_ms", 1e3),
    ("elapsed_ms", 1e3),
    ("took_ms", 1e3),
];

/// The parts of a duration in the logs of AWS's load balancers, in seconds. A part that did not take place is `-1`.
pub const DURATION_PARTS: [&str; 3] =
    ["request_processing_time", "target_processing_time", "response_processing_time"];

/// The number of lines of a sample that are examined.
pub(crate) const SAMPLED: usize = 1_000;

impl Format {
    /// The names that `--format` accepts.
    pub const NAMES: [&str; 8] = ["combined", "common", "vhost", "json", "caddy", "envoy", "alb", "postfix"];

    /// The format with this name, or a pattern; `sample` gives the columns of JSON.
    pub fn named(name: &str, sample: &[u8]) -> Result<Self, NoFormat> {
        match name {
            "postfix" => Ok(Self::Postfix),
            "json" | "caddy" => {
                let format = Self::json(sample, if name == "json" { "json" } else { "caddy" });
                if format.columns().next().is_none() { Err(NoFormat::NoObject) } else { Ok(format) }
            }
            name if Self::NAMES.contains(&name) => {
                let fits = patterns().filter(|format| format.name() == name);
                let best = fits.max_by_key(|format| format.readable(sample));
                Ok(best.expect("every other name is a pattern's"))
            }
            text if text.contains(['$', '%']) => Pattern::parse(text)
                .map(|pattern| Self::Pattern { name: "pattern", pattern })
                .map_err(NoFormat::Pattern),
            _ => Err(NoFormat::UnknownName),
        }
    }

    /// Recognises the format of a sample: the first format that matches at least half of the lines, or else the
    /// one that matches most.
    pub fn detect(sample: &[u8]) -> Result<Self, NoFormat> {
        let lines = lines(sample).count();
        let mut best: Option<(usize, Self)> = None;
        let caddy = Self::json(sample, "caddy");
        let is_caddy = caddy.columns().any(|column| column == "request.uri");
        let json = if is_caddy { caddy } else { Self::json(sample, "json") };
        for format in patterns().chain([Self::Postfix, json]) {
            let readable = format.readable(sample);
            if readable > 0 && readable * 2 >= lines {
                return Ok(format);
            }
            if readable > best.as_ref().map_or(0, |(most, _)| *most) {
                best = Some((readable, format));
            }
        }
        best.map(|(_, format)| format).ok_or(NoFormat::Unrecognised)
    }

    fn json(sample: &[u8], name: &'static str) -> Self {
        let mut columns = BTreeSet::new();
        for line in lines(sample) {
            json::paths(line, &mut columns);
        }
        Self::Json { name, columns }
    }

    /// The number of lines that have a time in the right column.
    fn readable(&self, sample: &[u8]) -> usize {
        let names: Vec<Box<str>> = self.columns().map(Into::into).collect();
        let Some(time) = self.place_of_time(&names) else { return 0 };
        // Without this check, a line with a host before the address would match a format without a host.
        let address = names.iter().position(|name| &**name == "remote_addr");
        let mut splitter = Splitter::new(self, &names);
        let mut stamps = Stamps::new(tollgate_core::Timestamp::from_micros(u64::MAX / 2), None);
        let readable = |line: &&[u8]| match splitter.split(line) {
            Ok(Some(columns)) => {
                let addressed = address.is_none_or(|place| columns.value(place).is_some_and(is_address));
                addressed && is_time(columns, time, &mut stamps)
            }
            // A line about a message counts as readable even if it is not an attempt.
            Ok(None) => memchr::memmem::find(line, b"postfix/").is_some(),
            Err(_) => false,
        };
        lines(sample).filter(readable).count()
    }

    /// The position of the time among these columns.
    pub fn place_of_time(&self, columns: &[Box<str>]) -> Option<usize> {
        TIMES.iter().find_map(|name| columns.iter().position(|column| **column == **name))
    }

    /// The name of the format.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pattern { name, .. } | Self::Json { name, .. } => name,
            Self::Postfix => "postfix",
        }
    }

    /// The names of the format's columns.
    pub fn columns(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Pattern { pattern, .. } => Box::new(pattern.names()),
            Self::Json { columns, .. } => Box::new(columns.iter().map(String::as_str)),
            Self::Postfix => Box::new(postfix::COLUMNS.into_iter()),
        }
    }

    /// The moment that the time in this column describes, by the column's name.
    pub fn taken(column: &str) -> Taken {
        if column.contains("start") || column.contains("Start") || column.contains("creation") {
            Taken::AtStart
        } else {
            Taken::AtEnd
        }
    }
}

fn patterns() -> impl Iterator<Item = Format> {
    PATTERNS.into_iter().map(|(name, text)| Format::Pattern {
        name,
        pattern: Pattern::parse(text).expect("the patterns of known formats are right"),
    })
}

fn lines(sample: &[u8]) -> impl Iterator<Item = &[u8]> {
    sample
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .filter(|line| !line.is_empty())
        .take(SAMPLED)
}

fn is_address(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| address_of(text).parse::<IpAddr>().is_ok())
}

/// The address of an endpoint, without the port: `192.0.2.7:4711`, `[2001:db8::1]:4711`.
pub(crate) fn address_of(text: &str) -> &str {
    let Some((before, _)) = text.rsplit_once(':') else { return text };
    if text.parse::<IpAddr>().is_ok() {
        return text;
    }
    before.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(before)
}

fn is_time(columns: Columns<'_>, place: usize, stamps: &mut Stamps) -> bool {
    columns.value(place).is_some_and(|text| stamps.read(text).is_some())
}

impl NoFormat {
    /// Whether other lines could not change the result.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::UnknownName | Self::Pattern(_) => true,
            Self::Unrecognised | Self::NoObject => false,
        }
    }
}

impl fmt::Display for NoFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName | Self::Unrecognised => {
                let names = Format::NAMES.join(", ");
                write!(
                    f,
                    "the format is not known: choose one of {names}, or give the `log_format` of nginx as it is configured"
                )
            }
            Self::NoObject => f.write_str("no line is a JSON object"),
            Self::Pattern(bad) => write!(f, "the format is not known: {bad}"),
        }
    }
}

impl std::error::Error for NoFormat {}
