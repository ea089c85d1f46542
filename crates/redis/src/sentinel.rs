//! Asks Sentinels for the current master.

use crate::dial::{Dialer, Line};
use crate::resp::Reply;
use crate::settings::Address;

/// Asks the sentinels in turn for the master's address.
pub(crate) async fn master(dialer: &Dialer, sentinels: &[Address], service: &str) -> Result<Address, String> {
    let mut reason = String::from("no sentinel is named");
    for sentinel in sentinels {
        match ask(dialer, sentinel, service).await {
            Ok(address) => return Ok(address),
            Err(error) => reason = format!("sentinel {sentinel}: {error}"),
        }
    }
    Err(reason)
}

async fn ask(dialer: &Dialer, sentinel: &Address, service: &str) -> Result<Address, String> {
    let mut line = dialer.open(sentinel).await?;
    match line.ask(&["SENTINEL", "get-master-addr-by-name", service]).await? {
        Reply::List(parts) => {
            let text = |index: usize| parts.get(index).and_then(Reply::text);
            let port = text(1).and_then(|port| port.parse().ok());
            let host = text(0).map(str::to_owned);
            host.zip(port)
                .map(|(host, port)| Address::Tcp { host, port })
                .ok_or_else(|| "an address that is none".into())
        }
        Reply::Error(error) => Err(error),
        _ => Err(format!("it knows no service `{service}`")),
    }
}

/// Checks that a server is the master, since it may have been replaced a moment ago.
pub(crate) async fn insist_on_master(line: &mut Line, address: &Address) -> Result<(), String> {
    match line.ask(&["ROLE"]).await? {
        Reply::List(parts) if parts.first().and_then(Reply::text) == Some("master") => Ok(()),
        _ => Err(format!("{address} is not the master any more")),
    }
}
