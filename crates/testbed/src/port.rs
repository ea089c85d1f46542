//! Loopback ports that no other process takes.
//!
//! The kernel may give a port that it picked (`bind` to 0, then close) to another process before a server
//! binds it, and a stopped server loses its port. So ports come from a range that the kernel does not hand
//! out, and every test process locks a file with the port's number while it uses the port.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below Linux's `ip_local_port_range`, which begins at 32768.
const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

/// The next offset to try in this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback port that belongs to this process while the value lives, used or not.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Its lock tells other processes; closing the file releases it.
    _claim: File,
}

impl Port {
    /// Claims a port without a listener.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn claim() -> Self {
        let user = rustix::process::getuid().as_raw();
        let directory = std::env::temp_dir().join(format!("tollgate-testbed-ports-{user}"));
        fs::create_dir_all(&directory).expect("the directory of claims can be made");
        // Processes start at different offsets, so that they rarely collide.
        let offset = std::process::id().wrapping_mul(97);
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + offset.wrapping_add(step) % COUNT;
            let number = u16::try_from(number).expect("the range is one of ports");
            let file = directory.join(number.to_string());
            let claim = match OpenOptions::new().create(true).append(true).open(&file) {
                Ok(claim) => claim,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => continue,
                Err(error) => panic!("cannot claim a port by {}: {error}", file.display()),
            };
            if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self { number, _claim: claim };
            }
        }
        panic!("no port from {FIRST} on is free");
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_claimed_once() {
        let ports: Vec<Port> = (0..50).map(|_| Port::claim()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), 50);
        let again = OpenOptions::new()
            .append(true)
            .open(std::env::temp_dir().join(format!(
                "tollgate-testbed-ports-{}/{}",
                rustix::process::getuid().as_raw(),
                ports[0].number()
            )))
            .unwrap();
        assert!(again.try_lock().is_err(), "another process sees the claim");
    }
}
