//! Starts the Postfix policy service.

use std::io;
use std::sync::Arc;

use anyhow::anyhow;
use tollgate_engine::Admissions;
use tollgate_postfix::{PolicyAddress, PolicyParts, PolicyServer};
use tollgate_store::SystemClock;

use crate::config::PostfixConfig;

/// A running policy service, and its address.
pub(crate) struct RunningPostfix {
    pub(crate) server: PolicyServer,
    /// With the port that the system chose.
    pub(crate) address: PolicyAddress,
}

pub(crate) async fn start(config: &PostfixConfig, admissions: &Admissions) -> anyhow::Result<RunningPostfix> {
    let parts = PolicyParts { admissions: admissions.clone(), clock: Arc::new(SystemClock::new()) };
    let server = PolicyServer::new(config.settings.clone(), parts);
    let address = server.listen(&config.address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; another program listens there already",
            io::ErrorKind::NotFound => "; make its directory first",
            _ => "",
        };
        anyhow!("the Postfix policy service cannot listen on {}: {error}{hint}", config.address)
    })?;
    Ok(RunningPostfix { server, address })
}
