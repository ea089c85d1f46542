//! The store: what the engine asks becomes a script, and its reply an outcome.

mod forgetting;
mod giving;
mod holding;
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::store::{Answer, Forget, Given, HoldsOrder, HoldsReport, Spot};
use tollgate_core::{Charges, Clock, MAX_EXACT, Outcome, Store, StoreError, Timestamp, When};

use crate::name::Names;
use crate::pool::Pool;
use crate::request::{Ask, Mode, Request, Timing, doubles};
use crate::resp::{Reply, write_command};
use crate::row::{self, Adoption, width};
use crate::script::{Script, Scripts};
use crate::settings::{Settings, Topology};
use crate::tls;

/// A store on Redis or Valkey.
pub struct RedisStore {
    settings: Arc<Settings>,
    pool: Pool,
    names: Names,
    scripts: Scripts,
    /// How far the server's clock is ahead of `started`, in microseconds; 0 while that is not known.
    ahead: AtomicI64,
    started: Instant,
    /// Goes before the server's clock, where tests move time.
    clock: Option<Arc<dyn Clock>>,
}

/// The head of a script's reply: the server's time, what came of it, and the rest.
pub(crate) struct Head<'r> {
    pub(crate) now: Timestamp,
    pub(crate) status: i64,
    pub(crate) rest: &'r [Reply],
}

/// How often limits may change under our hands, or a clock jump, before we give up.
const MOST_TRIES: usize = 8;
/// How long keys outlive their use where tests move time: time that passes meanwhile is another.
const TEST_SLACK: Duration = Duration::from_secs(3_600);

const TOO_LATE: i64 = -1;
const OTHER_LIMITS: i64 = -2;
const STALE: i64 = -3;
const DAMAGED: i64 = -4;

impl RedisStore {
    /// A store on these servers. It connects by itself, now and whenever it has to; until then its
    /// answers are that it cannot be used. Fails only where the settings cannot be followed.
    pub async fn start(settings: Settings) -> Result<Self, String> {
        let settings = Arc::new(settings);
        let tls = settings.tls.as_ref().map(tls::configuration).transpose()?;
        let runtime = Handle::current();
        if matches!(settings.topology, Topology::Cluster { .. }) {
            return Err("clusters come later".into());
        }
        let pool = Pool::start(&settings, tls, None, &runtime);
        let names = Names::new(&settings.prefix, settings.tags.clone());
        let store = Self {
            settings,
            pool,
            names,
            scripts: Scripts::default(),
            ahead: AtomicI64::new(0),
            started: Instant::now(),
            clock: None,
        };
        store.wait_until_up().await;
        Ok(store)
    }

    /// The same store by another clock than the server's. For tests.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Waits until the first connection is up, or for as long as connecting may take.
    async fn wait_until_up(&self) {
        let deadline = Instant::now() + self.settings.connect_timeout;
        while self.pool.ready().is_err() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.command_timeout
    }

    /// When a script is asked. The server refuses what it gets to when nobody waits any more; twice
    /// the time-out allows for what is not known of its clock.
    fn timing(&self, deadline: Instant) -> Timing {
        if let Some(clock) = &self.clock {
            let slack = TEST_SLACK.as_millis() as u64;
            return Timing { deadline: 0, time: clock.now().as_micros(), slack };
        }
        let ahead = self.ahead.load(Ordering::Relaxed);
        let ends = deadline + self.settings.command_timeout - self.started;
        let deadline = if ahead == 0 { 0 } else { ahead + ends.as_micros() as i64 };
        Timing { deadline: u64::try_from(deadline).unwrap_or(0), time: 0, slack: 0 }
    }

    /// Runs a script and reads the head of its reply.
    async fn run(
        &self,
        script: &Script,
        keys: [&[String]; 2],
        words: &[&[u8]],
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let reply = self.pool.run(script, keys, words, deadline).await?;
        if let Reply::Error(error) = &reply {
            return Err(self.refused(error, keys[0]));
        }
        Ok(reply)
    }

