//! Converts the lines of one log to heads and values.

use tollgate_core::Timestamp;

use super::Reading;
use crate::hash;
use crate::layout::{BadLayout, Layout, Wish};
use crate::log::format::{Format, NoFormat, SAMPLED};
use crate::log::stamp::Stamps;
use crate::log::{Splitter, Unreadable};
use crate::order::{ABSENT, Head, Values};

/// The format of a log, and the layout of its lines.
pub(super) struct Recognised {
    pub(super) format: Format,
    pub(super) layout: Layout,
}

pub(super) struct Extractor {
    splitter: Splitter,
    /// The name of the format.
    pub(super) format: &'static str,
    pub(super) layout: Layout,
    stamps: Stamps,
    pub(super) values: Values,
}

/// The number of lines of a sample that are searched for the earliest time.
const SEARCHED: usize = 100;

impl Recognised {
    /// The format of a sample. If its first lines match no format, the lines after them decide.
    pub(super) fn format(sample: &[u8], reading: &Reading) -> Result<Format, NoFormat> {
        let mut rest = sample;
        loop {
            let (part, after) = first_lines(rest);
            let found = match &reading.format {
                Some(name) => Format::named(name, part),
                None => Format::detect(part),
            };
            if after.is_empty() || found.as_ref().is_ok() || found.as_ref().is_err_and(NoFormat::is_final) {
                return found;
            }
            rest = after;
        }
    }

    /// Finds the fields in a format.
    pub(super) fn new(format: Format, reading: &Reading, wishes: &[Wish]) -> Result<Self, BadLayout> {
        let layout = Layout::new(&format, &reading.mappings, wishes, reading.taken)?;
        Ok(Self { format, layout })
    }

    /// The earliest time of the first lines, in microseconds; 0 if they have none.
    pub(super) fn first_time(&self, sample: &[u8], reading: &Reading) -> u64 {
        let mut splitter = Splitter::new(&self.format, &self.layout.columns);
        let mut stamps = Stamps::new(reading.now, reading.zone.clone());
        let mut time = |line: &[u8]| -> Option<u64> {
            let columns = splitter.split(line).ok()??;
            let stamp = stamps.read(columns.value(self.layout.time)?)?;
            (!stamps.is_future(stamp)).then_some(stamp.micros)
        };
        let lines = sample.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        lines.filter_map(&mut time).take(SEARCHED).min().unwrap_or(0)
    }
}

/// Splits off the lines that are examined together.
fn first_lines(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr_iter(b'\n', text).nth(SAMPLED - 1).map_or(text.len(), |end| end + 1);
    text.split_at(end)
}

impl Extractor {
    /// Reads lines of a format.
    pub(super) fn new(recognised: Recognised, now: Timestamp, zone: Option<jiff::tz::TimeZone>) -> Self {
        let Recognised { format, layout } = recognised;
        let splitter = Splitter::new(&format, &layout.columns);
        let stamps = Stamps::new(now, zone);
        Self { splitter, format: format.name(), layout, stamps, values: Values::default() }
    }

    /// Reads a line. Afterwards its values are in `self.values`.
    #[inline]
    pub(super) fn read(&mut self, line: &[u8]) -> Result<Option<Head>, Unreadable> {
        let Self { splitter, layout, stamps, values, .. } = self;
        let Some(columns) = splitter.split(line)? else { return Ok(None) };
        let stamp = columns.value(layout.time).and_then(|text| stamps.read(text)).ok_or(Unreadable::Time)?;
        if stamps.is_future(stamp) {
            return Err(Unreadable::Future);
        }
        if !layout.unsampled.is_empty() {
            layout.unsampled.retain(|(place, _)| columns.value(*place).is_none());
        }
        values.text.clear();
        values.lengths.clear();
        for slot in &layout.slots {
            let from = values.text.len();
            let present = slot.write(columns, &mut values.text)?;
            let length = u16::try_from(values.text.len() - from).expect("fields are bounded");
            values.lengths.push(if present { length } else { ABSENT });
        }
        let status = layout.status.and_then(|place| columns.value(place)).map_or(0, status);
        let agent = layout.agent.and_then(|place| columns.value(place)).map_or(0, hash);
        let duration = layout.duration_of(columns).as_micros();
        Ok(Some(Head { at: stamp.micros, whole: stamp.whole, duration, status, agent, late: false }))
    }
}

#[inline]
fn status(text: &[u8]) -> u16 {
    match text {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => 0,
    }
}
