//! The directory of the relay's queue, looked at from outside. The queue is neither opened nor changed.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::statvfs;
use tollgate_redis::inspect::Finding;

use crate::config::{RelayConfig, memory};

/// The findings about the queue's directory.
pub(super) fn examine(relay: &RelayConfig) -> Vec<Finding> {
    let directory = &relay.settings.directory;
    let shown = directory.display();
    if !directory.exists() {
        return vec![
            Finding::note("queue", format!("there is no {shown} yet: the server makes it")),
            writable(
                directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
            ),
        ];
    }
    if !directory.is_dir() {
        let problem =
            Finding::problem("queue", format!("{shown} is not a directory: the server does not start"));
        return vec![problem.remedy("name another directory in `relay.queue.dir`")];
    }
    let mut findings = vec![lock(directory), writable(directory)];
    findings.extend(space(directory, relay.settings.queue.min_free));
    findings.extend(set_aside(directory));
    findings
}

/// Whether a server uses the queue.
fn lock(directory: &Path) -> Finding {
    let shown = directory.display();
    match File::open(directory.join("lock")) {
        Ok(file) if file.try_lock_shared().is_err() => {
            Finding::fine("queue", format!("a process uses {shown}, as a running server does"))
        }
        Ok(_) => Finding::fine("queue", format!("no process uses {shown}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::note("queue", format!("{shown} is no queue yet: the server makes it one"))
        }
        Err(error) => Finding::problem("queue", format!("{shown} cannot be read: {error}"))
            .remedy("let the user of the server read and write it"),
    }
}

/// Whether the directory takes new files.
fn writable(directory: &Path) -> Finding {
    let probe = directory.join(format!(".tollgate-doctor-{}", std::process::id()));
    let tried = File::options().write(true).create_new(true).open(&probe);
    match tried.and_then(|_| fs::remove_file(&probe)) {
        Ok(()) => Finding::fine("queue", format!("{} can be written to", directory.display())),
        Err(error) => {
            Finding::problem("queue", format!("{} cannot be written to: {error}", directory.display()))
                .remedy("let the user of the server write to it")
        }
    }
}

/// Whether the disk has room for mail.
fn space(directory: &Path, min_free: u64) -> Option<Finding> {
    let disk = statvfs(directory).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let (free_words, least) = (memory::in_words(free), memory::in_words(min_free));
    Some(if free < min_free {
        Finding::warning(
            "disk",
            format!("{free_words} are free, and below {least} mail is refused for now with 452"),
        )
        .remedy("make room on the disk, or lower `relay.queue.min_free`")
    } else {
        Finding::fine("disk", format!("{free_words} are free, and {least} stay so"))
    })
}

/// Queues that were set aside because they were damaged.
fn set_aside(directory: &Path) -> Option<Finding> {
    let names = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name());
    let mut aside: Vec<_> = names.filter(|name| name.as_encoded_bytes().starts_with(b"damaged-")).collect();
    aside.sort();
    let first = directory.join(aside.first()?);
    let words = format!("a damaged queue was set aside as {}: its messages are not sent", first.display());
    Some(
        Finding::warning("damage", words).remedy("restore it from a copy, or delete it when nobody needs it"),
    )
}
