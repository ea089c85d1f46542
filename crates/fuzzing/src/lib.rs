//! What is fuzzed. Each target takes any bytes, and panics if a law does not hold.
//!
//! The ordinary tests run a fixed number of inputs through each (`tests/inputs.rs`); `fuzz/` runs them under libFuzzer.

mod configuration;
mod differential;
mod forwarding;
mod http1;
mod login;
mod logs;
mod mail;
mod policy;
mod text;

pub use configuration::configuration;
pub use forwarding::forwarding;
pub use http1::{http_request, http_response};
pub use login::login_body;
pub use logs::log_lines;
pub use mail::{smtp_data, smtp_session};
pub use policy::policy_request;
pub use text::{limit_grammar, normal_forms, receipt, redis_reply};

/// Takes any bytes, and panics if a law does not hold.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus.
pub const ALL: [(&str, Target); 13] = [
    ("http_request", http_request),
    ("http_response", http_response),
    ("forwarding", forwarding),
    ("normal_forms", normal_forms),
    ("limit_grammar", limit_grammar),
    ("configuration", configuration),
    ("redis_reply", redis_reply),
    ("receipt", receipt),
    ("login_body", login_body),
    ("smtp_session", smtp_session),
    ("smtp_data", smtp_data),
    ("policy_request", policy_request),
    ("log_lines", log_lines),
];
