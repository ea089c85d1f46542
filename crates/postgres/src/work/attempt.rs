//! The charges of an attempt, as data that outlives the caller.

use std::sync::Arc;

use tollgate_core::limit::Page;
use tollgate_core::{Charges, Fate, Plan, StoreError, Ticket};

use crate::name::{Name, Names};

pub(crate) struct Attempt {
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
    pub(crate) id: Option<String>,
    calendar: Vec<Page>,
    amounts: Vec<(String, u64)>,
    pub(crate) parts: Vec<Part>,
}

pub(crate) struct Part {
    pub(crate) plan: Arc<Plan>,
    pub(crate) name: Name,
    pub(crate) key: String,
    pub(crate) cost: u64,
    enforced: bool,
    pub(crate) fate: Fate,
}

impl Attempt {
    pub(crate) fn new(charges: &Charges<'_>, names: &Names) -> Result<Self, StoreError> {
        let part = |charge: &tollgate_core::Charge<'_>| {
            let key = charges.key(charge);
            Ok(Part {
                plan: Arc::clone(charge.plan),
                name: names.counter(charge.plan, key)?,
                key: key.to_owned(),
                cost: charge.cost,
                enforced: charge.enforced,
                fate: charge.fate,
            })
        };
        Ok(Self {
            ticket: charges.ticket,
            cost: charges.cost,
            id: charges.id.map(str::to_owned),
            calendar: charges.calendar.to_vec(),
            amounts: charges.amounts().iter().map(|(field, amount)| ((*field).to_owned(), *amount)).collect(),
            parts: charges.iter().map(part).collect::<Result<_, StoreError>>()?,
        })
    }

    /// The charges as the core's type.
    pub(crate) fn charges(&self) -> Charges<'_> {
        let mut charges = Charges::new(self.ticket, self.cost, self.id.as_deref());
        charges.calendar = self.calendar.iter().cloned().collect();
        for (field, amount) in &self.amounts {
            charges.push_amount(field, *amount);
        }
        for part in &self.parts {
            charges.push_costing(&part.plan, &part.key, part.enforced, part.cost);
        }
        charges
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.parts.iter().map(|part| &part.name)
    }
}
