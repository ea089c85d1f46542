//! The queue against a model: whatever is done to it, it shows what the model says, also after a restart.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::{START, clock, envelope, open, submit};
use proptest::prelude::*;
use tollgate_core::Span;
use tollgate_relay::message::{Accepted, Idempotency, IntakeError, MessageId};
use tollgate_relay::queue::{
    AttemptResult, Event, EventKind, Final, ItemKey, OpenAttempt, Opened, Queue, RecipientState,
};

const ADDRESSES: [&str; 4] = ["a@one.example", "b@two.example", "c@one.example", "d@three.example"];

#[derive(Clone, Debug)]
enum Act {
    Accept { recipients: usize, name: Option<u8>, digest: u8, size: usize },
    Begin { message: usize, item: u32 },
    Finish { message: usize, item: u32, fates: Vec<Fate> },
    Cancel { message: usize },
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wait,
    Sent,
    Failed,
    Cancelled,
}

/// What the model knows of a message: a fate for each recipient, and the open attempts.
#[derive(Clone, Debug, Default)]
struct Modelled {
    fates: Vec<Fate>,
    open: Vec<u32>,
    marked: Vec<u32>,
    /// The recipients that failed after an operator had cancelled them: no report speaks of them.
    late: Vec<usize>,
}

fn act() -> impl Strategy<Value = Act> {
    let fate = prop_oneof![Just(Fate::Wait), Just(Fate::Sent), Just(Fate::Failed)];
    prop_oneof![
        4 => (1..=4_usize, prop::option::of(0..3_u8), 0..2_u8, prop_oneof![Just(100_usize), Just(40_000)])
            .prop_map(|(recipients, name, digest, size)| Act::Accept { recipients, name, digest, size }),
        2 => (0..8_usize, 0..3_u32).prop_map(|(message, item)| Act::Begin { message, item }),
        4 => (0..8_usize, 0..3_u32, prop::collection::vec(fate, 4))
            .prop_map(|(message, item, fates)| Act::Finish { message, item, fates }),
        1 => (0..8_usize).prop_map(|message| Act::Cancel { message }),
        1 => Just(Act::Restart),
    ]
}

/// The recipients of an item, by their places in the envelope.
fn members(modelled: &Modelled, item: u32) -> Vec<usize> {
    let domains: Vec<&str> =
        ADDRESSES[..modelled.fates.len()].iter().map(|address| address.split_once('@').unwrap().1).collect();
    let mut order: Vec<&str> = Vec::new();
    for domain in &domains {
        if !order.contains(domain) {
            order.push(domain);
        }
    }
    let Some(wanted) = order.get(item as usize) else { return Vec::new() };
    (0..domains.len()).filter(|place| domains[*place] == *wanted).collect()
}

struct Bench {
    disk: Forgetful,
    queue: Option<(Queue, Opened)>,
    messages: Vec<Modelled>,
    names: BTreeMap<u8, (u8, usize)>,
}

impl Bench {
    fn queue(&self) -> &Queue {
        &self.queue.as_ref().unwrap().0
    }

    async fn accept(&mut self, recipients: usize, name: Option<u8>, digest: u8, size: usize) {
        let id = self.messages.len();
        let mut envelope = envelope(id as u128, &ADDRESSES[..recipients]);
        envelope.idempotency = name.map(|name| Idempotency {
            scope: "scope".to_owned(),
            key: name.to_string(),
            digest: [digest; 32],
            repeated: false,
        });
        let accepted = submit(self.queue(), envelope, &vec![b'x'; size]).await;
        let expected = match name.and_then(|name| self.names.get(&name)) {
            Some((known, first)) if *known == digest => Ok(Accepted::Before(MessageId(*first as u128))),
            Some(_) => Err(IntakeError::Conflict),
            None => Ok(Accepted::Now(MessageId(id as u128))),
        };
        assert_eq!(accepted, expected);
        if matches!(expected, Ok(Accepted::Now(_))) {
            if let Some(name) = name {
                self.names.insert(name, (digest, id));
            }
            self.messages.push(Modelled { fates: vec![Fate::Wait; recipients], ..Modelled::default() });
        }
    }

    async fn begin(&mut self, message: usize, item: u32) {
        let Some(modelled) = self.messages.get_mut(message) else { return };
        if !members(modelled, item).iter().any(|place| modelled.fates[*place] == Fate::Wait) {
            return;
        }
        modelled.open.push(item);
        let key = ItemKey { message: MessageId(message as u128), number: item };
        let attempt = OpenAttempt { at: START, account: None, recipients: vec![] };
        self.queue().begin_attempt(key, attempt).await.unwrap();
    }

