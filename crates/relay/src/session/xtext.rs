//! xtext (RFC 3461): printable ASCII in which `+`, `=` and other bytes are written as `+2B`.

/// Decodes xtext; `None` if it is malformed or contains something other than printable ASCII.
pub fn decode(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'+' => {
                let digit = |byte: Option<u8>| {
                    let byte = byte.filter(|byte| !byte.is_ascii_lowercase())?;
                    char::from(byte).to_digit(16)
                };
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'=' => return None,
            byte if byte.is_ascii_graphic() => byte,
            _ => return None,
        };
        if !matches!(decoded, b' '..=b'~') {
            return None;
        }
        out.push(char::from(decoded));
    }
    Some(out)
}
