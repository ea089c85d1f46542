//! A shop behind a real proxy that asks a real tollgate, all on loopback ports and set up from the examples.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, reason = "a module of tests is seen by its file alone")]

mod example;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tollgate_core::{Policies, Policy, Rule};
use tollgate_doors::{AccessKey, ForwardAuthSettings, Peer, Role};
use tollgate_testbed::{Front, Nonsense, Port};
use tollgate_web::address::X_FORWARDED_FOR;
use tollgate_web::identity::{ApiKey, ApiKeys};
use tollgate_web::{Credentials, TrustedProxies};
use tower::ServiceExt;

use crate::door::{Door, Reply, StoreKind, rule};
pub use example::{Proxy, Without};

/// The addresses in the examples.
pub const TOLLGATE: &str = "127.0.0.1:8080";
const SHOP: &str = "127.0.0.1:3000";

/// The time-outs for tollgate in the examples, as each writes them.
const TIMEOUTS: [(&str, &str); 6] = [
    ("proxy_connect_timeout", "250ms"),
    ("proxy_read_timeout", "1s"),
    ("dial_timeout", "250ms"),
    ("response_header_timeout", "1s"),
    ("timeout connect", "250ms"),
    ("timeout server", "1s"),
];

/// The longest head that the program reads.
const MOST_HEAD_BYTES: usize = 64 * 1024;

/// The proxy's token.
const TOKEN: &str = "a-token-of-a-checker";

/// The server at the address that the proxy asks.
pub enum Limiter {
    /// The door itself.
    Door(Box<Door>),
    /// No server.
    Absent(Port),
    /// A server that closes every connection.
    HangingUp(Nonsense),
    /// A silent server: connections wait to be accepted.
    Silent(std::net::TcpListener),
}

/// All servers. Dropping it ends them.
pub struct Site {
    pub limiter: Limiter,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    front: Front,
    servers: JoinSet<()>,
    tollgate: Option<tokio::task::AbortHandle>,
}

