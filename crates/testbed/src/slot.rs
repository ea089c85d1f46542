//! The slot of a key, of the 16,384 of a Cluster.

/// The slot of a key: CRC-16 (XMODEM) of the part between the first `{` and the next `}`, if that is not
/// empty, else of the whole.
#[must_use]
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}.bar"), 12_182);
        assert_eq!(slot_of("a{foo}{bar}"), 12_182);
        assert_ne!(slot_of("{}foo"), 12_182);
    }
}
