//! Logins: a guard decides whether an attempt is made at all, and gets its outcome.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::{Attempt, Decision, Mistake, Origin, Span};
use tollgate_engine::admit::{Holds, Login as GuardedLogin};
use tollgate_engine::guard::{Advice, Ending};
use tollgate_engine::{Admissions, Admit, NotAdmitted, Taken, Terms};

use super::Shared;
use super::settings::Settings;
use super::wire::Wire;
use crate::session::{Identity, Login, LoginOutcome};

/// A session waits for a delay of a ladder of at most this length. For a longer one, the client gets a
/// temporary error.
const MOST_DELAY: Span = Span::from_secs(10);

/// The guard's decision about an attempt: `Err` if it is refused.
type Weighed = Result<(), LoginOutcome>;

/// Checks a login, with the guard.
pub(super) async fn log_in(
    shared: &Shared,
    settings: &Settings,
    client: IpAddr,
    login: Login,
    wire: &mut Wire,
) -> LoginOutcome {
    let Ok(_place) = shared.logins.try_acquire() else { return LoginOutcome::Unavailable };
    let mut taken = match &settings.guard {
        None => Taken::default(),
        Some(guard) => {
            let begun = begin(&shared.doors.admissions, guard, client, &login.user);
            match while_connected(wire, begun).await {
                Ok(taken) => taken,
                Err(outcome) => return outcome,
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
    // If the store fails, the engine reports the end again.
    let _ = taken.end_login(ending).await;
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

/// Checks a password on a thread for blocking work, because hashing is slow on purpose.
async fn verify(shared: &Shared, settings: &Settings, login: Login) -> Result<Option<Identity>, Unverified> {
    let Ok(_turn) = shared.hashing.acquire().await else { return Err(Unverified) };
    let users = Arc::clone(&settings.users);
    let checked = tokio::task::spawn_blocking(move || users.identify(&login.user, &login.password)).await;
    checked.map_err(|_| Unverified)
}

/// Begins an attempt, after the delay that the guard's ladders demand. Returns its charges.
async fn begin(
    admissions: &Admissions,
    guard: &str,
    client: IpAddr,
    user: &str,
) -> Result<Taken, LoginOutcome> {
    let unusable = |fault: &dyn Display| {
        tracing::error!(component = "relay", guard, %fault, "logins are refused: the guard cannot be used");
        LoginOutcome::Unavailable
    };
    let asked = match ask(admissions, guard, &client.to_string(), user) {
        Ok(Some(asked)) => asked,
        Ok(None) => return Ok(Taken::default()),
        Err(mistake) => return Err(unusable(&mistake)),
    };
    match asked.await {
        Ok(admission) => admission.seen.map(|()| admission.taken),
        Err(NotAdmitted::Fault(fault)) => Err(unusable(&fault)),
        Err(NotAdmitted::Ended | NotAdmitted::TooLate { .. } | NotAdmitted::Full { .. }) => {
            Err(LoginOutcome::Unavailable)
        }
    }
}

/// Begins an attempt, unless its client disconnects. Such a client gets no answer.
async fn while_connected(
    wire: &mut Wire,
    begun: impl Future<Output = Result<Taken, LoginOutcome>>,
) -> Result<Taken, LoginOutcome> {
    tokio::select! {
        // An answer that is ready counts, even if the client has closed its half of the connection.
        biased;
        begun = begun => begun,
        () = wire.hung_up() => Err(LoginOutcome::Unavailable),
    }
}

/// Asks the guard about an attempt; `None` while limits are switched off.
fn ask(
    admissions: &Admissions,
    guard: &str,
    address: &str,
    user: &str,
) -> Result<Option<Admit<Weighed>>, Mistake> {
    let pinned = admissions.pin();
    if !pinned.policies.enabled {
        return Ok(None);
    }
    let guard = pinned.policies.find_guard(guard)?;
    let policy = pinned.policies.find(&guard.policy)?;
    let value = |field: &str| match field {
        "ip" | "client_ip" => Some(address),
        "user" | "account" => Some(user),
        _ => None,
    };
    let fields: Vec<(&str, &str)> =
        policy.fields().filter_map(|field| Some((field, value(field)?))).collect();
    let attempt = Attempt { policy: &policy.name, fields: &fields, cost: 1, id: None };
    let login = Some(GuardedLogin { guard, max_delay: MOST_DELAY });
    let terms = Terms { login, holds: Holds::ByTaken, ..Terms::default() };
    Ok(Some(pinned.admit(&attempt, terms, |_, decision| weigh(decision))))
}

fn weigh(decision: &Decision<'_>) -> Weighed {
    if decision.allowed() {
        return Ok(());
    }
    if matches!(decision.origin, Origin::Outage(_)) {
        return Err(LoginOutcome::Unavailable);
    }
    let locked = Advice::of(decision).locked_until.map(|until| until.since(decision.outcome.now));
    let seconds = locked.or(decision.wait()).map(Span::as_secs_ceil);
    Err(LoginOutcome::Locked { seconds })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use tollgate_core::{Clock, Guard, Policies, Policy, Reason, Records, Rule, Store, Timestamp};
    use tollgate_engine::{Engine, Leases, Parts};
    use tollgate_store::MemoryStore;

    use super::*;

    /// A clock whose time passes when tasks sleep.
    struct SleepingClock(Instant);

    impl Clock for SleepingClock {
        fn now(&self) -> Timestamp {
            let elapsed = u64::try_from(self.0.elapsed().as_micros()).unwrap();
            Timestamp::from_micros(1_794_774_600_000_000 + elapsed)
        }
    }

    async fn admissions(ladder: &str) -> Admissions {
        admissions_with(true, &[ladder]).await
    }

    async fn admissions_with(enabled: bool, limits: &[&str]) -> Admissions {
        let clock = Arc::new(SleepingClock(Instant::now())) as Arc<dyn Clock>;
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock), 1_000));
        let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let rule = Arc::new(Rule::new("account", &["user"], limits).unwrap());
        let policy = Policy::new("login".into(), vec![Arc::clone(&rule)], false);
        let policies = Policies::new(enabled, vec![rule], vec![policy]);
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: None,
        };
        let policies = policies.with_guards(vec![Guard::new("login", "login")]);
        let engine = Arc::new(Engine::start(policies, parts).await.unwrap());
        let leases = Arc::new(Leases::new(Arc::clone(&engine), clock));
        Admissions { engine, pacer: None, leases }
    }

    #[tokio::test(start_paused = true)]
    async fn short_delays_are_waited_out_and_long_ones_are_told() {
        let admissions = admissions("ladder 1 +2s then 2 +60s then 3 lock 15m").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        let attempt = async || {
            let start = Instant::now();
            let outcome = match begin(&admissions, "login", client, "app").await {
                Ok(mut taken) => {
                    taken.end_login(Ending::Failure).await.unwrap();
                    None
                }
                Err(outcome) => Some(outcome),
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
    async fn a_login_that_waits_is_refused_when_the_server_ends() {
        let admissions = admissions("ladder 1 +8s").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        drop(begin(&admissions, "login", client, "app").await.unwrap());
        let start = Instant::now();
        let end = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            admissions.end_waits();
        };
        let (begun, ()) = tokio::join!(begin(&admissions, "login", client, "app"), end);
        assert_eq!(begun.unwrap_err(), LoginOutcome::Unavailable);
        assert_eq!(start.elapsed().as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_that_waits_ends_when_its_client_disconnects() {
        let admissions = admissions("ladder 1 +8s").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        drop(begin(&admissions, "login", client, "app").await.unwrap());
        let (ours, theirs) = tokio::io::duplex(64);
        let mut wire = Wire::new(Box::new(theirs), Duration::from_secs(1));
        let start = Instant::now();
        let hang_up = async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(ours);
        };
        let waiting = while_connected(&mut wire, begin(&admissions, "login", client, "app"));
        let (begun, ()) = tokio::join!(waiting, hang_up);
        assert_eq!(begun.unwrap_err(), LoginOutcome::Unavailable);
        assert_eq!(start.elapsed().as_secs(), 1);
    }

    #[tokio::test]
    async fn an_attempt_that_ends_without_a_report_releases_its_hold() {
        let admissions = admissions_with(true, &["ladder 9 +8s", "1 at once for 1h"]).await;
        let client = IpAddr::from([192, 0, 2, 1]);
        let taken = begin(&admissions, "login", client, "app").await.unwrap();
        assert!(begin(&admissions, "login", client, "app").await.is_err(), "it is held");
        drop(taken);
        admissions.leases.tend().await;
        assert!(begin(&admissions, "login", client, "app").await.is_ok());
    }

    #[tokio::test]
    async fn while_limits_are_switched_off_no_guard_is_asked() {
        let admissions = admissions_with(false, &["ladder 1 lock 1h"]).await;
        let client = IpAddr::from([192, 0, 2, 1]);
        for guard in ["login", "login", "other"] {
            assert!(begin(&admissions, guard, client, "app").await.unwrap().is_settled());
        }
    }

    #[test]
    fn a_login_during_an_outage_is_not_called_a_failed_one() {
        let mut decision = Decision::blank();
        decision.refuse(0, Reason::Open, Timestamp::ZERO);
        assert_eq!(weigh(&decision), Err(LoginOutcome::Unavailable));
    }

    #[tokio::test]
    async fn a_client_that_has_closed_its_half_of_the_connection_gets_a_ready_answer() {
        let admissions = admissions("ladder 1 +8s").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        for user in (0..20).map(|user| user.to_string()) {
            let (_, theirs) = tokio::io::duplex(64);
            let mut wire = Wire::new(Box::new(theirs), Duration::from_secs(1));
            let begun = begin(&admissions, "login", client, &user);
            assert!(while_connected(&mut wire, begun).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_guard_that_is_gone_lets_nobody_in() {
        let admissions = admissions("ladder 1 +8s").await;
        let client = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(begin(&admissions, "other", client, "app").await.unwrap_err(), LoginOutcome::Unavailable);
    }
}
