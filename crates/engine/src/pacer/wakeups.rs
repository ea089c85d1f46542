//! Wakes waiting calls when capacity is freed: refunded, released or reset.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tollgate_core::Charges;

use super::scheduler::Scheduler;

/// All pacers of an engine. They are notified of what is freed on this node.
#[derive(Default)]
pub(crate) struct Wakeups {
    schedulers: ArcSwap<Vec<Weak<Scheduler>>>,
}

impl Wakeups {
    /// Notifies a scheduler from now on.
    pub(super) fn connect(&self, scheduler: &Arc<Scheduler>) {
        self.schedulers.rcu(|schedulers| {
            let living = schedulers.iter().filter(|scheduler| scheduler.strong_count() > 0).cloned();
            living.chain([Arc::downgrade(scheduler)]).collect::<Vec<_>>()
        });
    }

    /// These charges were refunded, except those that were kept.
    pub(crate) fn freed(&self, charges: &Charges<'_>) {
        self.each(|scheduler| {
            let freed = charges.iter().filter(|charge| charge.frees());
            scheduler.freed(freed.map(|charge| (&**charge.plan.rule(), charges.key(charge))));
        });
    }

    /// Units were freed at one key of a rule.
    pub(crate) fn freed_at(&self, rule: &str, key: &str) {
        self.each(|scheduler| scheduler.freed([(rule, key)]));
    }

    /// Units were freed at an unknown key.
    pub(crate) fn freed_anywhere(&self) {
        self.each(Scheduler::freed_anywhere);
    }

    fn each(&self, mut tell: impl FnMut(&Scheduler)) {
        self.schedulers.load().iter().filter_map(Weak::upgrade).for_each(|scheduler| tell(&scheduler));
    }
}
