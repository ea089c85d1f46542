//! The store: turns each call of the engine into work for a transaction.

mod forgetting;
mod probing;
mod records;
mod sweeping;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, HoldsReport, Impairment, Refunded};
use tollgate_core::{Charges, Clock, Outcome, Plan, Store, StoreError, Timestamp};

use crate::database::Database;
use crate::lanes::Lanes;
use crate::name::Names;
use crate::pool::{Haste, Pool};
use crate::settings::{Settings, Tls};
use crate::work::{Attempt, Caller, Order, Work};
use sweeping::Sweeper;

/// A store on PostgreSQL.
pub struct PostgresStore {
    settings: Arc<Settings>,
    pub(crate) database: Arc<Database>,
    lanes: Arc<Lanes>,
    pub(crate) names: Arc<Names>,
    handle: Handle,
    /// The time at which the entries of each namespace of records were last counted.
    counted: parking_lot::Mutex<HashMap<&'static str, Instant>>,
}

impl PostgresStore {
    /// A store on this server. It connects when it is first needed. While the server is unreachable, every
    /// call fails with [`StoreError::Unavailable`] or [`StoreError::TimedOut`].
    ///
    /// # Errors
    ///
    /// If the settings are invalid. If the server answers, also if its tables are newer than this program, or
    /// if the user may not create them.
    pub async fn start(settings: Settings) -> Result<Self, String> {
        if !Settings::is_schema_name(&settings.schema) {
            return Err(format!(
                "`{}` cannot be the name of a schema: use small letters, digits and `_`",
                settings.schema.escape_debug()
            ));
        }
        let settings = Arc::new(settings);
        let tls = settings.tls.as_ref().map(Tls::configuration).transpose()?;
        let handle = Handle::current();
        let pool = Pool::new(Arc::clone(&settings), tls, handle.clone());
        let database = Arc::new(Database::new(pool, &settings));
        let lanes = Lanes::new(Arc::clone(&database), handle.clone(), settings.connections.max(1));
        match database.pool.line(Haste::Try).await {
            Ok(line) => database.pool.give_back(line),
            Err(error @ (StoreError::Refused { .. } | StoreError::Forbidden { .. })) => {
                return Err(error.to_string());
            }
            // The store connects again when a caller needs it.
            Err(_) => {}
        }
        let names = Arc::new(Names::new(&settings));
        let sweeper = Sweeper::new(&settings, Arc::clone(&names));
        sweeper.start(Arc::downgrade(&database), &handle);
        let counted = parking_lot::Mutex::default();
        Ok(Self { settings, database, lanes: Arc::new(lanes), names, handle, counted })
    }

    /// Uses this clock instead of the server's. For tests.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.database.set_clock(clock);
        self
    }

    /// Removes all idle rows, which equal a fresh key, and returns how many counters it removed. The store
    /// also does this by itself at every sweep interval. Call it on the runtime that started the store.
    ///
    /// # Errors
    ///
    /// If the server cannot be used.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        Sweeper::new(&self.settings, Arc::clone(&self.names)).sweep(&self.database).await
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.command_timeout
    }

    /// The deadline of a call that no decision waits for: `command_timeout`, but at least a second.
    pub(crate) fn background_deadline(&self) -> Instant {
        Instant::now() + self.settings.command_timeout.max(Duration::from_secs(1))
    }

    /// Reads the secret for hashing secret keys, if a plan has secret keys and the secret is not loaded yet.
    async fn know_secret(&self, mut plans: impl Iterator<Item = &Plan>) -> Result<(), StoreError> {
        if plans.any(Plan::is_secret) && !self.names.key_hash.is_ready() {
            self.read_secret_for(self.settings.command_timeout).await?;
        }
        Ok(())
    }

    async fn attempt(&self, charges: &Charges<'_>) -> Result<Attempt, StoreError> {
        self.know_secret(charges.iter().map(|charge| &**charge.plan)).await?;
        Attempt::new(charges, &self.names)
    }

    async fn decide(
        &self,
        charges: &Charges<'_>,
        work: fn(Attempt, Caller<Outcome>) -> Work,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        if charges.is_empty() {
            *outcome = Outcome { now: self.ask_time().await?, allowed: true, ..Outcome::default() };
            return Ok(());
        }
        let deadline = self.deadline();
        let attempt = self.attempt(charges).await?;
        *outcome = self.lanes.run(|caller| work(attempt, caller), deadline).await?;
        Ok(())
    }

    async fn refund_all(&self, charges: &Charges<'_>, taken_at: Timestamp) -> Result<Refunded, StoreError> {
        if charges.is_empty() {
            return Ok(Refunded::TooOld);
        }
        let attempt = self.attempt(charges).await?;
        self.lanes.run(|caller| Work::Refund(attempt, taken_at, caller), self.deadline()).await
    }

    async fn take_back(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        if charges.is_empty() {
            return Ok(());
        }
        let attempt = self.attempt(charges).await?;
        self.lanes.run(|caller| Work::Retract(attempt, caller), self.deadline()).await
    }

    async fn order(&self, counter: &Counter<'_>, order: HoldsOrder<'_>) -> Result<HoldsReport, StoreError> {
        self.know_secret(std::iter::once(&**counter.plan)).await?;
        let name = self.names.counter(counter.plan, counter.key)?;
        let order = Order::new(order);
        // No decision waits for an order about all holds or about several, so it gets the longer deadline.
        let deadline = if order.is_about_all() || order.ids().len() > 1 {
            self.background_deadline()
        } else {
            self.deadline()
        };
        let plan = Arc::clone(counter.plan);
        self.lanes.run(|caller| Work::Holds { plan, name, order, caller }, deadline).await
    }
}

impl Store for PostgresStore {
    fn now(&self) -> Answer<'_, Timestamp> {
        Answer::Later(Box::pin(self.ask_time()))
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.decide(charges, Work::Take, outcome)))
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.decide(charges, Work::Peek, outcome)))
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        Answer::Later(Box::pin(self.refund_all(charges, taken_at)))
    }

    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        Answer::Later(Box::pin(self.order(counter, order)))
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
