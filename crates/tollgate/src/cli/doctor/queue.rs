//! The directory of the relay's queue, looked at from outside. The queue is neither opened nor changed.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::statvfs;
use tollgate_redis::inspect::Finding;
use tollgate_relay::queue::disk::{Content, Directory};

use crate::config::{RelayConfig, memory};

/// The findings about the queue's directory.
pub(super) fn examine(relay: &RelayConfig) -> Vec<Finding> {
    let directory = &relay.settings.directory;
    let shown = directory.display();
    if Directory::is_used_elsewhere(directory) {
        let words = format!(
            "a server uses the queue that was deleted from {shown}: it accepts no mail, and the mail in it is lost when the server ends"
        );
        let remedy = "wait until the server has sent what it can, then restart it";
        return vec![Finding::problem("queue", words).remedy(remedy)];
    }
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
    let mut findings = vec![content(directory), writable(directory)];
    findings.extend(space(directory, relay.settings.queue.min_free));
    findings.extend(set_aside(directory));
    findings
}

/// What the directory holds, and whether a server uses it.
fn content(directory: &Path) -> Finding {
    let shown = directory.display();
    match Directory::inspect(directory) {
        Ok(Content::Nothing) => {
            Finding::note("queue", format!("{shown} is no queue yet: the server makes it one"))
        }
        Ok(Content::QueueWithoutDatabase) => Finding::warning(
            "queue",
            format!("the database in {shown} is missing or empty: mail that waited in it is lost"),
        )
        .remedy("stop the server and restore `queue.redb` from a copy, if there is one"),
        Ok(Content::Queue) => match File::open(directory.join("lock")).map(|file| file.try_lock_shared()) {
            Ok(Err(_)) => Finding::fine("queue", format!("a process uses {shown}, as a running server does")),
            _ => Finding::fine("queue", format!("no process uses {shown}")),
        },
        Err(error) => {
            Finding::problem("queue", format!("the server does not start: {error}")).remedy(format!(
                "name another directory in `relay.queue.dir`, or let the server's user read and write {shown}"
            ))
        }
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
    let words = format!(
        "a damaged queue was set aside as {}: messages that could not be read from it are not sent",
        first.display()
    );
    Some(
        Finding::warning("damage", words)
            .remedy("restore it from a copy, or delete it when you no longer need it"),
    )
}
