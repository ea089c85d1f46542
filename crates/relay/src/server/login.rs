//! Logins: a guard decides whether an attempt is made at all, and learns how it ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use tokio::sync::watch;
use tollgate_core::Span;
use tollgate_engine::guard::Ending;
use tollgate_engine::{Engine, Snapshot};

use super::Shared;
use super::settings::Settings;
use super::wire::Wire;
use crate::session::{Identity, Login, LoginOutcome};

/// The longest delay of a ladder that a session waits out. Beyond that the client gets a temporary error.
const MOST_DELAY: Span = Span::from_secs(10);

/// Lets a login wait for as long as its client and the server do.
pub(super) struct Delay<'c> {
    pub(super) wire: Option<&'c mut Wire>,
    pub(super) ending: &'c mut watch::Receiver<bool>,
}

impl Delay<'_> {
    /// Waits so long. Answers `false` at once if the server ends or the client has gone.
    async fn wait(&mut self, time: Duration) -> bool {
        let gone = async {
            match &mut self.wire {
                Some(wire) => wire.hung_up().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            _ = self.ending.wait_for(|ending| *ending) => false,
            () = gone => false,
        }
    }
}

/// Whether the guard lets an attempt be made.
enum Guarded {
    /// It does. The ticket ends the attempt; there is none if nothing was counted.
    Begun(Option<String>),
    Refused(LoginOutcome),
}

/// Finds out who logs in.
pub(super) async fn log_in(
    shared: &Shared,
    settings: &Settings,
    client: IpAddr,
    login: Login,
    mut delay: Delay<'_>,
) -> LoginOutcome {
    let Ok(_place) = shared.logins.try_acquire() else { return LoginOutcome::Unavailable };
    let ticket = match &settings.guard {
        None => None,
        Some(guard) => {
            match begin(&shared.doors.admissions.engine, guard, client, &login.user, &mut delay).await {
                Guarded::Begun(ticket) => ticket,
                Guarded::Refused(outcome) => return outcome,
            }
        }
    };
    let user = login.user.clone();
    let identity = verify(shared, settings, login).await;
    let ending = match &identity {
        Ok(Some(_)) => Ending::Success,
        Ok(None) => Ending::Failure,
        Err(Unverified) => Ending::Abandoned,
    };
    if let Some(ticket) = ticket {
        finish(&shared.doors.admissions.engine, &ticket, ending).await;
    }
    match identity {
        Ok(Some(identity)) => LoginOutcome::Identified(identity),
        Ok(None) => {
            tracing::info!(component = "relay", %client, user, "login failed");
            LoginOutcome::Wrong
        }
        Err(Unverified) => LoginOutcome::Unavailable,
    }
}

/// The password could not be checked.
struct Unverified;

/// Checks a password on a thread for blocking work: hashing takes a while on purpose.
async fn verify(shared: &Shared, settings: &Settings, login: Login) -> Result<Option<Identity>, Unverified> {
    let Ok(_turn) = shared.hashing.acquire().await else { return Err(Unverified) };
    let users = Arc::clone(&settings.users);
    let checked = tokio::task::spawn_blocking(move || users.identify(&login.user, &login.password)).await;
    checked.map_err(|_| Unverified)
}

/// Begins an attempt, if need be after the delay that the guard's ladders ask for.
async fn begin(engine: &Engine, guard: &str, client: IpAddr, user: &str, delay: &mut Delay<'_>) -> Guarded {
    let address = client.to_string();
    let mut left = MOST_DELAY;
    loop {
        let pinned = Guard::into_inner(engine.pin());
        if !pinned.policies.enabled {
            return Guarded::Begun(None);
        }
        let wait = match try_to_begin(engine, &pinned, guard, &address, user).await {
            Ok(Attempted::Begun(ticket)) => return Guarded::Begun(ticket),
            Ok(Attempted::Delayed(wait)) if wait <= left => wait,
            Ok(Attempted::Delayed(wait)) => {
                return Guarded::Refused(LoginOutcome::Locked { seconds: Some(wait.as_secs_ceil()) });
            }
            Ok(Attempted::Locked(seconds)) => return Guarded::Refused(LoginOutcome::Locked { seconds }),
            Err(fault) => {
                tracing::error!(
                    component = "relay",
                    guard,
                    fault,
                    "logins are refused: the guard cannot be used"
                );
                return Guarded::Refused(LoginOutcome::Unavailable);
            }
        };
        drop(pinned);
        left = Span::from_micros(left.as_micros() - wait.as_micros());
        // Never zero, so that this loop cannot spin.
        if !delay.wait(Duration::from_micros(wait.as_micros().max(1_000))).await {
            return Guarded::Refused(LoginOutcome::Locked { seconds: Some(wait.as_secs_ceil()) });
        }
    }
}

enum Attempted {
    Begun(Option<String>),
    Delayed(Span),
    Locked(Option<u64>),
}

