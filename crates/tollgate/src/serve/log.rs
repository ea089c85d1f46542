//! Writes the log: pretty for people, one flat JSON object a line for machines. Texts of clients and servers
//! cannot control a terminal or look like a log line of their own.

use std::fmt;
use std::io::IsTerminal;

use anstyle::Style;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::{Level, LogConfig, LogFormat};
use crate::printable::{self, plain};

/// Starts logging to standard error.
pub fn start(config: &LogConfig) {
    let level = match config.level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
        Level::Trace => tracing::Level::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // An error of the log cannot be logged either: printing it would panic.
        .log_internal_errors(false);
    // A logger that is already set stays.
    let _ = match config.format {
        LogFormat::Pretty => {
            let colours = std::io::stderr().is_terminal();
            builder.with_ansi(colours).with_target(false).fmt_fields(Readable).try_init()
        }
        LogFormat::Json => builder.event_format(Flat).try_init(),
    };
}

/// The message, then the other fields as `name=value`.
struct Readable;

impl<'w> FormatFields<'w> for Readable {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = LogLine { writer, separator: "", written: Ok(()) };
        fields.record(&mut line);
        line.written
    }
}

struct LogLine<'w> {
    writer: Writer<'w>,
    separator: &'static str,
    written: fmt::Result,
}

impl LogLine<'_> {
    fn write(&mut self, field: &Field, value: &str) -> fmt::Result {
        self.writer.write_str(std::mem::replace(&mut self.separator, " "))?;
        if field.name() != "message" {
            let (italic, dimmed) = match self.writer.has_ansi_escapes() {
                true => (Style::new().italic(), Style::new().dimmed()),
                false => (Style::new(), Style::new()),
            };
            write!(self.writer, "{italic}{}{italic:#}{dimmed}={dimmed:#}", field.name())?;
        }
        // A second line is indented, so that it does not look like a log line.
        for (index, part) in value.split('\n').enumerate() {
            let indent = if index == 0 { "" } else { "\n    " };
            write!(self.writer, "{indent}{}", plain(part))?;
        }
        Ok(())
    }
}

impl Visit for LogLine<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.written.is_ok() {
            self.written = self.write(field, &format!("{value:?}"));
        }
    }
}

/// One object a line: time, level, the event's fields, and its message as `msg`.
struct Flat;

impl<S, N> FormatEvent<S, N> for Flat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        fields.0.insert("time".into(), jiff::Timestamp::now().to_string().into());
        fields.0.insert("level".into(), event.metadata().level().as_str().to_ascii_lowercase().into());
        event.record(&mut fields);
        writeln!(writer, "{}", printable::json(&Value::Object(fields.0).to_string()))
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        self.0.insert(name.into(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
}
