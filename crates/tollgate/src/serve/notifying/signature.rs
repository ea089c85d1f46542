//! Signs notices: HMAC-SHA-256 (RFC 2104) over the time and the body.

use data_encoding::HEXLOWER;
use ring::hmac::{self, HMAC_SHA256};

/// The value after `sha256=`: an HMAC over the time in whole seconds, a full stop, and the body.
pub(super) fn sign(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    hmac(secret, &[seconds.to_string().as_bytes(), b".", body])
}

fn hmac(secret: &[u8], parts: &[&[u8]]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, secret));
    parts.iter().for_each(|part| context.update(part));
    HEXLOWER.encode(context.sign().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hmac_of_rfc_4231() {
        let table: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (secret, text, expected) in table {
            assert_eq!(hmac(secret, &[text]), expected);
        }
    }
}
