//! Explains the responses of a guarded route, as text.

use http::Method;
use serde::Serialize;
use tollgate_gateway::settings::{GuardSettings, HeaderMatch, Success};

use super::counting::listed;

/// The meaning of a guarded route's responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoginInWords {
    /// Which ones mean a successful login.
    pub success: String,
    /// Which ones refund the attempt.
    pub neutral: String,
    /// Which ones leave it counted.
    pub failure: String,
}

/// Explains the responses of a route with this guard.
pub fn login(guard: &GuardSettings) -> LoginInWords {
    let neutral = match &guard.neutral {
        Some(statuses) => format!("{}, or no connection to the upstream", listed(statuses)),
        None => "no connection to the upstream; no response is".to_owned(),
    };
    LoginInWords {
        success: success(&guard.success),
        neutral,
        failure: "every other response, and none at all: the attempt stays counted".to_owned(),
    }
}

fn success(success: &Success) -> String {
    let methods: Vec<&str> = success.methods.iter().map(Method::as_str).collect();
    let paths: Vec<String> = success.paths.iter().map(ToString::to_string).collect();
    let mut words =
        format!("{} to {} at {}", listed(&success.statuses), methods.join(" or "), paths.join(" or "));
    for header in &success.headers {
        words.push_str(&format!(" with the header {}", header_in_words(header)));
    }
    if let Some(cookie) = &success.cookie {
        words.push_str(&format!(" that sets the cookie {cookie}"));
    }
    words
}

fn header_in_words(header: &HeaderMatch) -> String {
    match &header.value {
        Some(value) => format!("{}: {}", header.name, String::from_utf8_lossy(value.as_bytes())),
        None => header.name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_told_apart_in_words() {
        let paths =
            "/login/*".parse().map(|path: tollgate_gateway::settings::PathPattern| path.without_below());
        let mut guard = GuardSettings::new("login", Success::new("303".parse().unwrap(), paths.unwrap()));
        assert_eq!(
            login(&guard),
            LoginInWords {
                success: "303 to POST at /login or /login/".into(),
                neutral: "no connection to the upstream; no response is".into(),
                failure: "every other response, and none at all: the attempt stays counted".into(),
            }
        );
        guard.neutral = Some("[429, 5xx]".parse().unwrap());
        guard.success.cookie = Some("sid".into());
        guard.success.headers = vec![HeaderMatch { name: http::header::LOCATION, value: None }];
        guard.success.statuses = "[2xx, 303]".parse().unwrap();
        let words = login(&guard);
        assert_eq!(words.neutral, "429 or 5xx, or no connection to the upstream");
        assert_eq!(
            words.success,
            "2xx or 303 to POST at /login or /login/ with the header location that sets the cookie sid"
        );
    }
}
