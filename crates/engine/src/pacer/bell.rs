//! The bell that tells whoever waits that something was freed: given back, released, or forgotten.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tollgate_core::Charges;

use super::desk::Desk;

/// All pacers of an engine. They hear what is freed on this node.
#[derive(Default)]
pub(crate) struct Bell {
    desks: ArcSwap<Vec<Weak<Desk>>>,
}

impl Bell {
    /// From now on a desk hears it.
    pub(super) fn connect(&self, desk: &Arc<Desk>) {
        self.desks.rcu(|desks| {
            let living = desks.iter().filter(|desk| desk.strong_count() > 0).cloned();
            living.chain([Arc::downgrade(desk)]).collect::<Vec<_>>()
        });
    }

    /// What these charges stand for was given back, unless it was kept.
    pub(crate) fn freed(&self, charges: &Charges<'_>) {
        self.each(|desk| {
            let freed = charges.iter().filter(|charge| charge.frees());
            desk.freed(freed.map(|charge| (&**charge.plan.rule(), charges.key(charge))));
        });
    }

    /// Something was freed at one key of a rule.
    pub(crate) fn freed_at(&self, rule: &str, key: &str) {
        self.each(|desk| desk.freed([(rule, key)]));
    }

    /// Something was freed, and it is not known where.
    pub(crate) fn freed_anywhere(&self) {
        self.each(Desk::freed_anywhere);
    }

    fn each(&self, mut tell: impl FnMut(&Desk)) {
        self.desks.load().iter().filter_map(Weak::upgrade).for_each(|desk| tell(&desk));
    }
}
