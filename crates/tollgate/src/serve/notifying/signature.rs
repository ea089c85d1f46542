//! Signs notices: HMAC-SHA-256 (RFC 2104) over the time and the body.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// The block size of SHA-256, in bytes.
const BLOCK: usize = 64;

/// The value after `sha256=`: over the time in whole seconds, a full stop, and the body.
pub(super) fn sign(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    HEXLOWER.encode(&hmac(secret, &[seconds.to_string().as_bytes(), b".", body]))
}

fn hmac(secret: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut key = [0; BLOCK];
    if secret.len() > BLOCK {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let mut inner = Sha256::new();
    inner.update(key.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(key.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
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
            assert_eq!(HEXLOWER.encode(&hmac(secret, &[text])), expected);
        }
    }
}
