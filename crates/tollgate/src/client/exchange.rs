//! One HTTP/1 exchange over a connection of its own: a request out, a response back. It follows no redirect
//! and uses no proxy, so a token or a notice goes only to the named server.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::dial::Stream;
use super::fault::in_words;

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum NoResponse {
    /// The connection broke. The server may have acted on the request.
    Broken(String),
    /// What came back is not HTTP.
    NotHttp(String),
    /// The body is longer than the caller accepts.
    TooLong,
}

/// Sends a request, and returns what `read` makes of the response.
pub(crate) async fn exchange<T>(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, NoResponse>,
) -> Result<T, NoResponse> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let asked = async { read(sender.send_request(request).await?).await };
    tokio::pin!(asked);
    // Both are driven here, so that dropping one drops the other.
    tokio::select! {
        answered = &mut asked => answered,
        // The response, or the error, has been handed over.
        _ = connection => asked.await,
    }
}

/// The whole body of a response, of at most this many bytes.
pub(crate) async fn whole_body(response: Response<Incoming>, most: usize) -> Result<Bytes, NoResponse> {
    match Limited::new(response.into_body(), most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => {
            Err(error.downcast::<hyper::Error>().map_or(NoResponse::TooLong, |error| (*error).into()))
        }
    }
}

impl From<hyper::Error> for NoResponse {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse() {
            return Self::NotHttp(error.to_string());
        }
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        Self::Broken(match source {
            Some(source) => in_words(source),
            None if error.is_incomplete_message() => in_words(&std::io::ErrorKind::UnexpectedEof.into()),
            None => error.to_string(),
        })
    }
}

impl std::fmt::Display for NoResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(why) => f.write_str(why),
            Self::NotHttp(why) => write!(f, "it does not speak HTTP: {why}"),
            Self::TooLong => f.write_str("the answer is too long"),
        }
    }
}
