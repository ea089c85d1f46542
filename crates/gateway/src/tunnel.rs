//! A connection that switched to another protocol: bytes both ways, until both sides have ended.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::alarm::Alarm;
use crate::flow::{Flow, Waits};
use crate::h1::decode::Decoder;
use crate::h1::encode::Encoder;
use crate::h1::side::Side;

/// Passes bytes both ways until both sides have ended, one of them is gone, nothing moves for `idle`, or
/// `stop` returns true.
pub(crate) async fn run(
    client: &mut Side,
    upstream: &mut Side,
    alarm: &Alarm,
    idle: Duration,
    stop: impl Fn() -> bool,
) {
    for side in [&mut *client, &mut *upstream] {
        side.incoming = Decoder::UntilClose;
        side.outgoing = Encoder::Plain;
    }
    let (mut there, mut back) = (TunnelWay::new(), TunnelWay::new());
    let mut moved = None;
    poll_fn(|cx| {
        let ended = there.poll(client, upstream, cx) & back.poll(upstream, client, cx);
        let failed = there.failed || back.failed;
        let now = there.flow.moved + back.flow.moved;
        if ended || failed || stop() {
            return Poll::Ready(());
        }
        if moved != Some(now) {
            moved = Some(now);
            alarm.set(idle);
        }
        alarm.poll(cx)
    })
    .await;
}

struct TunnelWay {
    flow: Flow,
    closed: bool,
    failed: bool,
}

impl TunnelWay {
    fn new() -> Self {
        Self { flow: Flow::new(u64::MAX), closed: false, failed: false }
    }

    /// Moves bytes in one direction. Returns whether it has ended and the other end was told.
    fn poll(&mut self, from: &mut Side, to: &mut Side, cx: &mut Context<'_>) -> bool {
        if self.closed {
            return true;
        }
        match self.flow.drive(from, to, cx) {
            Ok(Waits::Neither) => match to.poll_close(cx) {
                Poll::Ready(closed) => (self.closed, self.failed) = (closed.is_ok(), closed.is_err()),
                Poll::Pending => {}
            },
            Ok(_) => {}
            Err(_) => self.failed = true,
        }
        self.closed
    }
}
