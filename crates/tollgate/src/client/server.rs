//! The address of a server, and the paths of its API.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// A server's address: `http://host:port`, optionally with a path before the API's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    base: String,
    uri: Uri,
}

/// A path of the API; every part is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

/// A text that is not a server's address. The caller's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    problem: &'static str,
}

impl Server {
    /// The complete URL of a path.
    pub fn at(&self, path: &Path) -> String {
        format!("{}{}", self.base, path.0)
    }

    /// The host, as a certificate has it.
    pub fn host(&self) -> &str {
        let host = self.uri.host().expect("checked when it was read");
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The host and port, as the `Host` header has them.
    pub fn authority(&self) -> &str {
        self.uri.authority().expect("checked when it was read").as_str()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// Whether it uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// The path with the server's own before it, as in a request line.
    pub fn target(&self, path: &Path) -> String {
        format!("{}{}", self.uri.path().trim_end_matches('/'), path.0)
    }
}

impl FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let wrong = |problem| Err(ServerError { problem });
        if !(text.starts_with("http://") || text.starts_with("https://")) {
            return wrong("a server starts with http:// or https://, as in http://127.0.0.1:8080");
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return wrong("this is not an address; write it as in http://127.0.0.1:8080");
        };
        let Some(authority) = uri.authority() else {
            return wrong("the host is missing; write it as in http://127.0.0.1:8080");
        };
        if authority.as_str().contains('@') {
            return wrong("no user or password here: the token goes into TOLLGATE_TOKEN or --token-file");
        }
        if uri.query().is_some() || text.contains('#') {
            return wrong("only scheme, host, port and path, as in http://127.0.0.1:8080");
        }
        Ok(Self { base: text.trim_end_matches('/').to_owned(), uri })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.problem)
    }
}

impl std::error::Error for ServerError {}

impl Path {
    /// A path below the API's root. Slashes in a part are escaped.
    pub fn new(parts: &[&str]) -> Self {
        let mut path = "/api/v1".to_owned();
        for part in parts {
            path.push('/');
            escape(part, &mut path);
        }
        Self(path)
    }

    /// The path with a query of these parameters.
    #[must_use]
    pub fn with_query<'m>(mut self, members: impl IntoIterator<Item = (&'m str, &'m str)>) -> Self {
        for (index, (name, value)) in members.into_iter().enumerate() {
            self.0.push(if index == 0 { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            escape(value, &mut self.0);
        }
        self
    }

    /// The path with `?limit=`, and with `&after=` if `after` is given.
    #[must_use]
    pub fn page(self, limit: usize, after: Option<&str>) -> Self {
        let limit = limit.to_string();
        self.with_query([("limit", limit.as_str())].into_iter().chain(after.map(|after| ("after", after))))
    }

    /// The path with `?limit=`.
    #[must_use]
    pub fn at_most(self, limit: usize) -> Self {
        self.with_query([("limit", limit.to_string().as_str())])
    }
}

fn escape(part: &str, path: &mut String) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push('%');
            path.push_str(&data_encoding::HEXUPPER.encode(&[byte]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stays_one_part_whatever_it_contains() {
        let path = Path::new(&["counters", "login", "a/b,c@d%20?#é"]);
        assert_eq!(path.0, "/api/v1/counters/login/a%2Fb%2Cc%40d%2520%3F%23%C3%A9");
    }

    #[test]
    fn a_member_of_the_query_stays_one_member_whatever_it_contains() {
        let path = Path::new(&["bans"]).with_query([("after", "user=a&b"), ("contains", "x y+")]);
        assert_eq!(path.0, "/api/v1/bans?after=user%3Da%26b&contains=x%20y%2B");
    }

    #[test]
    fn a_page_comes_after_whatever_it_is() {
        let page = |after| Path::new(&["consumers"]).page(5, after).0;
        assert_eq!(page(None), "/api/v1/consumers?limit=5");
        assert_eq!(page(Some("a&b #")), "/api/v1/consumers?limit=5&after=a%26b%20%23");
    }

    #[test]
    fn a_server_keeps_the_path_in_front() {
        let server: Server = "https://[::1]/limits/".parse().unwrap();
        assert_eq!(server.at(&Path::new(&["top"])), "https://[::1]/limits/api/v1/top");
        assert_eq!(server.target(&Path::new(&["top"])), "/limits/api/v1/top");
        assert_eq!((server.host(), server.port(), server.is_encrypted()), ("::1", 443, true));
        assert_eq!("http://limits".parse::<Server>().unwrap().port(), 80);
    }

    #[test]
    fn an_invalid_address_is_refused() {
        for text in [
            "127.0.0.1:8080",
            "ftp://x",
            "http://",
            "http://a b",
            "http://u:p@h",
            "http://h?x=1",
            "http://h/#x",
        ] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
