//! A store in a file, looked at from outside. It is neither opened as a store nor changed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tollgate_redis::inspect::Finding;

/// What every file of this kind begins with.
const BEGINNING: &[u8] = b"redb";

/// What there is to say about the file at a path.
pub(super) fn examine(path: &Path) -> Vec<Finding> {
    let shown = path.display();
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut findings = match fs::metadata(&real) {
        Ok(found) if !found.is_file() => {
            let words = format!("{shown} is not a file");
            vec![Finding::problem("file", words).remedy("name a file in `store`")]
        }
        Ok(found) => {
            let words = format!("{shown} has {} bytes", found.len());
            let mut findings = vec![Finding::fine("file", words)];
            findings.extend(look_inside(&real, found.len()));
            findings
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            vec![Finding::note("file", format!("there is no {shown} yet: the server begins one"))]
        }
        Err(error) => vec![
            Finding::problem("file", format!("{shown} cannot be looked at: {error}"))
                .remedy("let the user of the server read and write it, and its directory"),
        ],
    };
    findings.push(directory(&real));
    findings.extend(damaged(&real));
    findings
}

fn look_inside(path: &Path, length: u64) -> Vec<Finding> {
    let shown = path.display();
    let mut file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) => {
            let finding = Finding::problem("file", format!("{shown} cannot be opened: {error}"));
            return vec![finding.remedy("let the user of the server read and write it")];
        }
    };
    let mut findings = Vec::new();
    let mut beginning = Vec::new();
    let read = file.by_ref().take(BEGINNING.len() as u64).read_to_end(&mut beginning);
    if length > 0 && (read.is_err() || beginning != BEGINNING) {
        findings.push(
            Finding::warning(
                "file",
                format!("{shown} is no store: the server sets it aside and starts afresh"),
            )
            .remedy("name another file in `store`, or put a copy of the store there"),
        );
    }
    // The one who has it open holds a lock on it. Ours is given back at once, and is one that others
    // who look may have too.
    findings.push(match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            Finding::fine("lock", "a process has it open, as a running server does")
        }
        Err(TryLockError::Error(error)) => {
            Finding::note("lock", format!("whether a process has it open is not known: {error}"))
        }
        Ok(()) => Finding::fine("lock", "no process has it open"),
    });
    findings
}

/// Whether the directory takes new files, which the server begins and sets aside in it.
fn directory(path: &Path) -> Finding {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let probe = parent.join(format!(".tollgate-doctor-{}", std::process::id()));
    let tried = OpenOptions::new().write(true).create_new(true).open(&probe);
    match tried.and_then(|_| fs::remove_file(&probe)) {
        Ok(()) => Finding::fine("directory", format!("{} can be written to", parent.display())),
        Err(error) => {
            Finding::problem("directory", format!("{} cannot be written to: {error}", parent.display()))
                .remedy("create it, and let the user of the server write to it")
        }
    }
}

/// Files that were set aside because they were damaged.
fn damaged(path: &Path) -> Option<Finding> {
    let mut beginning = path.file_name()?.to_owned();
    beginning.push(".damaged-");
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(parent.unwrap_or(Path::new("."))).ok()?;
    let aside = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(beginning.as_encoded_bytes()))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(aside).collect();
    found.sort();
    let first = found.first()?;
    let words = format!("{} damaged and set aside, as {}", files(found.len()), first.display());
    Some(Finding::note("damage", words).remedy("delete it when nobody needs it to find out why"))
}

fn files(count: usize) -> String {
    if count == 1 { "a file was".to_owned() } else { format!("{count} files were") }
}