async fn try_to_begin(
    engine: &Engine,
    pinned: &Snapshot,
    guard: &str,
    address: &str,
    user: &str,
) -> Result<Attempted, String> {
    let found = pinned.policies.find_guard(guard).map_err(|mistake| mistake.to_string())?;
    let policy = pinned.policies.find(&found.policy).map_err(|mistake| mistake.to_string())?;
    let value = |field: &str| match field {
        "ip" | "client_ip" => Some(address),
        "user" | "account" => Some(user),
        _ => None,
    };
    let fields: Vec<(&str, &str)> =
        policy.fields().filter_map(|field| Some((field, value(field)?))).collect();
    let mut begun = engine.begin_guarded(pinned, found, &fields).await.map_err(|fault| fault.to_string())?;
    if begun.allowed() {
        return Ok(Attempted::Begun(begun.ticket.take()));
    }
    let now = begun.decision.outcome.now;
    let advice = begun.advice();
    Ok(match (advice.locked_until, begun.decision.wait()) {
        (Some(until), _) => Attempted::Locked(Some(until.since(now).as_secs_ceil())),
        (None, Some(wait)) => Attempted::Delayed(wait),
        (None, None) => Attempted::Locked(None),
    })
}

/// Reports to the guard how an attempt ended. If the store fails, the engine reports it again. An attempt without a
/// report stays a failure.
async fn finish(engine: &Engine, ticket: &str, ending: Ending) {
    let pinned = Guard::into_inner(engine.pin());
    let _ = engine.guards.finish(&pinned, ticket, ending).await;
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use tollgate_core::{Clock, Guard, Policies, Policy, Records, Rule, Store, Timestamp};
    use tollgate_engine::Parts;
    use tollgate_store::MemoryStore;

    use super::*;

    /// Time that passes when tasks sleep.
    struct SleepingClock(Instant);

    impl Clock for SleepingClock {
        fn now(&self) -> Timestamp {
            let elapsed = u64::try_from(self.0.elapsed().as_micros()).unwrap();
            Timestamp::from_micros(1_794_774_600_000_000 + elapsed)
        }
    }

    async fn engine(ladder: &str) -> Engine {
        let clock = Arc::new(SleepingClock(Instant::now())) as Arc<dyn Clock>;
        let store = Arc::new(MemoryStore::new(clock, 1_000));
        let rule = Arc::new(Rule::new("account", &["user"], vec![ladder.parse().unwrap()]).unwrap());
        let policy = Policy::new("login".into(), vec![Arc::clone(&rule)], false);
        let policies = Policies::new(true, vec![rule], vec![policy]);
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: None,
        };
        Engine::start(policies.with_guards(vec![Guard::new("login", "login")]), parts).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn short_delays_are_waited_out_and_long_ones_are_told() {
        let engine = engine("ladder 1 +2s then 2 +60s then 3 lock 15m").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        let end = watch::Sender::new(false);
        let attempt = async || {
            let start = Instant::now();
            let mut ending = end.subscribe();
            let mut delay = Delay { wire: None, ending: &mut ending };
            let guarded = begin(&engine, "login", client, "app", &mut delay).await;
            let outcome = match guarded {
                Guarded::Begun(ticket) => {
                    finish(&engine, &ticket.unwrap(), Ending::Failure).await;
                    None
                }
                Guarded::Refused(outcome) => Some(outcome),
            };
            (outcome, start.elapsed().as_secs())
        };
        assert_eq!(attempt().await, (None, 0));
        assert_eq!(attempt().await, (None, 2), "it waits in the session");
        assert_eq!(
            attempt().await,
            (Some(LoginOutcome::Locked { seconds: Some(60) }), 0),
            "too long to wait"
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(attempt().await, (None, 0));
        assert_eq!(attempt().await, (Some(LoginOutcome::Locked { seconds: Some(900) }), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_login_ends_when_the_server_ends_or_its_client_has_gone() {
        let engine = engine("ladder 1 +8s").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        let end = watch::Sender::new(false);
        let mut ending = end.subscribe();
        let mut delay = Delay { wire: None, ending: &mut ending };
        let Guarded::Begun(ticket) = begin(&engine, "login", client, "app", &mut delay).await else {
            panic!("the first one is not delayed")
        };
        finish(&engine, &ticket.unwrap(), Ending::Failure).await;
        let (ours, theirs) = tokio::io::duplex(64);
        let mut wire = Wire::new(Box::new(theirs), Duration::from_secs(1));
        let start = Instant::now();
        let hang_up = async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(ours);
        };
        let mut delay = Delay { wire: Some(&mut wire), ending: &mut ending };
        let (guarded, ()) = tokio::join!(begin(&engine, "login", client, "app", &mut delay), hang_up);
        let told = |guarded| match guarded {
            Guarded::Refused(outcome) => outcome,
            Guarded::Begun(_) => panic!("it is delayed"),
        };
        assert_eq!(told(guarded), LoginOutcome::Locked { seconds: Some(8) });
        assert_eq!(start.elapsed().as_secs(), 1);
        let drain = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            end.send_replace(true);
        };
        let mut delay = Delay { wire: None, ending: &mut ending };
        let (guarded, ()) = tokio::join!(begin(&engine, "login", client, "app", &mut delay), drain);
        assert_eq!(told(guarded), LoginOutcome::Locked { seconds: Some(7) });
        assert_eq!(start.elapsed().as_secs(), 3);
    }
}
