//! Where counters are kept.

use std::path::PathBuf;

use tollgate_core::Span;
use tollgate_core::policy::nearest;

use super::limits;
use super::problem::{Findings, hint, shown};
use super::raw::{self, StoreForm, StoreTable};
use super::tree::Path;

/// Where counters are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// In memory: they are lost when the program ends.
    Memory {
        /// How many keys are remembered; 1,000,000 unless said otherwise.
        max_keys: usize,
    },
    /// In a file.
    File {
        /// Its path; `tollgate.redb` unless said otherwise.
        path: PathBuf,
        /// How often it is written; every ten seconds unless said otherwise.
        flush_interval: Span,
        /// When it is written; at that interval unless said otherwise.
        sync: Sync,
        /// How many keys are remembered; 1,000,000 unless said otherwise.
        max_keys: usize,
    },
}

/// When a file store is written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// At the flush interval: a crash loses what was counted since.
    Interval,
    /// Before every answer: a crash loses nothing.
    Always,
}

impl StoreConfig {
    /// Whether other nodes may use the same counters, over a way that may fail.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Memory { .. } | Self::File { .. } => false,
        }
    }
}

const MAX_KEYS: usize = 1_000_000;
const FLUSH_INTERVAL: Span = Span::from_secs(10);
const FILE: &str = "./tollgate.redb";

pub(super) fn mean(written: Option<&StoreForm>, findings: &mut Findings<'_>) -> Option<StoreConfig> {
    let path = Path::of(&["store"]);
    match written {
        None => Some(StoreConfig::File {
            path: FILE.into(),
            flush_interval: FLUSH_INTERVAL,
            sync: Sync::Interval,
            max_keys: MAX_KEYS,
        }),
        Some(StoreForm::Word(word)) if word == "memory" => Some(StoreConfig::Memory { max_keys: MAX_KEYS }),
        Some(StoreForm::Word(word)) => {
            let near = hint(nearest(word, ["memory"].into_iter()));
            findings.value(
                &path,
                format!(
                    "`{}` is no store: write `memory` or `{{ file: ./tollgate.redb }}`{near}",
                    shown(word)
                ),
            );
            None
        }
        Some(StoreForm::Table(table)) => mean_table(table, &path, findings),
    }
}

fn mean_table(table: &StoreTable, path: &Path, findings: &mut Findings<'_>) -> Option<StoreConfig> {
    match (&table.memory, &table.file) {
        (Some(memory), None) => {
            let beside = [
                ("flush_interval", table.flush_interval.is_some()),
                ("sync", table.sync.is_some()),
                ("max_keys", table.max_keys.is_some()),
            ];
            for (setting, _) in beside.into_iter().filter(|(_, written)| *written) {
                let message = match setting {
                    "max_keys" => "this belongs inside of `memory`: `{ memory: { max_keys: 1000000 } }`",
                    _ => "this is a setting of file stores: memory is never written to disk",
                };
                findings.key(&path.key(setting), message);
            }
            max_keys(memory.max_keys, &path.key("memory"), findings)
                .map(|max_keys| StoreConfig::Memory { max_keys })
        }
        (None, Some(file)) => mean_file(table, file, path, findings),
        (None, None) => {
            findings.value(path, "say where: `memory`, or `{ file: ./tollgate.redb }`");
            None
        }
        (Some(_), Some(_)) => {
            findings.value(path, "keep one of `memory` and `file`");
            None
        }
    }
}

fn mean_file(
    table: &StoreTable,
    file: &str,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<StoreConfig> {
    if file.is_empty() {
        findings.value(&path.key("file"), "the path is empty: write one, as in `./tollgate.redb`");
    }
    let flush_interval = match &table.flush_interval {
        None => Some(FLUSH_INTERVAL),
        Some(text) => limits::span(text, &path.key("flush_interval"), findings),
    };
    let sync = match table.sync {
        None | Some(raw::SyncForm::Interval) => Sync::Interval,
        Some(raw::SyncForm::Always) => Sync::Always,
    };
    let max_keys = max_keys(table.max_keys, path, findings);
    Some(StoreConfig::File { path: file.into(), flush_interval: flush_interval?, sync, max_keys: max_keys? })
}

fn max_keys(written: Option<u64>, above: &Path, findings: &mut Findings<'_>) -> Option<usize> {
    let Some(written) = written else { return Some(MAX_KEYS) };
    let max_keys = usize::try_from(written).ok().filter(|max_keys| *max_keys > 0);
    if max_keys.is_none() {
        findings.value(
            &above.key("max_keys"),
            format!("`{written}` keys cannot be remembered: write a number from 1 on"),
        );
    }
    max_keys
}
