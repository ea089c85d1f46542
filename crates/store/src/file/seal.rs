//! The seal of a state file: a mark that identifies the file, and the number of its newest commit.
//!
//! It is in the first page, behind the database's header, where redb writes nothing. The writer puts it there
//! after each durable commit. If the tables have an older number than the seal, commits were lost: redb found
//! the newest one damaged and fell back to the one before.

use redb::StorageBackend;

use super::disk::Disk;

/// Part of the seal and of the table `meta`, so that a damaged state file can still be recognised.
pub(super) const MARK: [u8; 16] = *b"tollgate\0counts\n";

/// Behind the header of redb, which takes 320 bytes, and within the first page of 4,096.
const AT: u64 = 2_048;
const LENGTH: usize = MARK.len() + 16;

/// The number of the newest commit, if the file has a valid seal.
pub(super) fn read(disk: &Disk) -> Option<u64> {
    let mut bytes = [0; LENGTH];
    disk.read(AT, &mut bytes).ok()?;
    let (mark, numbers) = bytes.split_at(MARK.len());
    let (number, check) = numbers.split_at(8);
    let number = u64::from_le_bytes(number.try_into().ok()?);
    let check = u64::from_le_bytes(check.try_into().ok()?);
    (mark == MARK && check == !number).then_some(number)
}

/// Writes the seal of a durable commit. The seal itself need not be durable: an older one only detects less.
pub(super) fn write(disk: &Disk, number: u64) {
    let mut bytes = [0; LENGTH];
    bytes[..MARK.len()].copy_from_slice(&MARK);
    bytes[MARK.len()..MARK.len() + 8].copy_from_slice(&number.to_le_bytes());
    bytes[MARK.len() + 8..].copy_from_slice(&(!number).to_le_bytes());
    // A disk that fails here also fails at the next commit, which reports it.
    let _ = disk.write(AT, &bytes);
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    #[test]
    fn a_seal_of_which_one_byte_is_wrong_is_none() {
        let disk = Disk::direct(Box::new(InMemoryBackend::new()));
        assert_eq!(read(&disk), None, "the file is too short");
        disk.set_len(4_096).unwrap();
        assert_eq!(read(&disk), None, "it has no seal");
        for number in [0, 7, u64::MAX] {
            write(&disk, number);
            assert_eq!(read(&disk), Some(number));
        }
        for offset in AT..AT + LENGTH as u64 {
            let mut byte = [0];
            disk.read(offset, &mut byte).unwrap();
            disk.write(offset, &[byte[0] ^ 1]).unwrap();
            assert_eq!(read(&disk), None, "byte {offset}");
            disk.write(offset, &byte).unwrap();
            assert_eq!(read(&disk), Some(u64::MAX));
        }
    }
}
