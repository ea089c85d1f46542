//! Encodes the few types of MessagePack that scripts read.

/// Appends the header of a list of this many values.
pub(crate) fn list(out: &mut Vec<u8>, length: usize) {
    out.push(0xdd);
    out.extend_from_slice(&short(length).to_be_bytes());
}

/// Appends the header of a map of a few entries.
pub(crate) fn map(out: &mut Vec<u8>, length: u8) {
    out.push(0x80 | length);
}

/// Appends a whole number.
pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    match u32::try_from(number) {
        Ok(small @ 0..128) => out.push(small as u8),
        Ok(middle) => {
            out.push(0xce);
            out.extend_from_slice(&middle.to_be_bytes());
        }
        Err(_) => {
            out.push(0xcf);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Appends bytes.
pub(crate) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    if let Ok(length @ 0..32) = u8::try_from(bytes.len()) {
        out.push(0xa0 | length);
    } else {
        out.push(0xdb);
        out.extend_from_slice(&short(bytes.len()).to_be_bytes());
    }
    out.extend_from_slice(bytes);
}

/// Appends `false`, which stands for an absent value.
pub(crate) fn no(out: &mut Vec<u8>) {
    out.push(0xc2);
}

fn short(length: usize) -> u32 {
    u32::try_from(length).expect("requests are short")
}