    /// Sends a plain command.
    async fn command(&self, words: &[&[u8]]) -> Result<Reply, StoreError> {
        let mut command = Vec::new();
        write_command(&mut command, words);
        let patience = self.settings.command_timeout.max(Duration::from_secs(1));
        let reply = self.pool.call(&command, Instant::now() + patience).await?;
        if let Reply::Error(error) = &reply {
            return Err(self.refused(error, &[]));
        }
        Ok(reply)
    }

    /// What an error of the server means.
    fn refused(&self, error: &str, keys: &[String]) -> StoreError {
        let error: String = error.chars().take(200).collect();
        if error.contains("WRONGTYPE") {
            return StoreError::Damaged { key: keys.first().cloned().unwrap_or_default(), reason: error };
        }
        if error.contains("READONLY") || error.starts_with("NOAUTH") {
            self.pool.hang_up();
        }
        StoreError::Unavailable { reason: error }
    }

    /// Takes the reply of a script apart, and learns the server's time from it.
    fn head<'r>(&self, reply: &'r Reply) -> Result<Head<'r>, StoreError> {
        let nonsense = || StoreError::Unavailable { reason: "the server's reply makes no sense".into() };
        let [now, status, rest @ ..] = reply.list().ok_or_else(nonsense)? else { return Err(nonsense()) };
        let micros = now.number().and_then(|now| u64::try_from(now).ok()).filter(|now| *now <= MAX_EXACT);
        let (micros, status) = micros.zip(status.number()).ok_or_else(nonsense)?;
        let ahead = micros as i64 - self.started.elapsed().as_micros() as i64;
        self.ahead.store(ahead, Ordering::Relaxed);
        Ok(Head { now: Timestamp::from_micros(micros), status, rest })
    }

    /// What was worked out for the charges that a reply says are kept under other limits.
    fn adopt(
        &self,
        request: &Request<'_, '_>,
        head: &Head<'_>,
    ) -> Result<Vec<(usize, Vec<u8>, Adoption)>, StoreError> {
        let mut adoptions = Vec::new();
        for pair in head.rest.chunks(2) {
            let [index, kept] = pair else { break };
            let index = index.number().map_or(usize::MAX, |index| index as usize - 1);
            let Some((charge, kept)) = request.chosen().nth(index).zip(kept.bytes()) else { break };
            let adoption = row::adopt(charge.plan, kept, head.now).ok_or_else(|| StoreError::Damaged {
                key: request.keys[index].clone(),
                reason: "it is not a counter".into(),
            })?;
            adoptions.push((index, kept.to_vec(), adoption));
        }
        Ok(adoptions)
    }

    /// Runs a script over charges until nothing about it has to be mended: limits that changed, a
    /// clock that jumped.
    async fn settle(
        &self,
        script: &Script,
        request: &mut Request<'_, '_>,
        ask: Ask,
        more: &[&[u8]],
    ) -> Result<Reply, StoreError> {
        let deadline = self.deadline();
        let plain_keys = request.keys.len();
        let mut adoptions = Vec::new();
        for _ in 0..MOST_TRIES {
            let body = request.body(ask, self.timing(deadline));
            let mut words: Vec<&[u8]> = vec![&body, &adoptions];
            words.extend_from_slice(more);
            if more.is_empty() && adoptions.is_empty() {
                words.pop();
            }
            let reply = self.run(script, [&request.keys, &request.last], &words, deadline).await?;
            let head = self.head(&reply)?;
            match head.status {
                TOO_LATE => {}
                OTHER_LIMITS => {
                    let found = self.adopt(request, &head)?;
                    request.keys.truncate(plain_keys);
                    adoptions = request.adoptions(&found);
                }
                STALE => return Err(StoreError::Stale { now: head.now }),
                DAMAGED => return Err(damaged(request, &head)),
                _ => return Ok(reply),
            }
        }
        Err(StoreError::Unavailable { reason: "its clock or its limits keep changing".into() })
    }

    /// Takes from one bucket that decides alone, if nothing about it has to be mended.
    async fn settle_alone(&self, request: &Request<'_, '_>) -> Result<Option<Reply>, StoreError> {
        let Some((heading, bucket)) = request.lone_bucket() else { return Ok(None) };
        let deadline = self.deadline();
        let timing = self.timing(deadline);
        let mut numbers = doubles(&[request.charges.cost, timing.deadline, timing.time, timing.slack]);
        numbers.extend_from_slice(&bucket);
        let words: [&[u8]; 2] = [heading.as_bytes(), &numbers];
        let reply = self.run(&self.scripts.lone, [&request.keys, &[]], &words, deadline).await?;
        let head = self.head(&reply)?;
        match head.status {
            DAMAGED => Err(damaged(request, &head)),
            status if status < 0 => Ok(None),
            _ => Ok(Some(reply)),
        }
    }

    async fn decide(
        &self,
        charges: &Charges<'_>,
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        let mut request = Request::new(charges, (0..charges.len()).collect(), &self.names);
        let alone = if mode == Mode::Take { self.settle_alone(&request).await? } else { None };
        let reply = match alone {
            Some(reply) => reply,
            None => {
                let script = if request.has_logs() { &self.scripts.full } else { &self.scripts.plain };
                self.settle(script, &mut request, Ask::to(mode), &[]).await?
            }
        };
        let head = self.head(&reply)?;
        read_outcome(&request, &head, outcome)
    }
}

