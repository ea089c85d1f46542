//! Sockets of several workers that listen on one address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections the kernel queues before they are accepted.
const BACKLOG: i32 = 1024;

/// Opens a socket for each worker at the same address. The kernel spreads connections over them.
pub(crate) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    if workers == 1 {
        return Ok(vec![listen(open(address, Sharing::Alone)?)?]);
    }
    // A shared address would also be shared with other processes. This exclusive socket fails if one uses the
    // address.
    let probe = open(address, Sharing::Alone)?;
    let address = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    (0..workers).map(|_| listen(open(address, Sharing::Shared)?)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Shared,
}

fn open(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Allow an address whose last connections are still in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
