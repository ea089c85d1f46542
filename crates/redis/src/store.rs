//! The store: turns calls of the engine into scripts, and replies into outcomes.

mod deciding;
mod forgetting;
mod holding;
mod probing;
mod records;
mod refunding;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, HoldsReport, Impairment, Refunded};
use tollgate_core::{Charges, Clock, MAX_EXACT, Outcome, Plan, Store, StoreError, Timestamp};

use crate::dial::MOST_SAID;
use crate::fleet::Fleet;
use crate::name::Names;
use crate::request::{Mode, Timing};
use crate::resp::Reply;
use crate::script::{Script, Scripts};
use crate::settings::{Settings, Tls};

/// A store on Redis or Valkey.
pub struct RedisStore {
    settings: Arc<Settings>,
    fleet: Fleet,
    names: Names,
    scripts: Scripts,
    /// Whether the records of the first layout were migrated.
    old_moved: AtomicBool,
    /// Replaces the server's clock in tests.
    clock: Option<Arc<dyn Clock>>,
}

/// The head of a script's reply: the server's time, the status, and the rest.
pub(crate) struct Head<'r> {
    pub(crate) now: Timestamp,
    pub(crate) status: i64,
    pub(crate) rest: &'r [Reply],
}

/// In tests with a moved clock, keys are kept longer by this time, because real time passes differently.
const TEST_SLACK: Duration = Duration::from_secs(3_600);

impl RedisStore {
    /// A store on these servers. It connects in the background and reconnects when necessary; until then its
    /// calls fail. It fails here only if the settings are invalid.
    pub async fn start(settings: Settings) -> Result<Self, String> {
        let settings = Arc::new(settings);
        let tls = settings.tls.as_ref().map(Tls::configuration).transpose()?;
        let fleet = Fleet::start(&settings, tls, &Handle::current());
        let names = Names::new(&settings);
        let store = Self {
            settings,
            fleet,
            names,
            scripts: Scripts::default(),
            old_moved: AtomicBool::new(false),
            clock: None,
        };
        store.fleet.wait_until_up(Instant::now() + store.settings.connect_timeout).await;
        Ok(store)
    }

    /// Uses another clock than the server's. For tests.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Reads the secret for the hashes of secret keys, if it is needed and not known yet.
    pub(crate) async fn know_secret(&self, mut plans: impl Iterator<Item = &Plan>) -> Result<(), StoreError> {
        if plans.any(Plan::is_secret) && !self.names.key_hash.is_ready() {
            Box::pin(self.read_secret(self.deadline())).await?;
        }
        Ok(())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.command_timeout
    }

    /// The times of a call at a key. The server refuses a call that it reaches after the deadline. The
    /// deadline is twice the time-out, to allow for the error of the clock offset.
    fn timing(&self, key: &str, deadline: Instant) -> Timing {
        if let Some(clock) = &self.clock {
            let slack = TEST_SLACK.as_millis() as u64;
            return Timing { deadline: 0, time: clock.now().as_micros(), slack };
        }
        let ends = deadline + self.settings.command_timeout;
        let deadline = self.fleet.offset(key).map_or(0, |offset| offset.there(ends));
        Timing { deadline, time: 0, slack: 0 }
    }

    /// Runs a script, and learns the server's time from its reply.
    async fn run(
        &self,
        script: &Script,
        keys: [&[String]; 2],
        words: &[&[u8]],
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let reply = self.fleet.run(script, keys, words, deadline).await?;
        if let Reply::Error(error) = &reply {
            return Err(self.refused(error, keys[0]));
        }
        let time = reply.list().and_then(|parts| parts.first()?.number());
        let time = time.filter(|time| (0..=MAX_EXACT as i64).contains(time));
        if let (Some(time), Some(key)) = (time, keys[0].first())
            && let Some(offset) = self.fleet.offset(key)
        {
            offset.learn(time);
        }
        Ok(reply)
    }

    /// Sends a command to the server of a key.
    async fn command(&self, key: &str, words: &[&[u8]]) -> Result<Reply, StoreError> {
        self.command_until(key, words, self.background_deadline()).await
    }

