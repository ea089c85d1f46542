//! The file of a Unix socket. The door creates it when it begins to listen and removes it when it ends. It
//! never removes the file of another program.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// Every user may connect. The directory decides who can reach the socket.
const MODE: u32 = 0o666;
/// The time within which a program that still listens must accept a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket's file. Dropping it removes the file, unless another file has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

/// Listens at a path. Replaces a socket on which no program listens any more.
pub(crate) async fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    make_room(path).await?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    let identity = identity(&fs::symlink_metadata(path)?);
    Ok((listener, SocketFile { path: path.to_owned(), identity }))
}

async fn make_room(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let message = "there is a file that is not a socket; remove it, or name another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_a_crash_left_behind_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy");
        // Closing a listener leaves its file, as a crash would.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (listener, file) = listen(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        let taken = listen(&path).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop((listener, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn files_links_and_directories_stay() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, folder, stale] =
            ["file", "link", "folder", "stale"].map(|name| directory.path().join(name));
        fs::write(&file, "precious").unwrap();
        fs::create_dir(&folder).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
        std::os::unix::fs::symlink(&stale, &link).unwrap();
        for path in [&file, &link, &folder] {
            assert_eq!(listen(path).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        assert!(link.is_symlink() && stale.exists() && folder.is_dir());
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy");
        let (_listener, file) = listen(&path).await.unwrap();
        fs::rename(&path, directory.path().join("old")).unwrap();
        let (_successor, _file) = listen(&path).await.unwrap();
        drop(file);
        assert!(path.exists());
    }
}
