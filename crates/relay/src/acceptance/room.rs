//! Bounds the memory of all messages that are being received, whatever door they come through.
//!
//! A message is in memory until its header is complete, and then piece by piece. Buffers grow by doubling, so a
//! message takes about twice the bytes received, up to a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of all messages together.
pub(super) const MOST_IN_TOTAL: u64 = 256 << 20;
/// The most bytes of one message: its header, and the text that is collected before it is written.
const MOST_OF_ONE: u64 = 512 << 10;

#[derive(Debug, Default)]
pub(super) struct Memory(AtomicU64);

/// The memory of one message. Dropping this frees it.
#[derive(Debug)]
pub(super) struct Room {
    memory: Arc<Memory>,
    bytes: u64,
}

/// All messages together would take too much memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Room {
    /// Reserves the memory of a message before its first byte.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), bytes: 0 }
    }

    /// Reserves the memory of a message of which this many bytes were received.
    pub(super) fn grow_to(&mut self, come: u64) -> Result<(), NoRoom> {
        let more = come.saturating_mul(2).min(MOST_OF_ONE).saturating_sub(self.bytes);
        let before = self.memory.0.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if more > 0 && before + more > MOST_IN_TOTAL { Err(NoRoom) } else { Ok(()) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_messages_share_the_memory_and_give_it_back() {
        let memory = Arc::default();
        let grown = |come: u64| {
            let mut room = Room::new(&memory);
            room.grow_to(come).map(|()| room)
        };
        let mut rooms: Vec<Room> =
            (0..MOST_IN_TOTAL / MOST_OF_ONE).map(|_| grown(1 << 30).unwrap()).collect();
        assert_eq!(grown(1).unwrap_err(), NoRoom);
        rooms[0].grow_to(1 << 31).expect("it takes no more than before");
        rooms.pop();
        let mut small = grown(1).expect("there is room again");
        assert_eq!(small.grow_to(MOST_OF_ONE + 1), Ok(()));
        assert_eq!(grown(1).unwrap_err(), NoRoom);
    }
}
