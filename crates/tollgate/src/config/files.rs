//! Reading files that the configuration names, with bounds: a path may lead to a device that never ends, or to a pipe that
//! no program writes to.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The largest file that holds a secret, a certificate or a key, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// How long a pipe may wait for a program that writes to it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens a file. A pipe waits for a program that writes to it, but not for ever.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    patiently(path, PATIENCE, |path| File::open(path))
}

/// Does what may wait, if the path leads to a pipe or a device. The thread that waits in vain ends with the process.
fn patiently<T: Send + 'static>(
    path: &Path,
    patience: Duration,
    task: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if path.metadata().is_ok_and(|found| found.is_file() || found.is_dir()) {
        return task(path);
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let owned = path.to_owned();
    std::thread::spawn(move || {
        // Nobody receives it after the time is up.
        let _ = sender.send(task(&owned));
    });
    receiver.recv_timeout(patience).unwrap_or_else(|_| {
        let reason = format!("it is a pipe, and no program has written to it for {} s", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    })
}

/// A file of at most so many bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = patiently(path, PATIENCE, move |path| {
        let mut bytes = Vec::new();
        File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    })?;
    if bytes.len() as u64 > most {
        let reason = format!("it is larger than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// A file that holds a secret, a certificate or a key.
pub(super) fn read(path: &str) -> io::Result<Vec<u8>> {
    read_up_to(Path::new(path), MOST_BYTES)
}

/// As [`read`], as text.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read_up_to(path.as_ref(), MOST_BYTES)?)
        .map_err(|_| io::Error::other("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_stays_silent_is_given_up() {
        let (reader, _writer) = io::pipe().expect("a pipe can be made");
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let read = |path: &Path| std::fs::read(path);
        let error = patiently(Path::new(&path), Duration::from_millis(1), read).expect_err("nothing comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("no program has written to it"), "{error}");
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let refused = read("/dev/zero").expect_err("it never ends");
        assert_eq!(refused.to_string(), "it is larger than 1 MiB");
        assert_eq!(read("/dev/null").expect("it ends at once"), b"");
    }
}
