//! A server's clock that a test moves: libfaketime reads it from a file at every call.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary;

/// The file with the offset of a server's clock.
#[derive(Debug)]
pub(crate) struct ShiftedClock {
    file: PathBuf,
}

impl ShiftedClock {
    pub(crate) fn new(directory: &Path, ahead_secs: i64) -> Self {
        let clock = Self { file: directory.join("faketime") };
        clock.shift(ahead_secs);
        clock
    }

    pub(crate) fn shift(&self, ahead_secs: i64) {
        // Renamed into place, so that the server never reads a half-written file.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{ahead_secs:+}s\n")).expect("the clock's file can be written");
        std::fs::rename(new, &self.file).expect("the clock's file can be replaced");
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        // Debian's Redis allocates with jemalloc, which reads the time before libfaketime is ready. With libc
        // loaded before it, libc allocates.
        let preload = format!("{}:libc.so.6", binary::faketime().display());
        command.env("LD_PRELOAD", preload);
        command.env("FAKETIME_TIMESTAMP_FILE", &self.file).env("FAKETIME_NO_CACHE", "1");
        // Only the wall clock is moved; time-outs and events are not affected.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    }
}
