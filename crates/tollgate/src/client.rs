//! An HTTP client for a running server: one request, one response, with a time-out.
//!
//! It never retries: a request that charges must not be sent twice. It follows no redirect and uses no proxy,
//! so the token goes only to the named server.

mod answer;
mod dial;
mod fault;
mod server;
mod token;
pub mod wire;

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Method, Request};
use ureq::tls::{RootCerts, TlsConfig};

pub use answer::Answer;
pub(crate) use dial::{dial, tls};
pub use fault::Fault;
pub(crate) use fault::in_words as fault_in_words;
pub use server::{Path, Server, ServerError};
pub use token::{Token, TokenError};

/// The time-out of a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest response: a hundred thousand holds fit.
const MOST_ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    server: Server,
    token: Option<Token>,
    timeout: Duration,
}

impl Client {
    /// A client that sends this token, and waits at most `timeout` for a whole response.
    pub fn new(server: Server, token: Option<Token>, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIMEOUT.min(timeout)))
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            // A kept connection may be dead; a new one costs little.
            .max_idle_connections(0)
            // The system's certificates, so that a company's own authority is trusted too.
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.new_agent(), server, token, timeout }
    }

    /// The same client with a longer time-out.
    pub fn more_patient(&self, more: Duration) -> Self {
        Self::new(self.server.clone(), self.token.clone(), self.timeout.saturating_add(more))
    }

    /// The server it speaks to.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The token that it sends.
    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// The longest wait for a whole response.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a `GET`.
    pub fn get(&self, path: &Path) -> Result<Answer, Fault> {
        self.ask(Method::GET, path, &[], None)?.unless_refused(&self.server)
    }

    /// Sends a `POST`. The 429 of a denied attempt is a normal response, and so is the 403 of a blocked one.
    pub fn post(&self, path: &Path, body: &Value) -> Result<Answer, Fault> {
        let answer = self.ask(Method::POST, path, &[], Some(body))?;
        let decided = answer.status == 429 || answer.status == 403 && answer.is_decision();
        if decided { Ok(answer) } else { answer.unless_refused(&self.server) }
    }

    /// Sends a `PUT`.
    pub fn put(&self, path: &Path, body: &Value) -> Result<Answer, Fault> {
        self.ask(Method::PUT, path, &[], Some(body))?.unless_refused(&self.server)
    }

    /// Sends a `PUT` that only succeeds if the resource still has this ETag.
    pub fn put_over(&self, path: &Path, tag: &str, body: &Value) -> Result<Answer, Fault> {
        let headers = [("if-match", tag)];
        self.ask(Method::PUT, path, &headers, Some(body))?.unless_refused(&self.server)
    }

    /// Sends a `DELETE`.
    pub fn delete(&self, path: &Path) -> Result<Answer, Fault> {
        self.ask(Method::DELETE, path, &[], None)?.unless_refused(&self.server)
    }

    fn ask(
        &self,
        method: Method,
        path: &Path,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Fault> {
        let mut request = Request::builder().method(method).uri(self.server.at(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request = request.header("accept", "application/json, application/problem+json");
        if let Some(token) = &self.token {
            request = request.header("authorization", token.bearer());
        }
        let invariant = "the server, the path and the token are checked";
        let response = match body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.to_string()).expect(invariant))
            }
            None => self.agent.run(request.body(()).expect(invariant)),
        };
        let fault = |error: ureq::Error| Fault::of(error, &self.server, self.timeout);
        let mut response = response.map_err(fault)?;
        let status = response.status().as_u16();
        let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let reader = response.body_mut().with_config().limit(MOST_ANSWER_BYTES);
        Ok(Answer { status, tag, body: reader.read_to_vec().map_err(fault)? })
    }
}
