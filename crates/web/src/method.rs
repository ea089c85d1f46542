//! Checks the methods of requests.
//!
//! Methods are case-sensitive (RFC 9110, section 9.1), and all registered ones are in upper case. Yet some
//! services take `post` for `POST`. Such a request would evade the route, the rule and the guard of its
//! method, and the service would still process it.

use std::fmt;

use http::Method;

/// A method with lower-case letters. The caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMethod;

/// Refuses a method that some service may take for another.
#[inline]
pub fn check(method: &Method) -> Result<(), BadMethod> {
    let small = method.as_str().bytes().any(|byte| byte.is_ascii_lowercase());
    if small { Err(BadMethod) } else { Ok(()) }
}

impl BadMethod {
    /// The error as text.
    pub const WORDS: &str = "the method is not written in capitals, as in `POST`";
}

impl fmt::Display for BadMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::WORDS)
    }
}

impl std::error::Error for BadMethod {}

impl From<BadMethod> for crate::Problem {
    fn from(_: BadMethod) -> Self {
        Self::bad_request(BadMethod::WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_with_small_letters_is_refused_and_every_other_one_is_not() {
        let check = |text: &str| check(&Method::from_bytes(text.as_bytes()).expect("a token"));
        for text in ["GET", "POST", "PATCH", "PROPFIND", "M-SEARCH", "PURGE1"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in ["get", "post", "Post", "POSt", "propfind", "x"] {
            assert_eq!(check(text), Err(BadMethod), "{text}");
        }
    }
}
