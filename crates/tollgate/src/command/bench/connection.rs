//! One kept-alive connection to the server.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::client::{CONNECT_TIMEOUT, Client, Path, Server, dial, fault_in_words, tls};

/// Opens connections, and makes the requests.
pub(super) struct Dialler {
    server: Server,
    tls: Option<TlsConnector>,
    target: String,
    authorization: Option<String>,
}

/// A connection that is open.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// The response to a check.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// The largest response; a hundred decisions are far smaller.
const MOST_REPLY_BYTES: usize = 16 * 1024 * 1024;

impl Dialler {
    pub(super) fn new(client: &Client) -> anyhow::Result<Self> {
        let server = client.server().clone();
        let tls = if server.is_encrypted() { Some(tls().map_err(anyhow::Error::msg)?) } else { None };
        let target = server.target(&Path::new(&["check"]));
        let authorization = client.token().map(crate::client::Token::bearer);
        Ok(Self { server, tls, target, authorization })
    }

    /// Opens a connection.
    pub(super) async fn dial(&self) -> Result<Connection, String> {
        let stream =
            match timeout(CONNECT_TIMEOUT, dial(self.server.host(), self.server.port(), self.tls.as_ref()))
                .await
            {
                Ok(stream) => stream.map_err(|error| fault_in_words(&error))?,
                Err(_) => return Err(format!("no connection within {}s", CONNECT_TIMEOUT.as_secs())),
            };
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // An error of the connection also fails the request on it, which counts it.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { sender, driver })
    }

    /// A check with this body.
    pub(super) fn request(&self, body: String) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.target)
            .header("host", self.server.authority())
            .header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        request.body(Full::from(body)).expect("the server and the token are checked")
    }
}

impl Connection {
    /// Sends a request and reads the whole response. After an error the connection cannot be used again.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        self.sender.ready().await.map_err(|error| error.to_string())?;
        let response = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MOST_REPLY_BYTES).collect().await;
        Ok(Reply { status, body: body.map_err(|error| error.to_string())?.to_bytes() })
    }

    /// Whether another request can be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
