//! Opens connections: finds the server, connects, starts TLS, logs in.

use std::io::Write;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::offset::Offset;
use crate::redial::Redial;
use crate::resp::{Reply, Scanner, write_command};
use crate::sentinel;
use crate::settings::{Address, Settings, Topology};

/// Opens connections to one server.
pub(crate) struct Dialer {
    settings: Arc<Settings>,
    tls: Option<Arc<ClientConfig>>,
    /// The server, unless sentinels must be asked for it.
    address: Option<Address>,
    /// The offset of its clock to this process's.
    pub(crate) offset: Arc<Offset>,
    /// Decides when to reconnect.
    pub(crate) redial: Redial,
}

/// Why there is no connection, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLine {
    /// The server cannot be reached, or does not answer.
    Unreachable(String),
    /// The server refuses to serve: a wrong password, too many clients, data being loaded.
    Refused(String),
}

/// An open connection, ready for commands.
pub(crate) struct Line {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// A second handle to the socket, for writing without waiting.
    pub(crate) direct: Option<Direct>,
}

/// The most characters of a server's message that are reported.
pub(crate) const MOST_SAID: usize = 200;

/// A socket that accepts what it can at once.
pub(crate) type Direct = Box<dyn Write + Send>;

impl Dialer {
    /// Connects to this address, or to the master that sentinels name.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        tls: Option<Arc<ClientConfig>>,
        address: Option<Address>,
    ) -> Self {
        let (offset, redial) = (Arc::new(Offset::new()), Redial::new());
        Self { settings: Arc::clone(settings), tls, address, offset, redial }
    }

    /// Opens a connection. The error says why that failed.
    pub(crate) async fn dial(&self) -> Result<Line, NoLine> {
        let timeout = self.settings.connect_timeout;
        let dialled = tokio::time::timeout(timeout, self.dial_patiently()).await;
        dialled.unwrap_or_else(|_| Err(NoLine::Unreachable(format!("no connection within {timeout:?}"))))
    }

    async fn dial_patiently(&self) -> Result<Line, NoLine> {
        let (address, is_named) = match (&self.address, &self.settings.topology) {
            (Some(address), _) | (None, Topology::Single(address)) => (address.clone(), false),
            (None, Topology::Sentinel { sentinels, service }) => {
                (sentinel::master(self, sentinels, service).await?, true)
            }
            (None, Topology::Cluster { .. }) => {
                return Err(NoLine::Unreachable("a node of a cluster has an address".into()));
            }
        };
        let mut line = self.open(&address).await?;
        self.log_in(&mut line).await.map_err(|no_line| no_line.at(&address))?;
        if is_named {
            sentinel::insist_on_master(&mut line, &address).await?;
        }
        Ok(line)
    }

    /// Opens a connection without logging in.
    pub(crate) async fn open(&self, address: &Address) -> Result<Line, String> {
        let failed = |error: std::io::Error| format!("cannot connect to {address}: {error}");
        match (address, &self.tls) {
            (Address::Unix(path), _) => {
                let stream = UnixStream::connect(path).await.map_err(failed)?.into_std().map_err(failed)?;
                let direct: Direct = Box::new(stream.try_clone().map_err(failed)?);
                let (reader, writer) = UnixStream::from_std(stream).map_err(failed)?.into_split();
                Ok(Line { reader: Box::new(reader), writer: Box::new(writer), direct: Some(direct) })
            }
            (Address::Tcp { host, port }, None) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                let stream = stream.into_std().map_err(failed)?;
                let direct: Direct = Box::new(stream.try_clone().map_err(failed)?);
                let (reader, writer) = TcpStream::from_std(stream).map_err(failed)?.into_split();
                Ok(Line { reader: Box::new(reader), writer: Box::new(writer), direct: Some(direct) })
            }
            (Address::Tcp { host, port }, Some(config)) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                let name = ServerName::try_from(host.clone()).map_err(|error| format!("{host}: {error}"))?;
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = connector.connect(name, stream).await.map_err(failed)?;
                let (reader, writer) = tokio::io::split(stream);
                Ok(Line { reader: Box::new(reader), writer: Box::new(writer), direct: None })
            }
        }
    }

    async fn log_in(&self, line: &mut Line) -> Result<(), NoLine> {
        let settings = &self.settings;
        let login = match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => Some(vec!["AUTH", user, &password.0]),
            (None, Some(password)) => Some(vec!["AUTH", &password.0]),
            (_, None) => None,
        };
        if let Some(words) = login {
            line.order(&words).await?;
        }
        if settings.database != 0 {
            line.order(&["SELECT", &settings.database.to_string()]).await?;
        }
        line.order(&["PING"]).await?;
        // The server's time is known before the first command, so that even the first take is refused if it
        // arrives late.
        if let Reply::List(time) = line.ask(&["TIME"]).await?
            && let [Some(secs), Some(micros)] = [0, 1].map(|part| time.get(part).and_then(Reply::text))
            && let (Ok(secs), Ok(micros)) = (secs.parse::<u32>(), micros.parse::<u32>())
        {
            self.offset.learn(i64::from(secs) * 1_000_000 + i64::from(micros));
        }
        Ok(())
    }
}

impl Line {
    /// Sends a command and reads its reply, with nothing else in flight.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Reply, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut out = Vec::new();
        write_command(&mut out, &words);
        let sent = match self.writer.write_all(&out).await {
            Ok(()) => self.writer.flush().await,
            Err(error) => Err(error),
        };
        // A server that refuses a connection may say why and close it before the first command.
        match (self.receive().await, sent) {
            (Ok(reply), _) => Ok(reply),
            (Err(_), Err(error)) => Err(error.to_string()),
            (Err(reason), Ok(())) => Err(reason),
        }
    }

    async fn receive(&mut self) -> Result<Reply, String> {
        let mut bytes = Vec::new();
        let mut scanner = Scanner::default();
        loop {
            match self.reader.read_buf(&mut bytes).await {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            if let Some(end) = scanner.find_end(&bytes).map_err(|nonsense| nonsense.to_string())? {
                return Reply::parse(&bytes[..end]).map_err(|nonsense| nonsense.to_string());
            }
        }
    }

    /// Sends a command that must succeed.
    async fn order(&mut self, words: &[&str]) -> Result<(), NoLine> {
        match self.ask(words).await? {
            // The server's message about a login does not repeat the password.
            Reply::Error(error) => {
                let error: String = error.chars().take(MOST_SAID).collect();
                Err(NoLine::Refused(format!("{} was refused: {error}", words[0])))
            }
            _ => Ok(()),
        }
    }
}

impl NoLine {
    /// Adds the server's address to the text.
    fn at(self, address: &Address) -> Self {
        match self {
            Self::Unreachable(reason) => Self::Unreachable(format!("{address}: {reason}")),
            Self::Refused(reason) => Self::Refused(format!("{address}: {reason}")),
        }
    }
}

impl From<String> for NoLine {
    fn from(reason: String) -> Self {
        Self::Unreachable(reason)
    }
}
