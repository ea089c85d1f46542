//! Watches the frames that an HTTP/2 client sends, for what HTTP/2 libraries leave unbounded: a head that
//! never ends, and a flood of frames that carry no request.
//!
//! It reads frame headers alone (length, type, flags) and keeps a few numbers. It reads no payload, does no
//! I/O and has no clock: a listener passes it the bytes, sets the timer and closes the connection.

use std::time::Duration;

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame header: length (3 bytes), type, flags, stream (4 bytes).
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The cost of a frame without a request. The unit is one byte that the server sends: a client that downloads
/// much may send a WINDOW_UPDATE for every 128 bytes.
const FRAME_COST: u64 = 128;
/// A connection may send this many frames without a request at once.
const BURST_FRAMES: u64 = 1_000;
/// It may send this many each second, for as long as it is open.
const FRAMES_PER_SECOND: u64 = 20;
/// It may send this many in addition with each request. Browsers send one or two.
const FRAMES_PER_REQUEST: u64 = 8;
/// A long frame without a request counts once more for each of these bytes.
const LONG_FRAME_BYTES: u64 = 1024;

/// Follows the frames of one connection.
///
/// PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, unknown frames and empty DATA frames draw on
/// a budget. Requests, bytes that the server sends, and time fill it up. Heads and bodies cost nothing: the
/// server bounds them elsewhere.
#[derive(Debug)]
pub struct FrameWatch {
    place: Place,
    /// Whether a HEADERS frame without END_HEADERS came, and its last CONTINUATION did not.
    in_head: bool,
    /// The number of heads and control frames that have begun.
    begun: u64,
    budget: u64,
    /// When the budget was last filled up by time.
    filled: Duration,
}

/// The position within the frames of a connection.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// This many bytes of the preface have arrived.
    Preface(usize),
    /// These bytes of a frame header have arrived.
    Header([u8; HEADER_BYTES], usize),
    /// This many bytes of a frame's payload are still missing.
    Payload(u32, FrameKind),
    /// This is not HTTP/2. Nothing is watched.
    OtherProtocol,
}

/// The kind of frame that a payload belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    /// A body, which has time-outs of its own.
    Data,
    Other,
}

/// The connection sends too many frames that carry no request. The listener closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFlood;

impl std::fmt::Display for FrameFlood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client sends too many HTTP/2 frames that carry no request")
    }
}

impl std::error::Error for FrameFlood {}

impl FrameWatch {
    /// Watches a connection from its first byte. If that is not the start of HTTP/2, it ignores the rest.
    /// `now` is the time since any fixed moment.
    pub fn new(now: Duration) -> Self {
        let budget = BURST_FRAMES * FRAME_COST;
        Self { place: Place::Preface(0), in_head: false, begun: 0, budget, filled: now }
    }

    /// Counts bytes that the client sent, in their order of arrival.
    ///
    /// `now` is the time since the same moment as in [`FrameWatch::new`]. It is called only when the budget
    /// is used up.
    ///
    /// # Errors
    ///
    /// [`FrameFlood`] once the client has sent too many frames that carry no request.
    pub fn received(&mut self, mut bytes: &[u8], now: impl Fn() -> Duration) -> Result<(), FrameFlood> {
        while !bytes.is_empty() {
            match &mut self.place {
                Place::OtherProtocol => return Ok(()),
                Place::Preface(come) => {
                    let length = bytes.len().min(PREFACE.len() - *come);
                    if bytes[..length] != PREFACE[*come..*come + length] {
                        self.place = Place::OtherProtocol;
                        return Ok(());
                    }
                    *come += length;
                    if *come == PREFACE.len() {
                        self.place = Place::Header([0; HEADER_BYTES], 0);
                    }
                    bytes = &bytes[length..];
                }
                Place::Header(header, come) => {
                    if *come == 0 && !self.in_head {
                        self.begun += 1;
                    }
                    let length = bytes.len().min(HEADER_BYTES - *come);
                    header[*come..*come + length].copy_from_slice(&bytes[..length]);
                    *come += length;
                    bytes = &bytes[length..];
                    if *come == HEADER_BYTES {
                        let header = *header;
                        self.begin(header, &now)?;
                    }
                }
                Place::Payload(left, _) => {
                    let length = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    *left -= u32::try_from(length).unwrap_or(*left);
                    if *left == 0 {
                        self.place = Place::Header([0; HEADER_BYTES], 0);
                    }
                    bytes = &bytes[length..];
                }
            }
        }
        Ok(())
    }

