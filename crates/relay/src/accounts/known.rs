//! Whether mail can be sent through any account, now or once an operator mends one.

use tollgate_core::StoreError;

use super::registry::AccountRegistry;

impl AccountRegistry {
    /// Whether a tenant has the named account, or any account if none is named. An account counts even while it is
    /// paused, or while its password does not open: an operator can end both. Asks the store only if this node knows no
    /// such account, because another node may have added it a moment ago.
    pub async fn can_send(&self, tenant: &str, named: Option<&str>) -> Result<bool, StoreError> {
        if self.knows(tenant, named) {
            return Ok(true);
        }
        self.engine.accounts.refresh().await?;
        Ok(self.knows(tenant, named))
    }

    fn knows(&self, tenant: &str, named: Option<&str>) -> bool {
        self.accounts.has(tenant, named)
            || match named {
                Some(id) => self.view(tenant, id).is_some(),
                None => !self.list(Some(tenant), None, 1).is_empty(),
            }
    }
}