    async fn finish(&mut self, message: usize, item: u32, fates: &[Fate]) {
        let Some(modelled) = self.messages.get_mut(message) else { return };
        let members = members(modelled, item);
        modelled.open.retain(|open| *open != item);
        // Cancelled in flight: what the server said replaces it.
        let cancelled = !members.iter().any(|place| modelled.fates[*place] == Fate::Wait);
        let mut settled = Vec::new();
        for place in &members {
            let last =
                Final { at: START, status: "x".into(), reply: "y".into(), remote: None, reports: false };
            let state = match fates[*place] {
                Fate::Wait | Fate::Cancelled => continue,
                Fate::Sent => RecipientState::Sent(last),
                Fate::Failed => RecipientState::Failed(last),
            };
            settled.push((u32::try_from(*place).unwrap(), state));
            match modelled.fates[*place] {
                Fate::Wait => modelled.fates[*place] = fates[*place],
                Fate::Cancelled if cancelled => {
                    modelled.fates[*place] = fates[*place];
                    modelled.late.extend((fates[*place] == Fate::Failed).then_some(*place));
                }
                _ => {}
            }
        }
        let left = members.iter().filter(|place| modelled.fates[**place] == Fate::Wait).count();
        let key = ItemKey { message: MessageId(message as u128), number: item };
        let result = AttemptResult {
            settled,
            due: START,
            spent: Span::ZERO,
            counts: true,
            uncertain: false,
            at: START,
            events: vec![Event::new(START, EventKind::Failed)],
        };
        let waiting = self.queue().finish_attempt(key, result).await.unwrap();
        assert_eq!(waiting.map_or(0, |waiting| waiting.recipients as usize), left);
    }

    async fn cancel(&mut self, message: usize) {
        let Some(modelled) = self.messages.get_mut(message) else { return };
        let waits = modelled.fates.contains(&Fate::Wait);
        for fate in modelled.fates.iter_mut().filter(|fate| **fate == Fate::Wait) {
            *fate = Fate::Cancelled;
        }
        assert_eq!(self.queue().cancel(MessageId(message as u128)).await.unwrap(), waits);
    }

    fn restart(&mut self) {
        self.queue = None;
        self.disk = self.disk.crash(&mut || false);
        let (queue, opened) = open(Arc::new(self.disk.clone()), &clock());
        assert_eq!(opened.damaged, []);
        for modelled in &mut self.messages {
            for item in std::mem::take(&mut modelled.open) {
                let waits = |place: &usize| modelled.fates[*place] == Fate::Wait;
                if members(modelled, item).iter().any(waits) {
                    modelled.marked.push(item);
                }
            }
        }
        self.queue = Some((queue, opened));
        self.compare();
    }

    fn compare(&self) {
        for (id, modelled) in self.messages.iter().enumerate() {
            let shown = self.queue().show(MessageId(id as u128)).unwrap().expect("nothing is lost");
            let mut fates = vec![None; modelled.fates.len()];
            for (key, item) in &shown.items {
                assert_eq!(item.possible_duplicate, modelled.marked.contains(&key.number));
                for recipient in &item.recipients {
                    fates[recipient.index as usize] = Some(match recipient.state {
                        RecipientState::Waiting => Fate::Wait,
                        RecipientState::Sent(_) => Fate::Sent,
                        RecipientState::Failed(_) => Fate::Failed,
                        RecipientState::Cancelled(_) => Fate::Cancelled,
                    });
                }
            }
            let expected: Vec<_> = modelled.fates.iter().copied().map(Some).collect();
            assert_eq!(fates, expected, "message {id}");
            assert_eq!(shown.kept.finished.is_none(), modelled.fates.contains(&Fate::Wait), "message {id}");
        }
        let live = self.messages.iter().filter(|modelled| modelled.fates.contains(&Fate::Wait)).count();
        // Reports are messages too: one for each finished message with a failure.
        let reports = self.messages.iter().filter(|modelled| {
            let mut fates = modelled.fates.iter().enumerate();
            let failed = fates.any(|(place, fate)| *fate == Fate::Failed && !modelled.late.contains(&place));
            !modelled.fates.contains(&Fate::Wait) && failed
        });
        assert_eq!(self.queue().len() as usize, live + reports.count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn the_queue_is_what_the_model_says(acts in prop::collection::vec(act(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let disk = Forgetful::new();
        let queue = Some(open(Arc::new(disk.clone()), &clock()));
        let mut bench = Bench { disk, queue, messages: Vec::new(), names: BTreeMap::new() };
        runtime.block_on(async {
            for act in acts {
                match act {
                    Act::Accept { recipients, name, digest, size } => {
                        bench.accept(recipients, name, digest, size).await;
                    }
                    Act::Begin { message, item } => bench.begin(message, item).await,
                    Act::Finish { message, item, fates } => bench.finish(message, item, &fates).await,
                    Act::Cancel { message } => bench.cancel(message).await,
                    Act::Restart => bench.restart(),
                }
                bench.compare();
            }
        });
    }
}