    /// Counts bytes that the server sent.
    pub fn sent(&mut self, bytes: usize) {
        self.fill(bytes as u64);
    }

    /// The number of the head or control frame that has begun and has not ended. The listener gives each
    /// number the time of a head, and then closes the connection. A body has time-outs of its own.
    pub fn unfinished(&self) -> Option<u64> {
        let begun = match self.place {
            Place::OtherProtocol | Place::Preface(_) => false,
            Place::Header(_, come) => come > 0 || self.in_head,
            Place::Payload(_, kind) => kind != FrameKind::Data || self.in_head,
        };
        begun.then_some(self.begun)
    }

    /// Starts a frame.
    fn begin(&mut self, header: [u8; HEADER_BYTES], now: &impl Fn() -> Duration) -> Result<(), FrameFlood> {
        let [long, middle, short, kind, flags, ..] = header;
        let length = u32::from_be_bytes([0, long, middle, short]);
        let payload = if kind == DATA { FrameKind::Data } else { FrameKind::Other };
        self.place = match length {
            0 => Place::Header([0; HEADER_BYTES], 0),
            _ => Place::Payload(length, payload),
        };
        match kind {
            HEADERS => {
                self.in_head = flags & END_HEADERS == 0;
                self.fill(FRAMES_PER_REQUEST * FRAME_COST);
                Ok(())
            }
            CONTINUATION => {
                self.in_head &= flags & END_HEADERS == 0;
                Ok(())
            }
            DATA if length > 0 || flags & END_STREAM != 0 => Ok(()),
            _ => self.charge(FRAME_COST * (1 + u64::from(length) / LONG_FRAME_BYTES), now),
        }
    }

    fn charge(&mut self, cost: u64, now: &impl Fn() -> Duration) -> Result<(), FrameFlood> {
        if self.budget < cost {
            let now = now();
            let passed = now.saturating_sub(self.filled).as_micros();
            let units = passed.saturating_mul(u128::from(FRAMES_PER_SECOND * FRAME_COST)) / 1_000_000;
            self.fill(u64::try_from(units).unwrap_or(u64::MAX));
            self.filled = now;
        }
        self.budget = self.budget.checked_sub(cost).ok_or(FrameFlood)?;
        Ok(())
    }

    fn fill(&mut self, units: u64) {
        self.budget = self.budget.saturating_add(units).min(BURST_FRAMES * FRAME_COST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITY: u8 = 2;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    const UNKNOWN: u8 = 0xbb;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let size = u32::try_from(length).unwrap().to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER_BYTES + length, 0x55);
        frame
    }

    fn opened() -> FrameWatch {
        let mut watch = FrameWatch::new(Duration::ZERO);
        watch.received(PREFACE, || Duration::ZERO).unwrap();
        watch
    }

    /// The number of frames, of 100,000, that are accepted at one moment.
    fn passed(watch: &mut FrameWatch, frame: &[u8], now: Duration) -> usize {
        (0..100_000).position(|_| watch.received(frame, || now).is_err()).unwrap_or(100_000)
    }

    #[test]
    fn frames_without_a_request_are_bounded() {
        let floods = [
            frame(PRIORITY, 0, 5),
            frame(RST_STREAM, 0, 4),
            frame(SETTINGS, 0, 6),
            frame(PING, 0, 8),
            frame(WINDOW_UPDATE, 0, 4),
            frame(UNKNOWN, 0, 0),
            frame(DATA, 0, 0),
        ];
        for flood in floods {
            assert_eq!(passed(&mut opened(), &flood, Duration::ZERO), 1_000, "type {}", flood[3]);
        }
        let long = frame(UNKNOWN, 0, 16_384);
        assert_eq!(passed(&mut opened(), &long, Duration::ZERO), 1_000 / 17);
    }

