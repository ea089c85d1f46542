//! Checks whether a message can leave at all. Without this check, a message with a typing mistake in `account`, or of a
//! tenant without an account, is accepted, and its sender learns of it only when the message's lifetime is over.

use std::sync::Arc;

use super::RefusalReason;
use crate::accounts::AccountRegistry;

/// The ways by which accepted mail can leave: accounts, or direct delivery.
pub(super) struct Ways {
    pub(super) accounts: Arc<AccountRegistry>,
    /// Whether mail that names no account, of a tenant without one, goes directly to the recipients' hosts.
    pub(super) directly: bool,
}

impl Ways {
    /// Refuses a message that no account can send.
    pub(super) async fn check(&self, tenant: &str, account: Option<&str>) -> Result<(), RefusalReason> {
        if self.directly && account.is_none() {
            return Ok(());
        }
        match self.accounts.can_send(tenant, account).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(RefusalReason::NoAccount {
                tenant: tenant.to_owned(),
                account: account.map(str::to_owned),
            }),
            Err(error) => {
                tracing::error!(component = "relay", %error, "the accounts in the store cannot be read");
                Err(RefusalReason::Outage)
            }
        }
    }
}