fn damaged(request: &Request<'_, '_>, head: &Head<'_>) -> StoreError {
    let index = head.rest.first().and_then(Reply::number).map_or(0, |index| index.max(1) as usize - 1);
    let key = request.keys.get(index).cloned().unwrap_or_default();
    let what = head.rest.get(1).and_then(Reply::text).unwrap_or("garbage");
    StoreError::Damaged { key, reason: format!("it holds {what}, not a counter") }
}

/// Reads what came of the charges: flags, what is kept for each now, and how long each log asks to
/// wait.
fn read_outcome(request: &Request<'_, '_>, head: &Head<'_>, outcome: &mut Outcome) -> Result<(), StoreError> {
    let nonsense = || StoreError::Unavailable { reason: "the server's reply makes no sense".into() };
    let draft = request.charges.draft(head.now).map_err(|stale| StoreError::Stale { now: stale.now })?;
    let flags = u32::try_from(head.status).map_err(|_| nonsense())?;
    outcome.now = head.now;
    outcome.allowed = flags & 1 != 0;
    outcome.repeated = flags & 2 != 0;
    outcome.taken = flags >> 2;
    outcome.readings.clear();
    let kept = head.rest.get(..request.chosen.len()).ok_or_else(nonsense)?;
    let mut waits = head.rest[request.chosen.len()..].iter();
    for (index, (charge, kept)) in request.chosen().zip(kept).enumerate() {
        let taken = outcome.taken & (1 << index) != 0;
        let row = kept.bytes().and_then(|kept| row::read(charge.plan, kept)).ok_or_else(nonsense)?;
        let mut start = 0;
        for limit in charge.plan.limits() {
            let numbers = &row[start..start + width(limit)];
            start += numbers.len();
            let told = match width(limit) {
                3.. => Some(waits.next().and_then(Reply::number).map(when).ok_or_else(nonsense)?),
                _ => None,
            };
            outcome.readings.push(row::reading(limit, numbers, told, taken, &draft));
        }
    }
    Ok(())
}

/// How long a script asks to wait.
fn when(told: i64) -> When {
    match told {
        0 => When::Now,
        -1 => When::OnRelease,
        1.. => When::After(tollgate_core::Span::from_micros(told as u64)),
        _ => When::Never,
    }
}

impl Store for RedisStore {
    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.decide(charges, Mode::Take, outcome)))
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.decide(charges, Mode::Peek, outcome)))
    }

    fn give<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Given> {
        Answer::Later(Box::pin(self.give_back(charges, taken_at)))
    }

    fn holds<'a>(&'a self, spot: &'a Spot<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        Answer::Later(Box::pin(self.obey(spot, order)))
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.forget_now(what)))
    }

    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.take_back(charges)))
    }

    fn probe(&self) -> Answer<'_, ()> {
        Answer::Later(Box::pin(async {
            let mut command = Vec::new();
            write_command(&mut command, &[b"PING"]);
            match self.pool.call(&command, self.deadline()).await? {
                Reply::Error(error) => Err(self.refused(&error, &[])),
                _ => Ok(()),
            }
        }))
    }
}
