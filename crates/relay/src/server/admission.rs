//! Admits connections, and writes refusals as SMTP replies.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_engine::Taken;
use tollgate_engine::admit::Unsettled;

use super::Shared;
use super::settings::Settings;
use crate::acceptance::{NotAccepted, Question, RefusalReason, ask, fresh_id};
use crate::session::Session;
use crate::session::reply::Reply;

/// Decides whether a connection may stay. Dropping the result releases its holds.
pub(super) async fn connect(shared: &Shared, settings: &Settings, client: IpAddr) -> Result<Taken, Reply> {
    let address = client.to_string();
    let correlation: Arc<str> = format!("{:032x}", fresh_id(shared.doors.clock.now()).0).into();
    let question = Question {
        policy: settings.connect.as_deref(),
        correlation: &correlation,
        unsettled: Unsettled::Keep,
        fields: &[("ip", &address), ("client_ip", &address)],
    };
    let refuse = |reason: RefusalReason| {
        shared.doors.meters.rejected(reason.level());
        connection_refused(&NotAccepted { correlation: Arc::clone(&correlation), reason })
    };
    ask(&shared.doors.admissions, &question).await.map_err(refuse)
}

/// The reply to a connection that is refused.
fn connection_refused(refusal: &NotAccepted) -> Reply {
    let id = &refusal.correlation;
    match &refusal.reason {
        RefusalReason::Limited(limited) => {
            let again = again(limited.retry_secs);
            match limited.key {
                None => Reply::new(421, "4.3.2", format!("Too many connections; {again} ({id})")),
                Some(_) => {
                    let text = format!("Too many connections from your address; {again} ({id})");
                    Reply::new(421, "4.7.0", text)
                }
            }
        }
        RefusalReason::Blocked { passing: true } => {
            Reply::new(421, "4.7.0", format!("Blocked for a while ({id})"))
        }
        RefusalReason::Blocked { passing: false } => Reply::new(554, "5.7.1", format!("Blocked ({id})")),
        RefusalReason::Misconfigured => {
            Reply::new(421, "4.3.5", format!("Server configuration problem ({id})"))
        }
        RefusalReason::Outage
        | RefusalReason::SenderNotAllowed { .. }
        | RefusalReason::NoAccount { .. }
        | RefusalReason::NoRecipients
        | RefusalReason::TooManyRecipients { .. }
        | RefusalReason::Text(_)
        | RefusalReason::NoMemory
        | RefusalReason::Full
        | RefusalReason::Failed
        | RefusalReason::Conflict => Reply::new(421, "4.3.0", format!("Temporary failure ({id})")),
    }
}

/// The reply to a message that is not accepted. An exceeded rate is temporary, so the reply is never 5xx.
pub(super) fn message_refused(session: &Session, refusal: &NotAccepted) -> Reply {
    let id = &refusal.correlation;
    match &refusal.reason {
        // Waiting does not help a message that has more recipients than a limit ever allows; splitting it does.
        RefusalReason::Limited(limited) if limited.never_fits => {
            let key = limited.key.as_ref().map_or_else(String::new, |key| format!(" {key}"));
            let text = format!("Too many recipients for {}{key}: {} ({id})", limited.rule, limited.limit);
            Reply::new(452, "4.5.3", text)
        }
        RefusalReason::Limited(limited) => {
            let again = again(limited.retry_secs);
            Reply::new(451, "4.7.1", format!("Rate limit exceeded: {limited}; {again} ({id})"))
        }
        RefusalReason::Blocked { passing: true } => {
            Reply::new(451, "4.7.1", format!("Blocked for a while ({id})"))
        }
        RefusalReason::Blocked { passing: false } => Reply::new(550, "5.7.1", format!("Blocked ({id})")),
        RefusalReason::Outage => Reply::new(451, "4.3.0", format!("Temporary failure ({id})")),
        RefusalReason::Misconfigured => {
            Reply::new(451, "4.3.5", format!("Server configuration problem ({id})"))
        }
        // Temporary: an operator can add an account, and the client's queue keeps the message until then.
        RefusalReason::NoAccount { .. } => {
            Reply::new(451, "4.3.5", format!("Not configured: {} ({id})", refusal.reason))
        }
        RefusalReason::SenderNotAllowed { domain } => Session::sender_refused(domain),
        RefusalReason::NoRecipients => Reply::new(503, "5.5.1", "No valid recipients"),
        RefusalReason::TooManyRecipients { most } => Session::too_many_recipients(*most),
        RefusalReason::Text(fault) => session.text_refused(*fault),
        RefusalReason::NoMemory => {
            Reply::new(452, "4.3.1", format!("Too many messages at once; try again later ({id})"))
        }
        RefusalReason::Full => Reply::new(452, "4.3.1", format!("Queue is full; try again later ({id})")),
        RefusalReason::Failed | RefusalReason::Conflict => {
            Reply::new(451, "4.3.0", format!("Message not stored; try again later ({id})"))
        }
    }
}

fn again(seconds: Option<u64>) -> String {
    seconds.map_or("try again later".to_owned(), |seconds| format!("try again in {seconds} s"))
}
