//! Reading files that the configuration names, with a bound: a path may lead to a device that never ends.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file that holds a secret, a certificate or a key, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// A file of at most so many bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
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
pub(super) fn read_text(path: &str) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let refused = read("/dev/zero").expect_err("it never ends");
        assert_eq!(refused.to_string(), "it is larger than 1 MiB");
        assert_eq!(read("/dev/null").expect("it ends at once"), b"");
    }
}
