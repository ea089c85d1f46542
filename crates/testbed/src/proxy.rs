//! A proxy between a client and a server with the faults of networks: it delays, cuts, and withholds bytes.

mod link;

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::patience::wait_until;
use crate::port::Port;
use link::Link;

/// A proxy on its own port. Dropping it closes it.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// What the proxy and its threads share.
#[derive(Debug)]
struct Shared {
    target: u16,
    weather: Mutex<Weather>,
    changed: Condvar,
    listens: AtomicBool,
    links: Mutex<Vec<Arc<Link>>>,
    opened: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// How many pieces of requests were forwarded.
    pieces: AtomicU64,
}

/// The current faults.
#[derive(Debug, Default)]
struct Weather {
    delay: Duration,
    holds_requests: bool,
    holds_replies: bool,
    /// After how many more bytes of responses the connection is cut.
    cut_after: Option<usize>,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Request,
    Reply,
}

impl Proxy {
    /// A proxy to a loopback port, at first without faults.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    #[must_use]
    pub fn to(target: u16) -> Self {
        let shared = Arc::new(Shared {
            target,
            weather: Mutex::default(),
            changed: Condvar::new(),
            listens: AtomicBool::new(false),
            links: Mutex::default(),
            opened: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
        });
        let proxy = Self { port: Port::claim(), shared, accepting: Mutex::default() };
        proxy.listen();
        proxy
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its URL for the configuration.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Delays every byte by this in each direction. Later bytes are not delayed further.
    pub fn delay(&self, delay: Duration) {
        self.shared.change(|weather| weather.delay = delay);
    }

    /// Closes all connections and refuses new ones.
    pub fn cut(&self) {
        self.stop_listening();
        self.close_all();
    }

    /// Closes all connections; new ones are accepted.
    pub fn close_all(&self) {
        for link in lock(&self.shared.links).drain(..) {
            link.close();
        }
        self.shared.changed.notify_all();
    }

    /// Forwards requests and withholds the responses. As in a network that recovers, they arrive after
    /// [`Proxy::heal`] on connections that are still open.
    pub fn swallow_replies(&self) {
        self.shared.change(|weather| weather.holds_replies = true);
    }

    /// Accepts connections and forwards nothing. As in a network that recovers, everything arrives after
    /// [`Proxy::heal`] on connections that are still open.
    pub fn blackhole(&self) {
        self.shared.change(|weather| {
            weather.holds_requests = true;
            weather.holds_replies = true;
        });
    }

    /// Forwards this many more bytes of responses, of all connections together, and then cuts the connection
    /// of the next byte. This happens once; other and later connections are not affected.
    pub fn cut_after(&self, bytes: usize) {
        self.shared.change(|weather| weather.cut_after = Some(bytes));
    }

    /// Ends all faults: no delay, nothing withheld, new connections.
    pub fn heal(&self) {
        self.shared.change(|weather| *weather = Weather::default());
        if !self.shared.listens.load(Ordering::SeqCst) {
            self.listen();
        }
    }

    /// How many connections were ever made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.opened.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        let mut links = lock(&self.shared.links);
        links.retain(|link| !link.is_closed());
        links.len()
    }

    /// How many bytes of requests were forwarded.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// How many pieces the requests came in: one for each write of a client that pauses between writes.
    #[must_use]
    pub fn pieces_sent(&self) -> u64 {
        self.shared.pieces.load(Ordering::SeqCst)
    }

    /// How many bytes of responses were forwarded.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }

    fn listen(&self) {
        // No other process claims the port, but one end of a connection may have it for a moment.
        let mut listener = None;
        wait_until("the proxy's port", || {
            listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port())).ok();
            listener.is_some()
        });
        let listener = listener.expect("it was waited for");
        self.shared.listens.store(true, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        *lock(&self.accepting) = Some(thread::spawn(move || shared.accept(&listener)));
    }

    fn stop_listening(&self) {
        let Some(accepting) = lock(&self.accepting).take() else { return };
        self.shared.listens.store(false, Ordering::SeqCst);
        // The thread waits for a connection, and then sees that it must stop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
        wait_until("the proxy stops to listen", || accepting.is_finished());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut lock(&self.weather));
        self.changed.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if !self.listens.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            self.opened.fetch_add(1, Ordering::SeqCst);
            // Without a server behind it, the client's connection ends here by being dropped.
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)) {
                let _ = self.connect(client, server);
            }
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let link = Arc::new(Link::new(client, server));
        let mut links = lock(&self.links);
        links.retain(|link| !link.is_closed());
        links.push(Arc::clone(&link));
        drop(links);
        for way in [Way::Request, Way::Reply] {
            link::carry(Arc::clone(self), &link, way)?;
        }
        Ok(())
    }

    fn count(&self, way: Way, bytes: usize) {
        let counter = match way {
            Way::Request => &self.sent,
            Way::Reply => &self.received,
        };
        counter.fetch_add(bytes as u64, Ordering::SeqCst);
        self.pieces.fetch_add(u64::from(way == Way::Request), Ordering::SeqCst);
    }
}

impl Weather {
    fn holds(&self, way: Way) -> bool {
        match way {
            Way::Request => self.holds_requests,
            Way::Reply => self.holds_replies,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed elsewhere reports itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
