//! The reason why one item waits, and the end of a lane's rest at an operator's request.

use std::sync::Arc;

use tollgate_core::Timestamp;

use super::Lanes;
use super::flights::Flight;
use super::lane::{Cause, Sleep};
use crate::queue::ItemKey;

/// The wait of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The reason of the wait.
    pub cause: WaitCause,
    /// The end of the wait; `None` if it is not known.
    pub until: Option<Timestamp>,
    /// The rule, the server's reply, or the pause.
    pub reason: Option<String>,
    /// The account that it waits for, if the wait concerns one.
    pub account: Option<Arc<str>>,
    /// The sleep of its lane, even if the item waits longer for another reason.
    pub sleep: Option<Sleep>,
}

/// The reason why an item is not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// It is being sent.
    Sending,
    /// An operator paused it.
    Pause,
    /// A limit.
    Limit,
    /// Its server asked to slow down.
    Throttle,
    /// No account can be used.
    Account,
    /// The server has as many connections as it may have.
    Connection,
    /// The relay's own store or disk cannot be used.
    Outage,
    /// Its next attempt is due later.
    Retry,
    /// The item is due and waits for its turn.
    Turn,
}

impl WaitCause {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Pause => "pause",
            Self::Limit => "limit",
            Self::Throttle => "throttle",
            Self::Account => "account",
            Self::Connection => "connection",
            Self::Outage => "outage",
            Self::Retry => "retry",
            Self::Turn => "turn",
        }
    }
}

impl From<Cause> for WaitCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Limit => Self::Limit,
            Cause::Throttled => Self::Throttle,
            Cause::Paused => Self::Account,
            Cause::Busy => Self::Connection,
            Cause::Outage => Self::Outage,
        }
    }
}

impl Wait {
    /// Whether something keeps the item that trying it again does not end.
    pub fn keeps(&self) -> bool {
        !matches!(self.cause, WaitCause::Sending | WaitCause::Turn | WaitCause::Retry)
    }
}

impl Lanes {
    /// The wait of an item; `None` if it does not wait here.
    pub fn wait_of(&self, item: ItemKey, now: Timestamp) -> Option<Wait> {
        let place = self.places.get(&item)?;
        let lane = self.lane_of(item)?;
        let due = Some(place.due).filter(|due| *due > now);
        let sleep = lane.sleep.filter(|sleep| sleep.until > now);
        let plain = |cause, until| Wait { cause, until, reason: None, account: None, sleep: sleep.clone() };
        if place.flight != Flight::No {
            return Some(plain(WaitCause::Sending, None));
        }
        if lane.held {
            let reason = Some("an operator paused it".to_owned());
            return Some(Wait { reason, ..plain(WaitCause::Pause, None) });
        }
        Some(match &sleep {
            Some(sleep) if due.is_none_or(|due| due <= sleep.until) => Wait {
                cause: sleep.cause.into(),
                until: Some(sleep.until),
                reason: Some(sleep.reason.clone()),
                account: sleep.account.clone(),
                sleep: Some(sleep.clone()),
            },
            _ => match due {
                Some(due) => plain(WaitCause::Retry, Some(due)),
                None => plain(WaitCause::Turn, None),
            },
        })
    }

    /// Ends the rest of an item's lane that its server asked for. Returns whether there was one.
    pub fn end_throttle(&mut self, item: ItemKey, now: Timestamp) -> bool {
        let Some(number) = self.places.get(&item).map(|place| place.lane) else { return false };
        let Some(lane) = self.lanes.get_mut(&number) else { return false };
        let ended = lane.sleep.take_if(|sleep| sleep.cause == Cause::Throttled).is_some();
        if ended {
            lane.throttled = 0;
            self.refresh(number, now);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{LaneOptions, Priority, Scope};
    use crate::message::MessageId;
    use crate::queue::Waiting;

    #[test]
    fn an_item_tells_what_keeps_it_and_an_operator_can_end_a_rest() {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        let later = Timestamp::from_micros(1_800_000_009_000_000);
        let mut lanes = Lanes::new(LaneOptions::default());
        let waiting = |number: u32, due| Waiting {
            key: ItemKey { message: MessageId(u128::from(number)), number },
            tenant: "acme".to_owned(),
            account: None,
            domain: "there.example".to_owned(),
            priority: Priority::Normal,
            recipients: 1,
            due,
            reports_on: None,
        };
        let (first, second) = (waiting(1, now), waiting(2, later));
        lanes.add(&first, now);
        lanes.add(&second, now);
        let told = |lanes: &Lanes, item: &Waiting| {
            let wait = lanes.wait_of(item.key, now).unwrap();
            (wait.cause, wait.until)
        };
        assert_eq!(told(&lanes, &first), (WaitCause::Turn, None));
        assert_eq!(told(&lanes, &second), (WaitCause::Retry, Some(later)));
        let key = lanes.lane_of(first.key).unwrap().key;
        let until = lanes.throttle(&key, "421 slow down", now);
        assert_eq!(told(&lanes, &first), (WaitCause::Throttle, until));
        assert!(lanes.wait_of(first.key, now).unwrap().keeps() && lanes.next(now).is_none());
        lanes.hold(Scope::Queue, now);
        assert_eq!(told(&lanes, &first), (WaitCause::Pause, None));
        lanes.release(&Scope::Queue, now);
        assert!(lanes.end_throttle(first.key, now) && !lanes.end_throttle(first.key, now));
        assert_eq!(lanes.next(now).map(|turn| turn.item), Some(first.key));
        assert_eq!(told(&lanes, &first), (WaitCause::Sending, None));
        assert_eq!(lanes.wait_of(waiting(3, now).key, now), None);
    }
}
