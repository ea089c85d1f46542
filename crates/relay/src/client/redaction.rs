//! Keeps the secrets of a login out of what its server says: replies are logged, shown and reported.

use data_encoding::BASE64;

use super::Login;

/// The texts that must not be shown.
pub(super) struct Redaction {
    /// In lower case: a server may repeat a command in upper case.
    secrets: Vec<String>,
}

/// The text that is shown instead.
const HIDDEN: &str = "***";
/// The shortest part of a secret that a reply may not have. Shorter parts are in any text.
const LEAST_PART: usize = 8;

impl Redaction {
    /// The secrets that a login sends to its server: the password, and its encodings.
    pub(super) fn of(login: Option<&Login>) -> Self {
        let secrets = login.into_iter().flat_map(|Login { user, password }| {
            let encoded = BASE64.encode(password.as_bytes());
            [BASE64.encode(format!("\0{user}\0{password}").as_bytes()), encoded, password.clone()]
        });
        Self {
            secrets: secrets
                .filter(|secret| !secret.is_empty())
                .map(|one| one.to_ascii_lowercase())
                .collect(),
        }
    }

    /// Hides the secrets in a line: as a whole, and parts of them, because servers cut what they repeat.
    pub(super) fn redact(&self, line: &mut String) {
        for secret in &self.secrets {
            // A secret of a few letters is hidden where it is a word: elsewhere it is a part of other words.
            let is_short = secret.len() < LEAST_PART;
            let mut from = 0;
            while let Some(at) = line.to_ascii_lowercase()[from..].find(&**secret).map(|at| from + at) {
                let end = at + secret.len();
                let borders = [line[..at].chars().next_back(), line[end..].chars().next()];
                if is_short && borders.iter().flatten().any(|char| char.is_alphanumeric()) {
                    from = end;
                    continue;
                }
                line.replace_range(at..end, HIDDEN);
                from = at + HIDDEN.len();
            }
        }
        let is_end = |char: char| char.is_whitespace() || "<>()[]\"'`,;:".contains(char);
        let words: Vec<String> = line.split(is_end).map(str::to_owned).collect();
        for word in words.iter().filter(|word| self.is_part(word)) {
            *line = line.replace(&**word, HIDDEN);
        }
    }

    /// Whether a word is a part of a secret, long enough to be no accident. Dots stand for what a server left out.
    fn is_part(&self, word: &str) -> bool {
        let word = word.trim_matches(['.', '…']).to_ascii_lowercase();
        word.len() >= LEAST_PART && self.secrets.iter().any(|secret| secret.contains(&word))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redacted(password: &str, line: &str) -> String {
        let login = Login { user: "app".to_owned(), password: password.to_owned() };
        let mut line = line.to_owned();
        Redaction::of(Some(&login)).redact(&mut line);
        line
    }

    #[test]
    fn a_login_that_a_server_repeats_is_hidden() {
        let password = "correct horse battery";
        let token = BASE64.encode(format!("\0app\0{password}").as_bytes());
        let encoded = BASE64.encode(password.as_bytes());
        for (line, shown) in [
            (format!("unrecognized: AUTH PLAIN {token}"), "unrecognized: AUTH PLAIN ***"),
            (format!("UNRECOGNIZED: {}", token.to_uppercase()), "UNRECOGNIZED: ***"),
            (format!("bad line \"{}...\"", &token[..20]), "bad line \"***\""),
            (format!("what is {encoded}?"), "what is ***?"),
            (format!("{password} is wrong"), "*** is wrong"),
            ("user app is locked".to_owned(), "user app is locked"),
        ] {
            assert_eq!(redacted(password, &line), shown);
        }
        assert_eq!(redacted("pw", "pw is no password of pwned"), "*** is no password of pwned");
        assert_eq!(redacted("", "nothing"), "nothing");
    }

    proptest! {
        #[test]
        fn no_line_shows_the_password(password in "[!-~]{8,30}", before in "\\PC{0,20}", after in "\\PC{0,20}") {
            let line = format!("{before}{password}{after}");
            prop_assert!(!redacted(&password, &line).contains(&password));
        }
    }
}
