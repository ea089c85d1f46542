//! After any sequence of events, every waiting attempt has a position, and every position gets a turn.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Attempt, Limit};

use super::*;
use crate::pacer::ids::{Ids, Stop, WaitPath};
use crate::pacer::notifications::{Listener, Notification};
use crate::pacer::pace::Pace;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Comes { way: u8, priority: i8, cost: u64, wait_millis: Option<u16> },
    GivesUp(usize),
    IsLate(usize),
    TimePasses(u16),
    IsAsked,
    Passes(usize),
    IsRefused(usize),
    IsBlocked { job: usize, stop: u8, millis: u16 },
    IsGivenUpOn(usize),
    Pauses(u8, u16),
    Resumes,
    IsFreed(u8),
}

struct Deaf;

impl Listener for Deaf {
    fn hear(self: Box<Self>, _: Notification<'_, '_>) {}
}

struct Scene {
    queues: Queues,
    now: Instant,
    ids: Ids,
    seats: Vec<Seat>,
    jobs: Vec<Job>,
}

fn event() -> impl Strategy<Value = Event> {
    let wait_millis = prop_oneof![Just(None), (0..500_u16).prop_map(Some)];
    prop_oneof![
        6 => (0..6_u8, -1..=1_i8, 1..4_u64, wait_millis)
            .prop_map(|(way, priority, cost, wait_millis)| Event::Comes { way, priority, cost, wait_millis }),
        2 => any::<usize>().prop_map(Event::GivesUp),
        1 => any::<usize>().prop_map(Event::IsLate),
        3 => (0..300_u16).prop_map(Event::TimePasses),
        6 => Just(Event::IsAsked),
        3 => any::<usize>().prop_map(Event::Passes),
        1 => any::<usize>().prop_map(Event::IsRefused),
        4 => (any::<usize>(), 0..4_u8, 0..500_u16)
            .prop_map(|(job, stop, millis)| Event::IsBlocked { job, stop, millis }),
        1 => any::<usize>().prop_map(Event::IsGivenUpOn),
        1 => (0..4_u8, 0..500_u16).prop_map(|(wait_key, millis)| Event::Pauses(wait_key, millis)),
        1 => Just(Event::Resumes),
        1 => (0..4_u8).prop_map(Event::IsFreed),
    ]
}

impl Scene {
    fn new(most_width: usize) -> Self {
        let bounds = Bounds { max_waiting: 30, max_waiting_per_key: 10, most_width, most_rest: REST };
        let now = Instant::now();
        Self { queues: Queues::new(bounds), now, ids: Ids::new(), seats: Vec::new(), jobs: Vec::new() }
    }

    fn wait_key(&self, number: u8) -> WaitKeyId {
        match number {
            0 => self.ids.policy_wait_key("p"),
            1 => self.ids.wait_key("all", "all"),
            _ => self.ids.wait_key("chat", &number.to_string()),
        }
    }

    /// The path of an attempt: all pass the same policy, and one of three chats. Half of them also pass a
    /// rule that they share.
    fn wait_path(&self, way: u8) -> WaitPath {
        let policy = tollgate_core::Policy::new("p".into(), Vec::new(), true);
        let mut numbers = vec![0, 2 + way % 3];
        if way < 3 {
            numbers.insert(1, 1);
        }
        let fields = [];
        let attempt = Attempt { policy: "p", fields: &fields, cost: 1, id: None };
        let charges = policy.charges(&attempt, Default::default()).unwrap();
        let mut path = self.ids.wait_path(&policy, &charges);
        let name: Arc<str> = "r".into();
        let stop = |number| Stop { wait_key: self.wait_key(number), rule: Arc::clone(&name), most: DAY };
        path.stops = numbers.into_iter().map(stop).collect();
        path.lane = crate::pacer::ids::lane_of(u128::from(way) + 1);
        path
    }

    fn blocked(&self, number: u8, millis: u16, cost: u64) -> Blocked {
        let limit: Limit = "10/s burst 3".parse().unwrap();
        // Some of them wait for holds that may be released at any moment.
        let span = tollgate_core::Span::from_millis(u64::from(millis));
        Blocked {
            wait_key: self.wait_key(number),
            when: tollgate_core::When::After(span),
            surely: if millis.is_multiple_of(3) { tollgate_core::Span::ZERO } else { span },
            pace: Pace::of(&limit),
            cost,
            patience: (DAY, "r".into()),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Comes { way, priority, cost, wait_millis } => self.comes(way, priority, cost, wait_millis),
            Event::GivesUp(index) => {
                if let Some(seat) = pick(&mut self.seats, index) {
                    self.queues.leave(seat);
                }
            }
            Event::IsLate(index) => {
                if let Some(seat) = pick(&mut self.seats, index)
                    && matches!(self.queues.expire(seat, self.now), Expiry::Asked)
                {
                    self.seats.push(seat);
                }
            }
            Event::TimePasses(millis) => self.now += Duration::from_millis(millis.into()),
            Event::IsAsked => self.jobs.extend(self.queues.next(self.now)),
            Event::Passes(index) => self.settles(index, &Finding::Passed),
            Event::IsRefused(index) => self.settles(index, &Finding::Refused),
            Event::IsGivenUpOn(index) => self.settles(index, &Finding::Unknown),
            Event::IsBlocked { job, stop, millis } => {
                let blocked = self.blocked(stop, millis, 1);
                self.settles(job, &Finding::Blocked(&blocked));
            }
            Event::Pauses(number, millis) => {
                let until = self.now + Duration::from_millis(millis.into());
                let pauses = std::iter::once((self.wait_key(number), until)).collect();
                self.queues.pause(&pauses, self.now);
            }
            Event::Resumes => self.queues.pause(&ById::default(), self.now),
            Event::IsFreed(number) => self.queues.free([self.wait_key(number)]),
        }
    }

