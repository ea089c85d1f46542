//! A clock that a test moves under the program, and under everything that it starts.

use std::path::PathBuf;

use super::Home;

/// The path of libfaketime.
pub fn faketime() -> PathBuf {
    let platforms = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found = platforms.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    found.into_iter().find(|path| path.exists()).expect("libfaketime is not installed: run `./test`")
}

impl Home {
    /// Programs here use a clock that [`Home::shift_clock`] moves. Only the wall clock is moved; time-outs
    /// are not affected.
    pub fn with_moved_clock(self) -> Self {
        let file = self.path("clock").display().to_string();
        self.shift_clock(0);
        self.variable("LD_PRELOAD", &faketime().display().to_string())
            .variable("FAKETIME_TIMESTAMP_FILE", &file)
            .variable("FAKETIME_NO_CACHE", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .variable("DONT_FAKE_MONOTONIC", "1")
    }

    /// Moves the clock this many seconds ahead of the real one. The program follows in a moment.
    pub fn shift_clock(&self, ahead_secs: i64) {
        // Renamed into place, so that it is never read half-written.
        std::fs::write(self.path("clock.new"), format!("{ahead_secs:+}s\n")).unwrap();
        std::fs::rename(self.path("clock.new"), self.path("clock")).unwrap();
    }
}
