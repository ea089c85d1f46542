//! A client that speaks HTTP/2 without negotiation.

use std::net::SocketAddr;

use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Starts HTTP/2 on a connection.
pub(crate) async fn over<S, B>(stream: S) -> SendRequest<B>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let (send, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    send
}

/// A connection to a server.
pub(crate) async fn connect<B>(address: SocketAddr) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    over(TcpStream::connect(address).await.unwrap()).await
}

/// Sends a `GET` over a new connection: status, headers and body.
pub(crate) async fn fetch(address: SocketAddr, path: &str) -> (u16, HeaderMap, String) {
    let mut send = connect(address).await;
    let request = Request::get(format!("http://example.com{path}")).body(Empty::<Bytes>::new()).unwrap();
    let (parts, body) = send.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.to_vec()).unwrap())
}
