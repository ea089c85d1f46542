//! Opens the parser of replies to fuzzing.

use crate::resp::{Reply, Scanner};

/// How many bytes the reply at the start of these bytes takes; `None` if it is refused or incomplete. `pieces` says how
/// many bytes arrive at a time.
pub fn read_reply(bytes: &[u8], pieces: usize) -> Option<usize> {
    let mut scanner = Scanner::default();
    let mut come = 0;
    while come < bytes.len() {
        come = (come + pieces.max(1)).min(bytes.len());
        if let Some(end) = scanner.find_end(&bytes[..come]).ok()? {
            return Reply::parse(&bytes[..end]).is_ok().then_some(end);
        }
    }
    None
}
