//! An HTTP client for a running server: one request, one response, with a time-out.
//!
//! It never retries: a request that charges must not be sent twice. It follows no redirect and uses no proxy,
//! so the token goes only to the named server.

mod answer;
mod dial;
mod exchange;
mod fault;
mod server;
mod token;
pub mod wire;

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request};
use serde_json::Value;
use tokio::time::timeout;
use tollgate_core::Span;

pub use answer::Answer;
pub(crate) use dial::{dial, tls};
pub(crate) use exchange::{exchange, whole_body};
pub use fault::Fault;
pub(crate) use fault::in_words as fault_in_words;
pub use server::{Path, Server, ServerError};
pub use token::{Token, TokenError};

/// The time-out of a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest response: a hundred thousand holds fit.
const MOST_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    server: Server,
    token: Option<Token>,
    timeout: Duration,
}

impl Client {
    /// A client that sends this token, and waits at most `timeout` for a whole response.
    pub fn new(server: Server, token: Option<Token>, timeout: Duration) -> Self {
        Self { server, token, timeout }
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
        let mut request = Request::builder()
            .method(method)
            .uri(self.server.target(path))
            .header("host", self.server.authority())
            .header("user-agent", concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .header("accept", "application/json, application/problem+json")
            // A kept connection may be dead; a new one costs little.
            .header("connection", "close");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", token.bearer());
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.body(Full::new(body)).expect("the server, the path and the token are checked");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.unreachable(&error))?;
        let answer = runtime.block_on(async { timeout(self.timeout, self.exchange(request)).await });
        // Resolving the server's name may still be waiting for the system.
        runtime.shutdown_background();
        answer
            .unwrap_or_else(|_| Err(Fault::TimedOut { server: self.server.to_string(), after: self.timeout }))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Fault> {
        let tls = if self.server.is_encrypted() {
            Some(tls().map_err(|error| self.unreachable(&error))?)
        } else {
            None
        };
        let within = CONNECT_TIMEOUT.min(self.timeout);
        let stream = match timeout(within, dial(self.server.host(), self.server.port(), tls.as_ref())).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.unreachable(&fault_in_words(&error))),
            Err(_) => return Err(self.unreachable(&format!("no connection within {}", Span::from(within)))),
        };
        let answer = exchange(stream, request, async |response| {
            let status = response.status().as_u16();
            let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            let body = whole_body(response, MOST_ANSWER_BYTES).await?;
            Ok(Answer { status, tag, body: body.into() })
        });
        answer.await.map_err(|error| Fault::of(error, &self.server))
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> Fault {
        Fault::Unreachable { server: self.server.to_string(), why: why.to_string() }
    }
}
