//! The walk through the parts of a MIME text, line by line. It surveys which parts need another encoding, or writes them so.

use std::collections::VecDeque;

use super::encoding::{Base64, QuotedPrintable};

/// The encoding that the body of a part needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It has 7 bits already.
    Nothing,
    /// It is a text; whether it is one of UTF-8.
    QuotedPrintable { utf8: bool },
    /// It is something else.
    Base64,
}

/// A walk through a text.
pub(super) struct Walk {
    /// The boundaries of the parts around, the outermost first.
    boundaries: Vec<Vec<u8>>,
    state: WalkState,
    /// Whether the next piece begins a line.
    at_start: bool,
    /// The header that is being read.
    header: Vec<u8>,
    is_first: bool,
    /// The needs of the parts, in their order: a survey adds them, a rewrite uses them up.
    needs: VecDeque<Need>,
    surveys: bool,
}

/// The position of the walk.
enum WalkState {
    Header,
    /// In what is around parts, which programs ignore.
    Between,
    /// In the body of a part that is looked at.
    Surveyed(Seen),
    Kept,
    QuotedPrintable(QuotedPrintable),
    Base64(Base64),
}

struct Seen {
    is_text: bool,
    eight_bit: bool,
    utf8: bool,
}

/// The deepest nesting of parts, and the longest header. Anything beyond is one body.
const MOST_DEPTH: usize = 50;
const MOST_HEADER: usize = 1 << 20;

/// The kind of a part, by its header.
enum PartKind {
    Multipart(Vec<u8>),
    Message,
    Leaf { is_text: bool, encoded: bool },
}

impl Walk {
    /// Finds out what the parts need.
    pub(super) fn survey() -> Self {
        Self {
            boundaries: Vec::new(),
            state: WalkState::Header,
            at_start: true,
            header: Vec::new(),
            is_first: true,
            needs: VecDeque::new(),
            surveys: true,
        }
    }

    /// Writes the parts as they need it.
    pub(super) fn converting(needs: VecDeque<Need>) -> Self {
        Self { needs, surveys: false, ..Self::survey() }
    }

    /// The needs that a survey found.
    pub(super) fn needs(mut self) -> VecDeque<Need> {
        self.end(&mut Vec::new());
        self.needs
    }

    /// Takes a line, or a piece of a long one.
    pub(super) fn feed(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let starts = std::mem::replace(&mut self.at_start, line.ends_with(b"\n"));
        if starts && self.meets_boundary(line, out) {
            return;
        }
        match &mut self.state {
            WalkState::Header => {
                let is_empty = starts && (line == b"\r\n" || line == b"\n");
                self.header.extend_from_slice(line);
                if is_empty || self.header.len() > MOST_HEADER {
                    self.begin_body(out);
                }
            }
            WalkState::Between => {
                out.extend(line.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }))
            }
            WalkState::Surveyed(seen) => {
                seen.eight_bit |= !line.is_ascii();
                seen.utf8 &= std::str::from_utf8(line).is_ok();
            }
            WalkState::Kept => out.extend_from_slice(line),
            WalkState::QuotedPrintable(encoding) => encoding.feed(line, out),
            WalkState::Base64(encoding) => encoding.feed(line, out),
        }
    }

    /// Writes what is left at the end of the text.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if matches!(self.state, WalkState::Header) {
            // A text of a header alone.
            out.append(&mut self.header);
        }
        self.end_body(out);
    }

    /// Whether a line ends the part. The part around comes before those inside of it.
    fn meets_boundary(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(rest) = line.strip_prefix(b"--") else { return false };
        let ends = |boundary: &[u8]| {
            let rest = rest.strip_prefix(boundary)?.trim_ascii_end();
            (rest.is_empty() || rest == b"--").then_some(!rest.is_empty())
        };
        let found =
            self.boundaries.iter().enumerate().find_map(|(depth, boundary)| Some((depth, ends(boundary)?)));
        let Some((depth, is_last)) = found else { return false };
        if matches!(self.state, WalkState::Header) {
            out.append(&mut self.header);
        }
        self.end_body(out);
        self.boundaries.truncate(if is_last { depth } else { depth + 1 });
        self.state = if is_last { WalkState::Between } else { WalkState::Header };
        out.extend_from_slice(line);
        true
    }

    /// Ends the body of a part.
    fn end_body(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.state, WalkState::Between) {
            WalkState::Surveyed(Seen { eight_bit: false, .. }) => self.needs.push_back(Need::Nothing),
            WalkState::Surveyed(Seen { is_text: true, utf8, .. }) => {
                self.needs.push_back(Need::QuotedPrintable { utf8 });
            }
            WalkState::Surveyed(_) => self.needs.push_back(Need::Base64),
            WalkState::QuotedPrintable(mut encoding) => encoding.end(out),
            WalkState::Base64(mut encoding) => encoding.end(out),
            WalkState::Header | WalkState::Between | WalkState::Kept => {}
        }
    }

    /// Looks at a header that is complete, writes it, and begins the body.
    fn begin_body(&mut self, out: &mut Vec<u8>) {
        let header = std::mem::take(&mut self.header);
        let is_first = std::mem::replace(&mut self.is_first, false);
        let fields = Fields::of(&header);
        match fields.kind() {
            PartKind::Multipart(boundary) if self.boundaries.len() < MOST_DEPTH => {
                self.boundaries.push(boundary);
                self.state = WalkState::Between;
                fields.write_encoded("7bit", out);
            }
            PartKind::Message if self.boundaries.len() < MOST_DEPTH => {
                self.state = WalkState::Header;
                fields.write_encoded("7bit", out);
            }
            PartKind::Leaf { encoded: true, .. } => {
                self.state = WalkState::Kept;
                out.extend_from_slice(&header);
            }
            kind if self.surveys => {
                let is_text = matches!(kind, PartKind::Leaf { is_text: true, .. });
                self.state = WalkState::Surveyed(Seen { is_text, eight_bit: false, utf8: true });
            }
            _ => {
                let need = self.needs.pop_front().unwrap_or(Need::Nothing);
                let (state, encoding) = match need {
                    Need::Nothing => (WalkState::Kept, "7bit"),
                    Need::QuotedPrintable { .. } => {
                        (WalkState::QuotedPrintable(QuotedPrintable::default()), "quoted-printable")
                    }
                    Need::Base64 => (WalkState::Base64(Base64::default()), "base64"),
                };
                self.state = state;
                if let Need::QuotedPrintable { utf8 } = need {
                    fields.write_missing(is_first, utf8, out);
                }
                fields.write_encoded(encoding, out);
            }
        }
    }
}

