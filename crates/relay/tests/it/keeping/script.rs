//! A server that does as it is told: what it says, and when it falls silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a server does when it hears something.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers this.
    Say(&'static str),
    /// Answers this, byte by byte, with so many milliseconds between them.
    Dribble(&'static str, u64),
    /// Answers this, and closes the connection.
    SayAndDrop(&'static str),
    /// Answers this and closes the connection if it has carried a message, and accepts otherwise.
    IfReused(&'static str),
    /// Answers this so many times, over all connections, and then as the rest of the script says.
    Times(Arc<AtomicUsize>, &'static str),
    /// Closes the connection.
    Drop,
    /// Says nothing.
    Hang,
}

/// What a server is told: the first entry whose word begins the line is done.
pub(crate) type Script = Vec<(&'static str, Act)>;

/// A scripted server.
pub(crate) struct Scripted {
    pub(crate) port: u16,
    /// Every line that it heard, but those of texts.
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
    /// Every text that ended in a dot.
    pub(crate) texts: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<Mutex<usize>>,
    pub(crate) transactions: Arc<Mutex<Transactions>>,
    /// The authority of its certificate.
    pub(crate) roots: rustls::RootCertStore,
}

/// Transactions between their MAIL and their final dot.
#[derive(Default)]
pub(crate) struct Transactions {
    open: usize,
    /// The most that were open at once.
    pub(crate) most: usize,
}

/// A script that takes everything.
pub(crate) fn polite() -> Script {
    vec![
        (
            "EHLO",
            Act::Say(
                "250-script.example\r\n250-PIPELINING\r\n250-SIZE 1000000\r\n250-8BITMIME\r\n250 DSN\r\n",
            ),
        ),
        ("QUIT", Act::Say("221 bye\r\n")),
        ("DATA", Act::Say("354 go\r\n")),
        ("", Act::Say("250 2.0.0 ok\r\n")),
    ]
}

/// A script with something before the rest. `GREETING` and `.` are words for the greeting and the final dot.
pub(crate) fn with(first: &[(&'static str, Act)]) -> Script {
    let mut script = first.to_vec();
    script.extend(polite());
    script
}

/// Says something so many times, and then what the rest of the script says.
pub(crate) fn times(times: usize, text: &'static str) -> Act {
    Act::Times(Arc::new(AtomicUsize::new(times)), text)
}

/// Whether TLS starts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    No,
    Implicit,
}

impl Scripted {
    pub(crate) async fn start(script: Script) -> Self {
        Self::start_with(script, Tls::No).await
    }

    pub(crate) async fn start_with(script: Script, tls: Tls) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").await.unwrap(), script, tls)
    }

    pub(crate) async fn start_on(listener: TcpListener, script: Script) -> Self {
        Self::listen(listener, script, Tls::No)
    }

    fn listen(listener: TcpListener, script: Script, tls: Tls) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (acceptor, roots) = certificate();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let texts: Arc<Mutex<Vec<String>>> = Arc::default();
        let connections: Arc<Mutex<usize>> = Arc::default();
        let transactions: Arc<Mutex<Transactions>> = Arc::default();
        let server = Self {
            port,
            transactions: Arc::clone(&transactions),
            heard: Arc::clone(&heard),
            texts: Arc::clone(&texts),
            connections: Arc::clone(&connections),
            roots,
        };
        let script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *connections.lock() += 1;
                let talk = Talk {
                    script: Arc::clone(&script),
                    heard: Arc::clone(&heard),
                    texts: Arc::clone(&texts),
                    transactions: Arc::clone(&transactions),
                    carried: AtomicBool::new(false),
                    refused: AtomicBool::new(false),
                };
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if tls == Tls::Implicit {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            talk.serve(stream, true).await;
                        }
                        return;
                    }
                    if let Some(stream) = talk.serve(stream, true).await
                        && let Ok(stream) = acceptor.accept(stream).await
                    {
                        talk.serve(stream, false).await;
                    }
                });
            }
        });
        server
    }
}

struct Talk {
    script: Arc<Script>,
    heard: Arc<Mutex<Vec<String>>>,
    texts: Arc<Mutex<Vec<String>>>,
    transactions: Arc<Mutex<Transactions>>,
    /// Whether this connection has carried a message.
    carried: AtomicBool,
    /// Whether its last answer was a refusal.
    refused: AtomicBool,
}

impl Talk {
    /// Talks to a client. Returns the stream when TLS is to start.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, greet: bool) -> Option<S> {
        let mut stream = BufReader::new(stream);
        if greet && !self.act(&mut stream, "GREETING", Some("220 script.example\r\n")).await {
            return None;
        }
        let mut text: Option<String> = None;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            match &mut text {
                Some(gathered) if line == ".\r\n" => {
                    self.texts.lock().push(std::mem::take(gathered));
                    self.transactions.lock().open -= 1;
                    self.carried.store(true, Ordering::SeqCst);
                    text = None;
                }
                Some(gathered) => {
                    gathered.push_str(&line);
                    continue;
                }
                None => self.heard.lock().push(line.trim_end().to_owned()),
            }
            if line.starts_with("MAIL") && text.is_none() {
                let mut transactions = self.transactions.lock();
                transactions.open += 1;
                transactions.most = transactions.most.max(transactions.open);
            }
            if !self.act(&mut stream, &line, None).await {
                return None;
            }
            if line.starts_with("STARTTLS") {
                return Some(stream.into_inner());
            }
            if line.starts_with("DATA") && !self.refused.load(Ordering::SeqCst) {
                text = Some(String::new());
            }
        }
    }

    /// Does what the script says. Returns whether the connection goes on.
    async fn act<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut BufReader<S>,
        line: &str,
        usual: Option<&'static str>,
    ) -> bool {
        let fits = |word: &str| line.starts_with(word) && (usual.is_none() || !word.is_empty());
        let left = |act: &Act| match act {
            Act::Times(left, _) => {
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
            }
            _ => true,
        };
        let act = self.script.iter().find(|(word, act)| fits(word) && left(act)).map(|(_, act)| act.clone());
        match act.or(usual.map(Act::Say)) {
            Some(Act::Say(text) | Act::Times(_, text)) => {
                self.refused.store(text.starts_with(['4', '5']), Ordering::SeqCst);
                stream.write_all(text.as_bytes()).await.is_ok()
            }
            Some(Act::IfReused(_)) if !self.carried.load(Ordering::SeqCst) => {
                stream.write_all(b"250 2.1.0 ok\r\n").await.is_ok()
            }
            Some(Act::SayAndDrop(text) | Act::IfReused(text)) => {
                let _ = stream.write_all(text.as_bytes()).await;
                false
            }
            Some(Act::Dribble(text, millis)) => {
                for byte in text.bytes() {
                    if stream.write_all(&[byte]).await.is_err() {
                        return false;
                    }
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                }
                true
            }
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::Drop) | None => false,
        }
    }
}

fn certificate() -> (TlsAcceptor, rustls::RootCertStore) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let der: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der).unwrap();
    (TlsAcceptor::from(Arc::new(config)), roots)
}