    fn comes(&mut self, way: u8, priority: i8, cost: u64, wait_millis: Option<u16>) {
        let fields = [];
        let attempt = Attempt { policy: "p", fields: &fields, cost, id: None };
        let (ask, listener) = (Arc::new(OwnedAttempt::new(&attempt)), Box::new(Deaf));
        let newcomer = Newcomer { ask, listener, priority, arrived: self.now, deadline: None };
        let path = self.wait_path(way);
        let queues = self.queues.must_queue(&path, self.now);
        let blocked = wait_millis.filter(|_| !queues).map(|millis| self.blocked(2 + way % 3, millis, cost));
        if let Ok(place) = self.queues.find_place(&path, &newcomer, blocked.as_ref(), self.now) {
            self.seats.push(self.queues.enter(&path, &place, newcomer, blocked.as_ref(), self.now));
        }
    }

    fn settles(&mut self, index: usize, finding: &Finding<'_>) {
        let Some(job) = pick(&mut self.jobs, index) else { return };
        if let Settled::Leaves(_) | Settled::TooLate { .. } = self.queues.settle(&job, finding, self.now) {
            self.seats.retain(|seat| *seat != job.seat);
        }
    }

    /// The invariants.
    fn check(&self) {
        let queues = &self.queues;
        assert_eq!(queues.waiting, self.seats.len());
        assert_eq!(queues.waiting, queues.lanes.values().map(Lane::len).sum());
        let mut standing = 0;
        for (id, wait_key) in &queues.wait_keys {
            for (turn, lane_id) in &wait_key.ring {
                let lane = &queues.lanes[lane_id];
                assert!(lane.asked.is_none() && !lane.is_empty(), "{lane_id:?} stands and is asked about");
                assert_eq!((lane.stand, lane.turn), (*id, *turn));
                standing += 1;
            }
            let lanes = queues.lanes.values().filter(|lane| lane.wait_keys.contains(id)).count();
            assert_eq!(wait_key.lanes, lanes);
            let asked = self.jobs.iter().filter(|job| job.from == *id).count();
            assert_eq!(wait_key.asked, asked);
            // The key gives turns now, or later, or after a decision in flight.
            let hopeful = wait_key.open || wait_key.due.is_some() || wait_key.asked > 0;
            assert!(wait_key.ring.is_empty() || hopeful, "{id:?} never gives a turn");
            assert!(!wait_key.open || queues.open.contains(id), "{id:?} is open and not listed as open");
            assert!(
                *id == WaitKeyId::FRESH || !wait_key.is_idle() || wait_key.open,
                "{id:?} is kept for nothing"
            );
        }
        let asked = queues.lanes.values().filter(|lane| lane.asked.is_some()).count();
        assert_eq!(standing + asked, queues.lanes.len(), "every lane stands somewhere or is asked about");
        assert!(queues.timetable.len() <= 2 * queues.wait_keys.len() + 64 + 1);
    }

    /// Lets every waiting attempt pass.
    fn empties(&mut self) {
        self.queues.pause(&ById::default(), self.now);
        for _ in 0..1_000 {
            self.happens(Event::IsAsked);
            self.happens(Event::Passes(0));
            if self.jobs.is_empty() {
                self.now += Duration::from_millis(5);
            }
        }
        assert_eq!(self.queues.waiting(), 0, "a waiter is left");
        assert_eq!(self.queues.wait_keys.len(), 1, "something is left");
        assert!(self.queues.lanes.is_empty());
    }
}

const REST: tollgate_core::Span = tollgate_core::Span::from_millis(100);
const DAY: tollgate_core::Span = tollgate_core::Span::from_secs(86_400);

fn pick<T>(list: &mut Vec<T>, index: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.remove(index % list.len()))
}

proptest! {
    #[test]
    fn every_waiter_has_a_place_and_gets_a_turn(
        events in prop::collection::vec(event(), 0..200),
        most_width in prop_oneof![Just(1_usize), Just(4)],
    ) {
        let mut scene = Scene::new(most_width);
        for event in events {
            scene.happens(event);
            scene.check();
        }
        scene.empties();
    }
}

#[test]
fn an_answer_from_before_the_queues_were_cleared_is_ignored() {
    let mut scene = Scene::new(1);
    scene.happens(Event::Comes { way: 0, priority: 0, cost: 1, wait_millis: None });
    scene.happens(Event::IsAsked);
    assert_eq!(scene.queues.clear().len(), 1);
    scene.seats.clear();
    scene.happens(Event::Comes { way: 0, priority: 0, cost: 1, wait_millis: None });
    let before = scene.jobs.remove(0);
    scene.happens(Event::IsAsked);
    assert!(matches!(scene.queues.settle(&before, &Finding::Passed, scene.now), Settled::Gone));
    scene.check();
}

#[test]
fn times_that_no_longer_hold_are_forgotten() {
    let mut scene = Scene::new(1);
    for _ in 0..10_000 {
        scene.happens(Event::Comes { way: 0, priority: 0, cost: 1, wait_millis: Some(500) });
        scene.happens(Event::GivesUp(0));
        scene.happens(Event::TimePasses(1));
    }
    scene.check();
}
