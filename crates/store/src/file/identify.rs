//! Decides which files the store may use: regular files that it wrote, and empty ones.
//!
//! A file is opened once, without following a link or waiting for a peer, and every check uses the open
//! descriptor. So replacing the path meanwhile has no effect.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::open::OpenError;
use super::seal::MARK;

/// The first bytes of every redb database.
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// How many of these must be left in a truncated file: more than a word that a text may contain.
const LEAST_MAGIC: usize = 5;

/// How much of a file with an unreadable start is searched for the mark.
const MOST_SEARCHED: u64 = 1 << 30;
const CHUNK: usize = 1 << 18;

/// The purpose of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// To inspect it.
    Read,
    /// To keep counters in it.
    Write,
    /// To create a new file, unless one exists.
    Create,
}

/// The path with its directory resolved. The last part stays as it is: it must not be a link.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(parent), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Opens a regular file; `None` if there is none. Anything else is refused and left alone.
pub(super) fn open(path: &Path, access: Access) -> Result<Option<File>, OpenError> {
    let failed = |error| OpenError::Io { doing: "open", path: path.to_owned(), error };
    // Opening a device may have an effect, so its kind is checked before, and again after.
    match fs::symlink_metadata(path) {
        Ok(found) => refuse_irregular(path, &found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && access != Access::Create => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
    let opened = OpenOptions::new()
        .read(true)
        .write(access != Access::Read)
        .create(access == Access::Create)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && access != Access::Create => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    refuse_irregular(path, &file.metadata().map_err(failed)?)?;
    Ok(Some(file))
}

fn refuse_irregular(path: &Path, found: &Metadata) -> Result<(), OpenError> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "not a regular file",
    };
    Err(OpenError::Foreign { path: path.to_owned(), what })
}

/// Whether the store wrote a file that is not empty, however damaged: it starts like a redb file, contains
/// the mark, or consists of zeros after a crash of the machine.
pub(super) fn is_ours(file: &File) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK];
    let (mut offset, mut kept, mut all_zero) = (0, 0, true);
    loop {
        let read = read_at(file, &mut chunk[kept..], offset)?;
        let bytes = &chunk[..kept + read];
        if offset == 0 && bytes.starts_with(&MAGIC[..bytes.len().clamp(LEAST_MAGIC, MAGIC.len())]) {
            return Ok(true);
        }
        all_zero &= bytes.iter().all(|byte| *byte == 0);
        if !all_zero && bytes.windows(MARK.len()).any(|window| window == MARK) {
            return Ok(true);
        }
        offset += read as u64;
        if read == 0 {
            return Ok(all_zero);
        }
        if offset >= MOST_SEARCHED {
            return Ok(false);
        }
        // The mark may span two chunks.
        kept = bytes.len().min(MARK.len() - 1);
        let from = bytes.len() - kept;
        chunk.copy_within(from..from + kept, 0);
    }
}

/// Whether a file may be overwritten: it is empty, or left by a crash during its creation. redb writes the
/// first bytes last, so they may still be zeros.
pub(super) fn is_draft(file: &File) -> io::Result<bool> {
    let mut beginning = [0; MAGIC.len()];
    let read = read_at(file, &mut beginning, 0)?;
    let beginning = &beginning[..read];
    Ok(MAGIC.starts_with(beginning) || beginning.iter().all(|byte| *byte == 0))
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Whether a path still names the opened file.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((opened.dev(), opened.ino()) == (there.dev(), there.ino()))
}

/// The permissions, if others than the owner have any.
pub(super) fn wide_permissions(file: &File) -> Option<u32> {
    let mode = file.metadata().ok()?.mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}
