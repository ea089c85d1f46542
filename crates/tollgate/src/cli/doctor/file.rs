//! Inspects a store in a file from outside. It neither opens it as a store nor changes it.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use tollgate_redis::inspect::Finding;
use tollgate_store::file::{Condition, Inspection, OpenError, inspect};

/// The findings about the file at a path.
pub(super) fn examine(path: &Path) -> Vec<Finding> {
    let shown = path.display();
    let mut findings = match inspect(path) {
        Ok(Some(found)) => of_file(path, &found),
        Ok(None) => vec![Finding::note("file", format!("there is no {shown} yet: the server begins one"))],
        Err(OpenError::Foreign { what, .. }) => vec![
            Finding::problem("file", format!("{shown} is {what}: the server does not start"))
                .remedy("name another file in `store`, or move this one away"),
        ],
        Err(error) => vec![
            Finding::problem("file", error.to_string())
                .remedy("let the user of the server read and write it, and its directory"),
        ],
    };
    findings.push(directory(path));
    findings.extend(damaged(path));
    findings
}

fn of_file(path: &Path, found: &Inspection) -> Vec<Finding> {
    let shown = path.display();
    let size = Finding::fine("file", format!("{shown} has {} bytes", found.bytes));
    let mut findings = match &found.condition {
        Condition::Empty => vec![
            Finding::warning("file", format!("{shown} is empty: the server starts counting at zero"))
                .remedy("if counters were in it, stop the server and restore the file from a copy"),
        ],
        Condition::InUse => vec![
            size,
            Finding::fine("lock", "a process has it open, as a running server does; its content was not checked"),
        ],
        Condition::Damaged { reason } => vec![
            Finding::warning(
                "file",
                format!("{shown} is damaged ({reason}): the server sets it aside and starts counting at zero"),
            )
            .remedy("restore the file from a copy before the server starts"),
        ],
        Condition::Sound { keys, lost_commits: 0 } => vec![
            size,
            Finding::fine("content", format!("{keys} keys, and all of it can be read")),
            Finding::fine("lock", "no process has it open"),
        ],
        Condition::Sound { keys, lost_commits } => vec![
            size,
            Finding::warning(
                "content",
                format!("{keys} keys; the newest commit is damaged, so the server falls back to an older one and loses {lost_commits}"),
            )
            .remedy("restore the file from a copy before the server starts, or accept the loss; then check the disk"),
            Finding::fine("lock", "no process has it open"),
        ],
    };
    if let Some(mode) = found.wide_permissions {
        let words =
            format!("other users have access to {shown}, which holds secrets: its mode is {mode:03o}");
        findings.push(Finding::warning("permissions", words).remedy(format!("run `chmod 600 {shown}`")));
    }
    if !matches!(found.condition, Condition::InUse) {
        findings.extend(unwritable(path));
    }
    findings
}

/// A finding if the file cannot be opened for writing.
fn unwritable(path: &Path) -> Option<Finding> {
    let error = fs::File::options().append(true).open(path).err()?;
    let finding = Finding::problem("file", format!("{} cannot be written to: {error}", path.display()));
    Some(finding.remedy("let the user of the server read and write it"))
}

/// Whether the server can create files in the directory, as it does for new and damaged state files.
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

/// The damaged files that were set aside.
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
    Some(Finding::note("damage", words).remedy("delete it when you no longer need it to find the cause"))
}

fn files(count: usize) -> String {
    if count == 1 { "a file was".to_owned() } else { format!("{count} files were") }
}
