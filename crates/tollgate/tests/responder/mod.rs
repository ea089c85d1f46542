//! A stand-in for the server: answers every question the way a test says, and remembers what was
//! asked. And a way to run the real program against it.
#![allow(dead_code, reason = "every test crate uses its own part of this")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method and path.
    pub line: String,
    /// By lower-case name.
    pub headers: HashMap<String, String>,
    pub body: String,
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    Json(u16, &'static str),
    Problem(u16, &'static str),
    /// These bytes, and the end of the connection.
    Raw(&'static [u8]),
    /// Nothing, and the end of the connection.
    Close,
    /// Nothing, until the other side gives up.
    Hang,
}

pub struct Responder {
    address: SocketAddr,
    asked: Arc<(Mutex<Vec<Asked>>, Condvar)>,
}

impl Responder {
    /// Answers every question with the same.
    pub fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone())
    }

    /// Answers as `answer` says.
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The test is over: see `drop`.
                if Arc::strong_count(&log) == 1 {
                    return;
                }
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                // A connection that breaks off is the other side's business.
                thread::spawn(move || drop(serve(stream, &log, &*answer)));
            }
        });
        Self { address, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.0.lock().unwrap().clone()
    }

    /// The one thing that was asked.
    pub fn only(&self) -> Asked {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.into_iter().next().unwrap()
    }

    /// Waits until so much was asked.
    pub fn wait_for(&self, count: usize) {
        let asked = self.asked.0.lock().unwrap();
        drop(self.asked.1.wait_while(asked, |asked| asked.len() < count).unwrap());
    }

    /// Runs the program against this server.
    pub fn run(&self, arguments: &[&str]) -> Run {
        run(&self.url(), arguments, &[])
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.asked = Arc::default();
        // Wakes the listener, which sees that nobody listens any more.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(
    stream: TcpStream,
    log: &(Mutex<Vec<Asked>>, Condvar),
    answer: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(asked) = read(&mut reader)? {
        let reply = answer(&asked);
        log.0.lock().unwrap().push(asked);
        log.1.notify_all();
        let (status, kind, text) = match reply {
            Reply::Json(status, text) => (status, "application/json", text),
            Reply::Problem(status, text) => (status, "application/problem+json", text),
            Reply::Raw(bytes) => return writer.write_all(bytes),
            Reply::Close => return Ok(()),
            Reply::Hang => return reader.read(&mut [0]).map(drop),
        };
        let length = text.len();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        writer.write_all(&[head.as_bytes(), text.as_bytes()].concat())?;
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

/// What the program did.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program with nothing in its environment but the server and these variables.
pub fn run(server: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    done(program(server, arguments).envs(variables.iter().copied()).output().unwrap())
}

/// The program, ready to be started.
pub fn program(server: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear().env("TOLLGATE_SERVER", server).stdin(Stdio::null());
    command
}

/// What a finished program did.
pub fn done(output: Output) -> Run {
    let text = |bytes| String::from_utf8(bytes).expect("the program prints text");
    let code = output.status.code().expect("the program ends by itself");
    Run { code, out: text(output.stdout), err: text(output.stderr) }
}
