//! Prepares a connection for transactions: greeting, EHLO, TLS, login.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connection::{Connection, Extensions, Silence, Stream};
use super::reply::Reply;
use super::{ClientOptions, ConnectError, Destination, Login, Stage, TlsMode};
use crate::replies::{ReplyStage, Rest, Verdict};

/// Connects to a destination and prepares the connection for transactions.
pub(super) async fn connect(
    options: &ClientOptions,
    unverified: &Arc<ClientConfig>,
    destination: &Destination,
) -> Result<Connection, ConnectError> {
    if destination.tls != TlsMode::Opportunistic {
        return connect_by(options, &options.tls, destination, destination.tls).await;
    }
    match connect_by(options, unverified, destination, TlsMode::Opportunistic).await {
        // If opportunistic TLS fails, an unencrypted connection is no worse.
        Err(error) if error.stage == Stage::Tls => {
            connect_by(options, unverified, destination, TlsMode::None).await
        }
        connected => connected,
    }
}

async fn connect_by(
    options: &ClientOptions,
    config: &Arc<ClientConfig>,
    destination: &Destination,
    mode: TlsMode,
) -> Result<Connection, ConnectError> {
    let times = &options.timeouts;
    let address = (&*destination.host, destination.port);
    let tcp = match timeout(times.connect, TcpStream::connect(address)).await {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(error)) => return Err(ConnectError::local(Stage::Connect, error.to_string())),
        Err(_) => return Err(ConnectError::local(Stage::Connect, "the connection timed out".to_owned())),
    };
    // Commands are small and wait for replies.
    let _ = tcp.set_nodelay(true);
    let mut stream: Box<dyn Stream> = Box::new(tcp);
    if mode == TlsMode::Implicit {
        stream = encrypt(config, times.greeting, destination, stream).await?;
    }
    let mut connection = Connection::new(stream, destination.clone(), options.rules.clone());
    let greeting = connection.reply(times.greeting).await.map_err(ConnectError::silent(Stage::Greeting))?;
    expect_ok(&connection, &greeting, Stage::Greeting)?;
    hello(&mut connection, options).await?;
    let offered = connection.extensions.starttls;
    if mode == TlsMode::StartTls || mode == TlsMode::Opportunistic && offered {
        connection = start_tls(connection, options, config).await?;
        hello(&mut connection, options).await?;
    }
    if let Some(login) = &destination.login {
        log_in(&mut connection, login, times.command).await?;
    }
    Ok(connection)
}

/// Sends EHLO, or HELO to servers that do not know EHLO.
async fn hello(connection: &mut Connection, options: &ClientOptions) -> Result<(), ConnectError> {
    let time = options.timeouts.command;
    let silent = ConnectError::silent(Stage::Hello);
    let reply = connection.command(&format!("EHLO {}", options.hostname), time).await.map_err(&silent)?;
    if reply.is_ok() {
        connection.extensions = Extensions::of(&reply);
        return Ok(());
    }
    // A server that knows no EHLO does not speak of quotas.
    let sleeps = matches!(connection.judge(ReplyStage::Hello, &reply), Verdict::Rest(Rest::Sleep(_)));
    if !reply.is_permanent() || sleeps {
        return expect_ok(connection, &reply, Stage::Hello);
    }
    let reply = connection.command(&format!("HELO {}", options.hostname), time).await.map_err(&silent)?;
    connection.extensions = Extensions::default();
    expect_ok(connection, &reply, Stage::Hello)
}

async fn start_tls(
    mut connection: Connection,
    options: &ClientOptions,
    config: &Arc<ClientConfig>,
) -> Result<Connection, ConnectError> {
    if !connection.extensions.starttls {
        let reason = "the server does not offer STARTTLS, and the account requires it".to_owned();
        return Err(ConnectError::local(Stage::Tls, reason));
    }
    let reply = connection.command("STARTTLS", options.timeouts.command).await;
    expect_ok(&connection, &reply.map_err(ConnectError::silent(Stage::Tls))?, Stage::Tls)?;
    if !connection.buffer.is_empty() {
        // An attacker in between could inject replies here, which would count as encrypted.
        let reason = "the server sent something between its reply to STARTTLS and TLS".to_owned();
        return Err(ConnectError::local(Stage::Tls, reason));
    }
    let Connection { stream, destination, rules, .. } = connection;
    let stream = encrypt(config, options.timeouts.greeting, &destination, stream).await?;
    Ok(Connection::new(stream, destination, rules))
}

async fn encrypt(
    config: &Arc<ClientConfig>,
    time: Duration,
    destination: &Destination,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, ConnectError> {
    let failed = |reason: String| ConnectError::local(Stage::Tls, reason);
    let name = ServerName::try_from(destination.host.clone()).map_err(|error| failed(error.to_string()))?;
    let connector = TlsConnector::from(Arc::clone(config));
    match timeout(time, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(failed(format!("TLS failed: {error}"))),
        Err(_) => Err(failed("TLS timed out".to_owned())),
    }
}

async fn log_in(connection: &mut Connection, login: &Login, time: Duration) -> Result<(), ConnectError> {
    let silent = ConnectError::silent(Stage::Login);
    let Login { user, password } = login;
    let reply = if connection.extensions.plain {
        let token = BASE64.encode(format!("\0{user}\0{password}").as_bytes());
        connection.command(&format!("AUTH PLAIN {token}"), time).await.map_err(&silent)?
    } else if connection.extensions.login {
        let mut reply = connection.command("AUTH LOGIN", time).await.map_err(&silent)?;
        for part in [user, password] {
            if reply.code == 334 {
                let line = BASE64.encode(part.as_bytes());
                reply = connection.command(&line, time).await.map_err(&silent)?;
            }
        }
        reply
    } else {
        let reason = "the server offers neither AUTH PLAIN nor AUTH LOGIN".to_owned();
        let verdict = Some(Verdict::Rest(Rest::Login));
        return Err(ConnectError { verdict, ..ConnectError::local(Stage::Login, reason) });
    };
    expect_ok(connection, &reply, Stage::Login)
}

fn expect_ok(connection: &Connection, reply: &Reply, stage: Stage) -> Result<(), ConnectError> {
    if reply.is_ok() {
        return Ok(());
    }
    let at = match stage {
        Stage::Busy | Stage::Connect | Stage::Greeting | Stage::Tls => ReplyStage::Connect,
        Stage::Hello => ReplyStage::Hello,
        Stage::Login => ReplyStage::Login,
    };
    Err(ConnectError { stage, reason: reply.to_string(), verdict: Some(connection.judge(at, reply)) })
}

impl ConnectError {
    fn local(stage: Stage, reason: String) -> Self {
        Self { stage, reason, verdict: None }
    }

    fn silent(stage: Stage) -> impl Fn(Silence) -> Self {
        move |silence| Self::local(stage, silence.to_string())
    }
}
