//! The hint that a login needs a CAPTCHA. The upstream gets it with a request that must include one. The
//! client gets it with a response after which the next request must include one.

use memchr::memmem;
use tollgate_web::answer::headers::is_ours;

/// Whether a guarded request must include a CAPTCHA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captcha {
    Required,
    NotRequired,
}

/// The header line.
pub(crate) const LINE: &[u8] = b"x-captcha-required: true\r\n";
const NAME: &[u8] = b"x-captcha-required";

impl Captcha {
    pub(crate) fn required(is: bool) -> Self {
        if is { Self::Required } else { Self::NotRequired }
    }
}

/// Whether a server would read a header of this name as the hint. Some servers treat `-` and `_` alike.
pub(crate) fn is_hint(name: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == NAME.len() && name.iter().map(plain).eq(NAME.iter().copied())
}

/// Whether the added header lines replace the upstream's header of this name.
pub(crate) fn replace(added: &[u8], name: &[u8]) -> bool {
    if added.is_empty() {
        return false;
    }
    // If the hint is the only added line, the upstream's own rate-limit headers stay.
    (is_ours(name) && added != LINE) || (is_hint(name) && memmem::find(added, LINE).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_known_however_it_is_written() {
        assert!(is_hint(b"X-Captcha-Required") && is_hint(b"x_captcha_required"));
        assert!(!is_hint(b"x-captcha-require") && !is_hint(b"x-captcha-required2"));
    }

    #[test]
    fn added_lines_replace_headers_of_their_own_names_only() {
        assert!(!replace(b"", b"x-ratelimit-limit") && !replace(b"", NAME));
        assert!(replace(LINE, NAME) && !replace(LINE, b"x-ratelimit-limit"));
        let limits = b"x-ratelimit-limit: 1\r\n";
        assert!(replace(limits, b"X-RateLimit-Limit") && !replace(limits, NAME));
        let both = [&limits[..], LINE].concat();
        assert!(replace(&both, b"x-ratelimit-limit") && replace(&both, NAME) && !replace(&both, b"etag"));
    }
}
