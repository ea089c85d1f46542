//! The plans of a shard's slots, by number, so that a slot needs only four bytes for its plan.

use std::sync::Arc;

use hashbrown::HashMap;
use tollgate_core::Plan;

#[derive(Default)]
pub(crate) struct Plans {
    entries: Vec<Entry>,
    /// By the plan's address. An entry keeps its plan alive, so the address is unique.
    by_address: HashMap<usize, u32>,
    free: Vec<u32>,
}

struct Entry {
    plan: Option<Arc<Plan>>,
    slots: u32,
}

impl Plans {
    /// The plan of this number.
    pub(crate) fn plan(&self, number: u32) -> &Arc<Plan> {
        self.entries[number as usize].plan.as_ref().expect("a slot's plan is kept")
    }

    /// Whether a number stands for exactly this plan.
    pub(crate) fn is(&self, number: u32, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(self.plan(number), plan)
    }

    /// The number of a plan; counts one more slot.
    pub(crate) fn enter(&mut self, plan: &Arc<Plan>) -> u32 {
        let address = Arc::as_ptr(plan) as usize;
        let number = *self.by_address.entry(address).or_insert_with(|| {
            let entry = Entry { plan: Some(Arc::clone(plan)), slots: 0 };
            if let Some(number) = self.free.pop() {
                self.entries[number as usize] = entry;
                return number;
            }
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("fewer plans than slots")
        });
        self.entries[number as usize].slots += 1;
        number
    }

    /// Counts one slot less of this plan.
    pub(crate) fn leave(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.slots -= 1;
        if entry.slots == 0 {
            let plan = entry.plan.take().expect("a slot's plan is kept");
            self.by_address.remove(&(Arc::as_ptr(&plan) as usize));
            self.free.push(number);
        }
    }
}