/// A request that reached the shop.
#[derive(Clone, Debug)]
pub struct Seen {
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A door with the rules of the examples: each client may order three times an hour.
pub fn door(kind: StoreKind) -> Limiter {
    let orders = Rule { on_outage: "deny".parse().unwrap(), ..rule("orders", &["route", "ip"], &["3/hour"]) };
    let page = rule("page", &["method", "host", "path"], &["1000/hour"]);
    let consumer = rule("consumer", &["consumer"], &["1000/hour"]);
    let rules: Vec<Arc<Rule>> = [orders, page, consumer].map(Arc::new).into();
    let orders = Policy::new("orders".into(), rules.clone(), false);
    let key = |token: &str, role| AccessKey {
        name: token.into(),
        role,
        hash: Sha256::digest(token).into(),
        tenant: None,
    };
    let keys = vec![key(TOKEN, Role::Check), key("a-token-of-a-reader", Role::Read)];
    let door = Door::with(Policies::new(true, rules, vec![orders]), keys, kind);
    let known = ApiKey { name: "ada".into(), consumer: None, hash: Sha256::digest("ada-key").into() };
    let api_keys = ApiKeys::new("x-api-key".parse().unwrap(), vec![known]).unwrap();
    door.forward_auth.replace(ForwardAuthSettings {
        // Trusts the proxy itself. Clients come from other loopback addresses, which are not trusted.
        trusted_proxies: TrustedProxies::new(vec!["127.0.0.1/32".parse().unwrap()], X_FORWARDED_FOR),
        credentials: Credentials::new(Some(api_keys), None).into(),
        ..ForwardAuthSettings::default()
    });
    Limiter::Door(Box::new(door))
}

impl Site {
    /// Starts the shop and the proxy before it, which asks this limiter.
    pub async fn open(proxy: Proxy, limiter: Limiter, without: Without) -> Self {
        let mut servers = JoinSet::new();
        let (asked, tollgate) = match &limiter {
            Limiter::Door(door) => {
                let router = door.router.clone();
                let (port, server) = listen(&mut servers, move |peer: SocketAddr, mut request| {
                    request.extensions_mut().insert(Peer::new(peer.ip()));
                    router.clone().oneshot(request)
                })
                .await;
                (port, Some(server))
            }
            Limiter::Absent(port) => (port.number(), None),
            Limiter::HangingUp(server) => (server.port(), None),
            Limiter::Silent(listener) => (listener.local_addr().unwrap().port(), None),
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let (shop, _) = listen(&mut servers, move |_, request| serve_shop(Arc::clone(&noted), request)).await;
        // Long time-outs, so that a busy machine does not look like an outage.
        let patience = if matches!(limiter, Limiter::Silent(_)) { "3s" } else { "20s" };
        let change = |text: &str| {
            let text = text.replace(TOLLGATE, &format!("127.0.0.1:{asked}"));
            let text = text.replace(SHOP, &format!("127.0.0.1:{shop}"));
            TIMEOUTS.iter().fold(text, |text, (name, time)| {
                text.replace(&format!("{name} {time}"), &format!("{name} {patience}"))
            })
        };
        let unguarded = matches!(&limiter, Limiter::Door(door) if door.keys.is_empty());
        let token = (!unguarded).then_some(TOKEN);
        // Starting it blocks.
        let front = tokio::task::block_in_place(|| proxy.start(change, without, token));
        Self { limiter, seen, front, servers, tollgate }
    }

    /// Stops tollgate and leaves the rest running.
    pub async fn close_tollgate(&mut self) {
        self.tollgate.take().unwrap().abort();
        assert!(self.servers.join_next().await.unwrap().is_err_and(|end| end.is_cancelled()));
    }

    pub fn door(&self) -> &Door {
        match &self.limiter {
            Limiter::Door(door) => door,
            _ => panic!("there is no door"),
        }
    }

    /// How many requests reached the shop.
    pub fn served(&self) -> usize {
        self.seen.lock().len()
    }

    /// The proxy's log.
    pub fn log(&self) -> String {
        self.front.log()
    }

    /// Sends a `GET` as the client with this number.
    pub async fn get(&self, client: u8, target: &str, headers: &[(&str, &str)]) -> Reply {
        match self.try_get(client, target, headers).await {
            Ok(reply) => reply,
            // A proxy that has just started may reset its first connection.
            Err(_) => self.try_get(client, target, headers).await.unwrap(),
        }
    }

    /// As [`Site::get`], for a request on which the proxy may close the connection.
    pub async fn try_get(&self, client: u8, target: &str, headers: &[(&str, &str)]) -> hyper::Result<Reply> {
        let mut request = Request::get(target).header("host", "shop.example.com");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.try_send(client, request.body(Full::default()).unwrap()).await
    }

    /// Sends a request as the client with this number, which has its own address.
    pub async fn send(&self, client: u8, request: Request<Full<Bytes>>) -> Reply {
        self.try_send(client, request).await.unwrap()
    }

    async fn try_send(&self, client: u8, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, client), 0).into()).unwrap();
        let stream = socket.connect((Ipv4Addr::LOCALHOST, self.front.port()).into()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        connection.abort();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, text })
    }
}

/// Serves HTTP on a port of loopback until it is aborted, its connections included.
async fn listen<F, Fut>(servers: &mut JoinSet<()>, serve: F) -> (u16, tokio::task::AbortHandle)
where
    F: Fn(SocketAddr, Request<Body>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = servers.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let serve = serve.clone();
            let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
                serve(peer, request.map(Body::new))
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.max_buf_size(MOST_HEAD_BYTES);
            connections
                .spawn(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
        }
    });
    (port, server)
}

/// The shop records its requests. It has a forbidden path and limits of its own.
async fn serve_shop(
    seen: Arc<Mutex<Vec<Seen>>>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.to_string();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    seen.lock().push(Seen { target: target.clone(), headers: parts.headers, body });
    let mut response = Response::new(Body::from("the shop"));
    if target == "/closed" {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    Ok(response)
}
