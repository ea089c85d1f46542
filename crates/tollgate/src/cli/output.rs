//! Writes a file that a command makes: whole or not at all, and never in the place of a file that it reads.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// What happens to a file of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    Kept,
    Replaced,
}

/// A file to write.
pub(super) struct Output<'p> {
    /// Its name.
    pub(super) path: &'p Path,
    /// The files that the command reads, and what they are, as in `one of the logs`.
    pub(super) inputs: Vec<(&'p Path, &'static str)>,
    pub(super) existing: Existing,
}

impl Output<'_> {
    /// Refuses a name that must not be written to. A command checks it before it begins to work.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let shown = self.path.display();
        let Ok(found) = self.path.symlink_metadata() else { return Ok(()) };
        let place = |path: &Path| path.canonicalize().ok();
        let this = place(self.path);
        let same = |input: &&(&Path, &str)| this.is_some() && place(input.0) == this;
        if let Some((_, what)) = self.inputs.iter().find(same) {
            bail!("{shown}: this is {what}: name another file");
        }
        if !found.is_file() {
            bail!("{shown}: this is not a regular file: name another one");
        }
        if self.existing == Existing::Kept {
            bail!("{shown}: the file exists: name another one, or replace it with --force");
        }
        Ok(())
    }

    /// Writes the file.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<()> {
        self.check()?;
        write(self.path, text, self.existing)
            .with_context(|| format!("{}: cannot be written", self.path.display()))
    }
}

/// Writes a file as a whole, or not at all.
pub(super) fn write(output: &Path, text: &str, existing: Existing) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory: PathBuf = directory.unwrap_or(Path::new(".")).to_owned();
    let readable = std::fs::Permissions::from_mode(0o644);
    let mut file =
        tempfile::Builder::new().prefix(".tollgate-new").permissions(readable).tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    // A file that another program has created in the meantime stays.
    match existing {
        Existing::Replaced => file.persist(output)?,
        Existing::Kept => file.persist_noclobber(output)?,
    };
    Ok(())
}
