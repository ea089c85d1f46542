//! A stand-in for the server: responds as a test says, and records the requests. It can also run the real
//! program against itself.
#![allow(clippy::unwrap_used, reason = "a test fails where something is missing")]
#![allow(dead_code, reason = "every test crate uses its own part of this")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Method and path.
    pub(crate) line: String,
    /// By lower-case name.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Json(u16, &'static str),
    Problem(u16, &'static str),
    /// These bytes, then closes the connection.
    Raw(&'static [u8]),
    /// Closes the connection without a response.
    Close,
    /// Never responds.
    Hang,
}

pub(crate) struct Responder {
    address: SocketAddr,
    scheme: &'static str,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    asked: Mutex<Vec<Asked>>,
    more: Condvar,
    over: AtomicBool,
}

impl Responder {
    /// Responds to every request with the same.
    pub(crate) fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone())
    }

    /// Responds as `answer` says.
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen("http", move |stream, log| serve(stream, log, &answer))
    }

    /// Responds to every request with the same, over TLS.
    pub(crate) fn encrypted(config: ServerConfig, reply: Reply) -> Self {
        let config = Arc::new(config);
        Self::listen("https", move |stream, log| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            serve(StreamOwned::new(connection, stream), log, &|_| reply.clone())
        })
    }

    fn listen(
        scheme: &'static str,
        serve: impl Fn(TcpStream, &Log) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let responder = Self { address, scheme, log: Arc::default() };
        let (log, serve) = (Arc::clone(&responder.log), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if log.over.load(Ordering::Relaxed) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                let (log, serve) = (Arc::clone(&log), Arc::clone(&serve));
                // An error of the connection is the client's fault.
                thread::spawn(move || drop(serve(stream, &log)));
            }
        });
        responder
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log.asked.lock().unwrap().clone()
    }

    /// The only request.
    pub(crate) fn only(&self) -> Asked {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.into_iter().next().unwrap()
    }

    /// Waits for this many requests.
    pub(crate) fn wait_for(&self, count: usize) {
        let asked = self.log.asked.lock().unwrap();
        drop(self.log.more.wait_while(asked, |asked| asked.len() < count).unwrap());
    }

    /// Runs the program against this server.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        run(&self.url(), arguments, &[])
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.log.over.store(true, Ordering::Relaxed);
        // Wakes the listener, which sees that the test is over.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(stream: impl Read + Write, log: &Log, answer: &dyn Fn(&Asked) -> Reply) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream)? {
        let reply = answer(&asked);
        log.asked.lock().unwrap().push(asked);
        log.more.notify_all();
        let (status, kind, text) = match reply {
            Reply::Json(status, text) => (status, "application/json", text),
            Reply::Problem(status, text) => (status, "application/problem+json", text),
            Reply::Raw(bytes) => return stream.get_mut().write_all(bytes),
            Reply::Close => return Ok(()),
            Reply::Hang => return stream.read(&mut [0]).map(drop),
        };
        let length = text.len();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        stream.get_mut().write_all(&[head.as_bytes(), text.as_bytes()].concat())?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    Ok(Some(Asked { line, headers, body: String::from_utf8(body).unwrap() }))
}

/// The result of running the program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the program with only the server and these variables in its environment.
pub(crate) fn run(server: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    done(program(server, arguments).envs(variables.iter().copied()).output().unwrap())
}

/// The program, ready to be started.
pub(crate) fn program(server: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear().env("TOLLGATE_SERVER", server).stdin(Stdio::null());
    command
}

/// The result of a finished program.
pub(crate) fn done(output: Output) -> Run {
    let text = |bytes| String::from_utf8(bytes).expect("the program prints text");
    let code = output.status.code().expect("the program ends by itself");
    Run { code, out: text(output.stdout), err: text(output.stderr) }
}
