//! Serves one connection: reads requests, and answers them in their order.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Shared;
use crate::action::Action;
use crate::asking;
use crate::request::{Malformed, Request};
use crate::requests::Requests;

/// The interval of the time-out checks. A timer for each request would cost more than the request.
const TICK: Duration = Duration::from_secs(5);
/// A request must be complete after this many ticks: 25 to 30 seconds.
const REQUEST_TICKS: u32 = 6;
/// A connection may be idle for this many ticks: ten minutes. Postfix closes it after five.
const IDLE_TICKS: u32 = 120;
/// The time within which Postfix must read answers.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Before it closes a connection, the server reads for this long and up to this many bytes. Closing it earlier
/// could discard the answer.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1 << 20;
/// Answers are sent together until there are this many bytes.
const MOST_UNSENT: usize = 16 * 1024;

struct Over;

/// Serves a connection until the client closes it, sends a malformed request or is too slow, or until the
/// server ends.
pub(super) async fn serve<S>(shared: &Shared, mut stream: S, peer: Option<IpAddr>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut requests = Requests::default();
    let mut out = Vec::new();
    let mut ending = shared.ending.subscribe();
    let mut ended = pin!(ending.wait_for(|ending| *ending));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let (mut passed, mut is_ending) = (0, false);
    loop {
        // Received bytes come first, so that a complete request is still answered.
        tokio::select! {
            biased;
            read = stream.read_buf(requests.buffer()) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
            _ = ticks.tick() => {
                passed += 1;
                let most = if requests.is_partial() { REQUEST_TICKS } else { IDLE_TICKS };
                if passed >= most {
                    return;
                }
                continue;
            }
            _ = &mut ended, if !is_ending => {
                is_ending = true;
                if !requests.is_partial() {
                    return;
                }
                continue;
            }
        }
        let was_partial = requests.is_partial();
        match answer_all(shared, peer, &mut requests, &mut out, &mut stream).await {
            Ok(answered) if answered > 0 || !was_partial => passed = 0,
            Ok(_) => {}
            Err(Over) => return,
        }
        if is_ending && !requests.is_partial() {
            return;
        }
    }
}

/// Answers all complete requests. Returns their number.
async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    peer: Option<IpAddr>,
    requests: &mut Requests,
    out: &mut Vec<u8>,
    stream: &mut S,
) -> Result<usize, Over> {
    let mut answered = 0;
    while let Some(parsed) = requests.next() {
        let (action, is_over) = match parsed {
            Ok(request) => (answer(shared, peer, &request).await, false),
            Err(malformed) => (refuse(shared, peer, malformed), true),
        };
        action.write(out);
        answered += 1;
        if is_over {
            send(stream, out).await?;
            linger(stream).await;
            return Err(Over);
        }
        if out.len() >= MOST_UNSENT {
            send(stream, out).await?;
        }
    }
    send(stream, out).await?;
    Ok(answered)
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, out: &mut Vec<u8>) -> Result<(), Over> {
    if out.is_empty() {
        return Ok(());
    }
    let sent = timeout(WRITE_TIMEOUT, stream.write_all(out)).await;
    out.clear();
    if let Ok(Ok(())) = sent { Ok(()) } else { Err(Over) }
}

/// Reads and discards further bytes until the client closes, so that it receives all answers.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let _ = timeout(LINGER_TIME, async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    })
    .await;
}

/// Decides a request, unless it was allowed before and Postfix sent it again.
async fn answer(shared: &Shared, peer: Option<IpAddr>, request: &Request<'_>) -> Action {
    let settings = shared.settings.load_full();
    let policy = settings.policy_of(request);
    let hash = (!request.instance.is_empty()).then(|| {
        let Request { instance, protocol_state, recipient, sender, .. } = request;
        shared.resent.hash_of((peer, &**policy, instance, protocol_state, recipient, sender))
    });
    let now = shared.clock.now();
    if let Some(hash) = hash
        && shared.resent.contains(hash, now)
    {
        shared.meters.repeated();
        shared.meters.answered(&Action::Dunno);
        return Action::Dunno;
    }
    let action = asking::ask(shared, policy, request).await;
    if let (Some(hash), Action::Dunno) = (hash, &action) {
        shared.resent.remember(hash, now);
    }
    shared.meters.answered(&action);
    action
}

/// The action for a malformed request. It defers: the message passes no limit, and is not lost.
fn refuse(shared: &Shared, peer: Option<IpAddr>, malformed: Malformed) -> Action {
    shared.meters.malformed();
    if let Some(held_back) = shared.complaints.admit(shared.clock.now()) {
        let peer = peer.map(|peer| peer.to_string());
        tracing::warn!(component = "postfix", peer, error = %malformed, held_back, "a policy request was malformed");
    }
    Action::defer("4.3.0", "Malformed policy request")
}
