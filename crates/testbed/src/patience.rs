//! Real time, for waiting on other processes.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest wait for an event on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub(crate) fn real_time_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(since.as_secs()).expect("it is before the end of time")
}

/// Lets real time pass for another process.
#[expect(clippy::disallowed_methods, reason = "a process of its own lives in real time")]
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// Waits until something has happened in another process.
///
/// # Panics
///
/// If it does not happen within [`PATIENCE`].
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        pause(Duration::from_millis(10));
    }
}