/// The fields of a header, each with its line ends.
struct Fields<'h>(Vec<&'h [u8]>);

impl<'h> Fields<'h> {
    fn of(header: &'h [u8]) -> Self {
        let mut fields: Vec<&[u8]> = Vec::new();
        let (mut start, mut at) = (0, 0);
        for line in header.split_inclusive(|byte| *byte == b'\n') {
            // A line that begins with white space continues the field before.
            if at > start && !line.starts_with(b" ") && !line.starts_with(b"\t") {
                fields.push(&header[start..at]);
                start = at;
            }
            at += line.len();
        }
        fields.push(&header[start..at]);
        Self(fields)
    }

    /// The value of a field in one line; `None` if there is none.
    fn value(&self, name: &str) -> Option<String> {
        let field = self.0.iter().find(|field| is_named(field, name))?;
        let (_, value) = field.split_at_checked(name.len() + 1)?;
        Some(String::from_utf8_lossy(value).replace(['\r', '\n'], "").trim().to_owned())
    }

    fn kind(&self) -> PartKind {
        let content = self.value("content-type").unwrap_or_else(|| "text/plain".to_owned());
        let lower = content.to_ascii_lowercase();
        let encoding = self.value("content-transfer-encoding").unwrap_or_default().to_ascii_lowercase();
        if lower.starts_with("multipart/")
            && let Some(boundary) = boundary_of(&content)
        {
            return PartKind::Multipart(boundary);
        }
        if lower.starts_with("message/rfc822")
            || lower.starts_with("message/global;")
            || lower == "message/global"
        {
            return PartKind::Message;
        }
        let is_text = lower.starts_with("text/") || lower.starts_with("message/");
        PartKind::Leaf { is_text, encoded: matches!(&*encoding, "base64" | "quoted-printable") }
    }

    /// Writes the header with this encoding, if it had another.
    fn write_encoded(&self, encoding: &str, out: &mut Vec<u8>) {
        let had = self.value("content-transfer-encoding");
        let (fields, end) = match self.0.split_last() {
            Some((end, fields)) if end.trim_ascii().is_empty() => (fields, *end),
            _ => (&self.0[..], &b""[..]),
        };
        for field in fields.iter().filter(|field| !is_named(field, "content-transfer-encoding")) {
            out.extend_from_slice(field);
        }
        if had.is_some() || encoding != "7bit" {
            out.extend_from_slice(format!("Content-Transfer-Encoding: {encoding}\r\n").as_bytes());
        }
        out.extend_from_slice(end);
    }

    /// Writes what an encoded text needs and its header does not say.
    fn write_missing(&self, is_first: bool, utf8: bool, out: &mut Vec<u8>) {
        if is_first && self.value("mime-version").is_none() {
            out.extend_from_slice(b"MIME-Version: 1.0\r\n");
        }
        if self.value("content-type").is_none() {
            let charset = if utf8 { "utf-8" } else { "unknown-8bit" };
            out.extend_from_slice(format!("Content-Type: text/plain; charset={charset}\r\n").as_bytes());
        }
    }
}

fn is_named(field: &[u8], name: &str) -> bool {
    let colon = field.iter().position(|byte| *byte == b':');
    colon.is_some_and(|at| field[..at].eq_ignore_ascii_case(name.as_bytes()))
}

/// The boundary of a Content-Type.
fn boundary_of(content: &str) -> Option<Vec<u8>> {
    let lower = content.to_ascii_lowercase();
    let at = lower.find("boundary=")? + "boundary=".len();
    let rest = &content[at..];
    let boundary = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split(|char: char| char == ';' || char.is_whitespace()).next()?,
    };
    (!boundary.is_empty() && boundary.len() <= 200).then(|| boundary.as_bytes().to_vec())
}