    #[test]
    fn requests_and_bodies_are_not_counted() {
        let requests = [frame(HEADERS, END_HEADERS | END_STREAM, 30), frame(PRIORITY, 0, 5)].concat();
        assert_eq!(passed(&mut opened(), &requests, Duration::ZERO), 100_000);
        assert_eq!(passed(&mut opened(), &frame(DATA, 0, 1), Duration::ZERO), 100_000);
        assert_eq!(passed(&mut opened(), &frame(DATA, END_STREAM, 0), Duration::ZERO), 100_000);
    }

    #[test]
    fn a_client_that_downloads_may_open_its_window_as_often_as_it_needs() {
        let mut watch = opened();
        for _ in 0..100_000 {
            watch.sent(256);
            watch.received(&frame(WINDOW_UPDATE, 0, 4).repeat(2), || Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn time_fills_the_budget_up_and_not_beyond_it() {
        let mut watch = opened();
        let ping = frame(PING, 0, 8);
        for second in 0..100_000 {
            watch.received(&ping.repeat(20), || Duration::from_secs(second)).unwrap();
        }
        let burst = passed(&mut watch, &ping, Duration::from_secs(1_000_000));
        assert!((1_000..=2_000).contains(&burst), "{burst}");
        let mut watch = opened();
        watch.received(&ping.repeat(1_000), || Duration::ZERO).unwrap();
        assert_eq!(passed(&mut watch, &ping, Duration::from_secs(1)), 20);
    }

    #[test]
    fn a_head_is_unfinished_until_its_last_frame_has_come() {
        let mut watch = opened();
        let now = || Duration::ZERO;
        assert_eq!(watch.unfinished(), None);
        watch.received(&frame(HEADERS, 0, 10), now).unwrap();
        let head = watch.unfinished();
        assert!(head.is_some());
        watch.received(&frame(CONTINUATION, 0, 0).repeat(3), now).unwrap();
        assert_eq!(watch.unfinished(), head, "it is the same head");
        watch.received(&frame(CONTINUATION, END_HEADERS, 1), now).unwrap();
        assert_eq!(watch.unfinished(), None);
        watch.received(&frame(HEADERS, END_HEADERS, 10)[..12], now).unwrap();
        assert!(watch.unfinished() > head, "it is another head, of which a part came");
        watch.received(&frame(HEADERS, END_HEADERS, 10)[12..], now).unwrap();
        watch.received(&frame(DATA, 0, 10)[..12], now).unwrap();
        assert_eq!(watch.unfinished(), None, "a body may take its time");
    }

    #[test]
    fn it_makes_no_difference_how_the_bytes_are_cut() {
        let frames = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 18),
            frame(HEADERS, 0, 40),
            frame(CONTINUATION, END_HEADERS, 7),
            frame(DATA, 0, 300),
            frame(UNKNOWN, 0, 5_000),
            frame(HEADERS, 0, 3),
        ];
        let bytes = frames.concat();
        let state = |watch: &FrameWatch| (watch.budget, watch.begun, watch.unfinished());
        let mut whole = FrameWatch::new(Duration::ZERO);
        whole.received(&bytes, || Duration::ZERO).unwrap();
        for size in 1..64 {
            let mut cut = FrameWatch::new(Duration::ZERO);
            bytes.chunks(size).for_each(|part| cut.received(part, || Duration::ZERO).unwrap());
            assert_eq!(state(&cut), state(&whole), "in parts of {size}");
        }
    }

    #[test]
    fn another_protocol_is_not_watched() {
        let mut watch = FrameWatch::new(Duration::ZERO);
        watch.received(b"PRI * HTTP/1.1\r\n", || Duration::ZERO).unwrap();
        assert_eq!(passed(&mut watch, &frame(PING, 0, 8), Duration::ZERO), 100_000);
        assert_eq!(watch.unfinished(), None);
    }
}
