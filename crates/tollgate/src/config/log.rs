//! The settings of the log.

use super::raw;

/// The settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Its format; by default for people.
    pub format: LogFormat,
    /// Its level; by default info.
    pub level: Level,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For machines: one JSON object a line.
    Json,
}

/// The levels of the log, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

pub(super) fn mean(written: &raw::Log) -> LogConfig {
    LogConfig {
        format: match written.format {
            None | Some(raw::LogFormat::Pretty) => LogFormat::Pretty,
            Some(raw::LogFormat::Json) => LogFormat::Json,
        },
        level: match written.level {
            Some(raw::LogLevel::Error) => Level::Error,
            Some(raw::LogLevel::Warn) => Level::Warn,
            None | Some(raw::LogLevel::Info) => Level::Info,
            Some(raw::LogLevel::Debug) => Level::Debug,
            Some(raw::LogLevel::Trace) => Level::Trace,
        },
    }
}
