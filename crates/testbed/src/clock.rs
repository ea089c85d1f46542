//! A server's clock, when a test moves it: libfaketime reads it anew from a file at every call.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary;

/// The file that says how far a server's clock is ahead.
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
        // Renamed into place, so that the server never reads half of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{ahead_secs:+}s\n")).expect("the clock's file can be written");
        std::fs::rename(new, &self.file).expect("the clock's file can be replaced");
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        // Debian's Redis allocates by jemalloc, which asks for the time before libfaketime can say
        // it. With libc in front of it, libc allocates.
        let preload = format!("{}:libc.so.6", binary::faketime().display());
        command.env("LD_PRELOAD", preload);
        command.env("FAKETIME_TIMESTAMP_FILE", &self.file).env("FAKETIME_NO_CACHE", "1");
        // Only what the clock on the wall shows is moved: timeouts and events go on as ever.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    }
}