    /// As [`RedisStore::command`], with a deadline.
    async fn command_until(
        &self,
        key: &str,
        words: &[&[u8]],
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let reply = self.fleet.call(key, words, deadline).await?;
        if let Reply::Error(error) = &reply {
            return Err(self.refused(error, &[key.to_owned()]));
        }
        Ok(reply)
    }

    /// The time of the server with the records.
    async fn ask_time(&self) -> Result<Timestamp, StoreError> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let reply = self.command_until(&self.names.records(), &[b"TIME"], self.deadline()).await?;
        let [seconds, micros] = reply.list().unwrap_or_default() else { return Err(nonsense()) };
        let number = |part: &Reply| part.text().and_then(|text| text.parse::<u64>().ok());
        let (seconds, micros) = number(seconds).zip(number(micros)).ok_or_else(nonsense)?;
        let time = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
        time.filter(|time| *time <= MAX_EXACT).map(Timestamp::from_micros).ok_or_else(nonsense)
    }

    /// The deadline for calls that no decision waits for.
    fn background_deadline(&self) -> Instant {
        Instant::now() + self.settings.command_timeout.max(Duration::from_secs(1))
    }

    /// Converts an error from the server.
    fn refused(&self, error: &str, keys: &[String]) -> StoreError {
        let error: String = error.chars().take(MOST_SAID).collect();
        let mut words = error.split(' ');
        let damaged = match words.next() {
            Some("WRONGTYPE") => Some(1),
            Some("DAMAGED") => words.next().and_then(|index| index.parse::<usize>().ok()),
            _ => None,
        };
        if let Some(key) = damaged.and_then(|index| keys.get(index.checked_sub(1)?)) {
            let reason = "it holds something else than a counter".into();
            return StoreError::Damaged { key: key.clone(), reason };
        }
        if error.contains("READONLY") || error.starts_with("NOAUTH") {
            self.fleet.distrust();
        }
        meaning(error)
    }
}

/// Splits the reply of a script.
fn head(reply: &Reply) -> Result<Head<'_>, StoreError> {
    let [now, status, rest @ ..] = reply.list().ok_or_else(nonsense)? else { return Err(nonsense()) };
    let micros = now.number().and_then(|now| u64::try_from(now).ok()).filter(|now| *now <= MAX_EXACT);
    let (micros, status) = micros.zip(status.number()).ok_or_else(nonsense)?;
    Ok(Head { now: Timestamp::from_micros(micros), status, rest })
}

/// Converts an error that is not about one key: it concerns one call or the whole server.
fn meaning(error: String) -> StoreError {
    if let Some(rest) = error.strip_prefix("FORBIDDEN ") {
        let command = rest.split(' ').next().unwrap_or_default();
        return StoreError::Forbidden { reason: format!("this user may not run {command}") };
    }
    let in_script = error.contains("ACL failure in script") || error.contains("can't run this command");
    // Without these commands nothing runs at all.
    let is_script = ["'eval' command", "'evalsha' command"].iter().any(|words| error.contains(words));
    let is_command = error.starts_with("NOPERM") && error.contains("' command") && !is_script;
    if error.starts_with("OOM") {
        StoreError::OutOfMemory { reason: error }
    } else if in_script || is_command {
        StoreError::Forbidden { reason: error }
    } else if error.starts_with("CLUSTERDOWN Hash slot not served") {
        StoreError::PartUnavailable { reason: error }
    } else {
        StoreError::Refused { reason: error }
    }
}

/// The limits of the charges.
fn plans<'c>(charges: &'c Charges<'_>) -> impl Iterator<Item = &'c Plan> {
    charges.iter().map(|charge| &**charge.plan)
}

fn nonsense() -> StoreError {
    StoreError::Unavailable { reason: "the server's reply makes no sense".into() }
}

impl Store for RedisStore {
    fn now(&self) -> Answer<'_, Timestamp> {
        Answer::Later(Box::pin(self.ask_time()))
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.decide(charges, Mode::Take, outcome)))
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.decide(charges, Mode::Peek, outcome)))
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        Answer::Later(Box::pin(self.refund_all(charges, taken_at)))
    }

    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        Answer::Later(Box::pin(self.obey(counter, order)))
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.forget_now(what)))
    }

    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.take_back(charges)))
    }

    fn probe(&self) -> Answer<'_, Vec<Impairment>> {
        Answer::Later(Box::pin(self.ping()))
    }
}
