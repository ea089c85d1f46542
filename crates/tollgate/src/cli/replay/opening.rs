//! Opens logs: files, compressed files, and standard input. A bar shows the progress, on a terminal only.
//!
//! A file is opened when its turn comes. Whatever is not a file, such as a pipe, can be read once and is opened at once.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use tollgate_replay::feed::{Input, Pass};

use super::zstd::{self, Frames};
use crate::config::files;
use crate::printable::plain;

/// Logs that can be read.
pub(in crate::cli) struct Opened {
    pub(in crate::cli) logs: Vec<(String, Input)>,
    pub(in crate::cli) names: Vec<String>,
    /// The bar. It hides itself if standard error is not a terminal.
    pub(in crate::cli) bar: ProgressBar,
}

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Prepares all logs for reading.
pub(in crate::cli) fn open_all(paths: &[PathBuf]) -> anyhow::Result<Opened> {
    let sizes = paths.iter().filter_map(|path| Some(path.metadata().ok()?.len()));
    let template = "{wide_bar} {percent:>3}%  {bytes_per_sec}  {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is fixed");
    let bar = ProgressBar::new(sizes.sum()).with_style(style);
    let mut opened = Opened { logs: Vec::new(), names: Vec::new(), bar: bar.clone() };
    for path in paths {
        let name = plain(&path.display().to_string());
        let input = input(path, &bar).with_context(|| format!("{name}: cannot be opened"))?;
        opened.names.push(name.clone());
        opened.logs.push((name, input));
    }
    Ok(opened)
}

fn input(path: &Path, bar: &ProgressBar) -> anyhow::Result<Input> {
    if path == Path::new("-") {
        return Ok(Input::Stream(decompressed(bar.wrap_read(io::stdin()))?));
    }
    let file = files::open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        bail!("it is a directory: name the files in it");
    }
    if !kind.is_file() {
        return Ok(Input::Stream(decompressed(bar.wrap_read(file))?));
    }
    let (path, bar) = (path.to_owned(), bar.clone());
    Ok(Input::File(Box::new(move |pass| {
        let file = File::open(&path)?;
        match pass {
            Pass::Recognise => decompressed(file),
            Pass::Read => decompressed(bar.wrap_read(file)),
        }
    })))
}

/// The plain text, whichever way its first bytes say that it is compressed.
fn decompressed(mut reader: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut magic = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(GZIP);
    let is_zstd = zstd::begins(&magic);
    let whole = Cursor::new(magic).chain(reader);
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole)))
    } else if is_zstd {
        Box::new(Frames::new(whole))
    } else {
        Box::new(whole)
    })
}
