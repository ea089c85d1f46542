//! Computes the changes of an item by a transaction. Pure.

use tollgate_core::{Span, Timestamp};

use crate::client::{Answer, Delivery, Progress, Reason};
use crate::lanes::{NextTry, Retry};
use crate::queue::{AttemptResult, Event, EventKind, Final, Item, RecipientState};

/// The context of a result, besides the delivery.
pub(super) struct AttemptContext<'a> {
    pub(super) item: &'a Item,
    /// The recipients of the transaction, by their indices in the envelope.
    pub(super) recipients: &'a [u32],
    pub(super) account: &'a str,
    pub(super) remote: &'a str,
    pub(super) retry: &'a Retry,
    pub(super) now: Timestamp,
    pub(super) luck: u64,
}

/// The result of a transaction.
pub(super) fn of_delivery(delivery: &Delivery, about: &AttemptContext<'_>) -> AttemptResult {
    let retries = delivery.answers.iter().any(|answer| match answer {
        Answer::Temporary(_) => true,
        Answer::Sent(_) => delivery.progress != Progress::Answered,
        Answer::Permanent(_) | Answer::Another => false,
    });
    let next =
        retries.then(|| about.retry.after(about.item.failures, about.item.spent, about.now, about.luck));
    // Recipients for another transaction keep the place of their item.
    let (due, spent) = match next {
        Some(NextTry::Again { due, spent }) => (due, spent),
        Some(NextTry::Expired) | None => (about.item.due.min(about.now), Span::ZERO),
    };
    let expired = next == Some(NextTry::Expired);
    let uncertain = delivery.progress == Progress::Unknown;
    let again =
        NextAttempt { kind: if uncertain { EventKind::Unknown } else { EventKind::Failed }, until: due };
    let (mut settled, mut events) = (Vec::new(), Vec::new());
    for (index, answer) in about.recipients.iter().zip(&delivery.answers) {
        let state = match answer {
            Answer::Another => continue,
            Answer::Sent(reason) if delivery.progress == Progress::Answered => {
                RecipientState::Sent(Final { reports: delivery.reports, ..last(reason, about) })
            }
            Answer::Permanent(reason) => RecipientState::Failed(last(reason, about)),
            // Whatever a server says, a message is sent only if it got the text to its end.
            Answer::Temporary(reason) | Answer::Sent(reason) if expired => expire(reason, about),
            Answer::Temporary(reason) | Answer::Sent(reason) => {
                events.push(again.event(*index, &reason.text, about));
                continue;
            }
        };
        events.extend(event_of(*index, &state, about));
        settled.push((*index, state));
    }
    if delivery.progress == Progress::BeforeMail {
        merge(&mut events);
    }
    AttemptResult { settled, due, spent, counts: true, uncertain, at: about.now, events }
}

/// The result of a failure before any transaction: no recipient is settled, unless the lifetime is over.
pub(super) fn of_failure(reason: &Reason, about: &AttemptContext<'_>) -> AttemptResult {
    let answers = vec![Answer::Temporary(reason.clone()); about.recipients.len()];
    of_delivery(&Delivery::unsent(Progress::BeforeMail, answers), about)
}

/// The result of a wait without a usable account: it uses up lifetime. It is not an attempt, so no back-off
/// follows.
pub(super) fn of_wait(
    reason: &str,
    waited: Span,
    until: Timestamp,
    about: &AttemptContext<'_>,
) -> AttemptResult {
    let reason = Reason::own("4.3.5", reason.to_owned());
    let is_over =
        about.item.spent.as_micros().saturating_add(waited.as_micros()) >= about.retry.lifetime.as_micros();
    let (mut settled, mut events) = (Vec::new(), Vec::new());
    let again = NextAttempt { kind: EventKind::Failed, until };
    for index in about.recipients {
        if is_over {
            let state = expire(&reason, about);
            events.extend(event_of(*index, &state, about));
            settled.push((*index, state));
        } else {
            events.push(again.event(*index, &reason.text, about));
        }
    }
    merge(&mut events);
    let due = about.item.due;
    AttemptResult { settled, due, spent: waited, counts: false, uncertain: false, at: about.now, events }
}

/// The result of a fault of the relay itself: the server may have got the message.
pub(super) fn of_fault(reason: &str, about: &AttemptContext<'_>) -> AttemptResult {
    let answer = Answer::Temporary(Reason::own("4.3.0", reason.to_owned()));
    let answers = vec![answer; about.recipients.len()];
    of_delivery(&Delivery::unsent(Progress::Unknown, answers), about)
}

/// The result if a limit rejects all recipients.
pub(super) fn of_rejection(reason: &str, about: &AttemptContext<'_>) -> AttemptResult {
    of_refusal("5.7.1", format!("rate limit exceeded: {reason}"), about)
}

/// The result if all recipients fail without an attempt.
pub(super) fn of_refusal(status: &str, reason: String, about: &AttemptContext<'_>) -> AttemptResult {
    let reason = Reason::own(status, reason);
    let answers = vec![Answer::Permanent(reason); about.recipients.len()];
    let delivery = Delivery::unsent(Progress::BeforeMail, answers);
    AttemptResult { counts: false, ..of_delivery(&delivery, about) }
}

/// The name of an account or a host, if it has one.
pub(super) fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

fn last(reason: &Reason, about: &AttemptContext<'_>) -> Final {
    Final {
        at: about.now,
        status: reason.status.clone(),
        reply: reason.text.clone(),
        remote: reason.remote.then(|| about.remote.to_owned()),
        reports: false,
    }
}

fn expire(reason: &Reason, about: &AttemptContext<'_>) -> RecipientState {
    let last = last(reason, about);
    let reply = format!("not delivered before the retries ended; last error: {}", last.reply);
    RecipientState::Failed(Final { status: "5.4.7".to_owned(), reply, remote: None, ..last })
}

/// The data for recipients that wait for another attempt.
struct NextAttempt {
    kind: EventKind,
    until: Timestamp,
}

impl NextAttempt {
    fn event(&self, recipient: u32, text: &str, about: &AttemptContext<'_>) -> Event {
        let until = (self.until > about.now).then_some(self.until);
        let text = text.to_owned();
        Event { recipient: Some(recipient), until, text, recipients: 1, ..blank(self.kind, about) }
    }
}

/// The event of a recipient that is settled.
fn event_of(recipient: u32, state: &RecipientState, about: &AttemptContext<'_>) -> Option<Event> {
    let (kind, last) = match state {
        RecipientState::Sent(last) => (EventKind::Sent, last),
        RecipientState::Failed(last) => (EventKind::Bounced, last),
        RecipientState::Waiting | RecipientState::Cancelled(_) => return None,
    };
    let text = last.reply.clone();
    Some(Event { recipient: Some(recipient), text, recipients: 1, ..blank(kind, about) })
}

/// Makes one event of all that wait for the same reason: no server spoke of them one by one.
fn merge(events: &mut Vec<Event>) {
    events.dedup_by(|next, first| {
        let same = (next.kind, &next.text) == (first.kind, &first.text) && first.until.is_some();
        if same {
            (first.recipients, first.recipient) = (first.recipients + next.recipients, None);
        }
        same
    });
}

/// The refusal of an account, as an event.
pub(super) fn refused(text: &str, until: Option<Timestamp>, about: &AttemptContext<'_>) -> Event {
    let recipients = u32::try_from(about.recipients.len()).unwrap_or(u32::MAX);
    let recipient = if let [only] = about.recipients { Some(*only) } else { None };
    Event { text: text.to_owned(), until, recipients, recipient, ..blank(EventKind::Failed, about) }
}

fn blank(kind: EventKind, about: &AttemptContext<'_>) -> Event {
    Event {
        domain: about.item.domain.clone(),
        account: named(about.account),
        remote: named(about.remote),
        ..Event::new(about.now, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::ItemRecipient;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn item(attempts: u32, spent: Span) -> Item {
        let waiting = |index| ItemRecipient { index, state: RecipientState::Waiting };
        Item {
            domain: "there.example".to_owned(),
            recipients: [0, 4, 7].map(waiting).to_vec(),
            attempts,
            failures: attempts,
            due: NOW,
            spent,
            possible_duplicate: false,
        }
    }

    fn reason(status: &str) -> Reason {
        Reason { status: status.to_owned(), text: format!("reply {status}"), remote: true }
    }

    fn result(item: &Item, progress: Progress, answers: Vec<Answer>) -> AttemptResult {
        let retry = Retry { jitter: 0, ..Retry::default() };
        let about = AttemptContext {
            item,
            recipients: &[0, 4, 7],
            account: "main",
            remote: "mx.example",
            retry: &retry,
            now: NOW,
            luck: 0,
        };
        of_delivery(&Delivery::unsent(progress, answers), &about)
    }

    #[test]
    fn each_recipient_is_settled_by_its_own_answer() {
        let answers = vec![
            Answer::Sent(reason("2.0.0")),
            Answer::Permanent(reason("5.1.1")),
            Answer::Temporary(reason("4.2.1")),
        ];
        let result = result(&item(1, Span::ZERO), Progress::Answered, answers);
        assert!(matches!(
            &result.settled[..],
            [(0, RecipientState::Sent(_)), (4, RecipientState::Failed(_))]
        ));
        assert_eq!(result.due, NOW + Span::from_secs(300), "the second wait of the schedule");
        assert_eq!(result.spent, Span::from_secs(300));
        assert!(result.counts && !result.uncertain);
        let events: Vec<_> = result
            .events
            .iter()
            .map(|event| (event.kind, event.recipient, &*event.text, event.until))
            .collect();
        let again = Some(result.due);
        assert_eq!(
            events,
            [
                (EventKind::Sent, Some(0), "reply 2.0.0", None),
                (EventKind::Bounced, Some(4), "reply 5.1.1", None),
                (EventKind::Failed, Some(7), "reply 4.2.1", again),
            ]
        );
    }

    #[test]
    fn recipients_for_another_transaction_are_due_at_once() {
        let answers = vec![Answer::Sent(reason("2.0.0")), Answer::Another, Answer::Another];
        let result = result(&item(0, Span::ZERO), Progress::Answered, answers);
        assert_eq!((result.settled.len(), result.due, result.spent), (1, NOW, Span::ZERO));
    }

    #[test]
    fn a_recipient_is_sent_only_if_the_server_answered_the_dot() {
        for progress in [Progress::BeforeMail, Progress::BeforeData, Progress::BeforeDot, Progress::Unknown] {
            let result = result(&item(0, Span::ZERO), progress, vec![Answer::Sent(reason("2.0.0")); 3]);
            assert_eq!((result.settled.len(), result.due), (0, NOW + Span::from_secs(120)), "{progress:?}");
        }
    }

    #[test]
    fn an_unknown_outcome_is_retried_and_marked() {
        let answers = vec![Answer::Temporary(reason("4.4.2")); 3];
        let result = result(&item(0, Span::ZERO), Progress::Unknown, answers);
        assert!(result.uncertain && result.settled.is_empty());
        assert!(result.events.iter().all(|event| event.kind == EventKind::Unknown));
        assert_eq!(result.events.len(), 3);
        assert_eq!(result.due, NOW + Span::from_secs(120));
    }

    #[test]
    fn recipients_that_no_server_spoke_of_share_an_event() {
        let answers = vec![Answer::Temporary(reason("4.4.1")); 3];
        let result = result(&item(0, Span::ZERO), Progress::BeforeMail, answers);
        let [event] = &result.events[..] else { panic!("one event") };
        assert_eq!((event.kind, event.recipients, event.recipient), (EventKind::Failed, 3, None));
    }

    #[test]
    fn an_item_whose_lifetime_is_over_fails() {
        let answers = vec![Answer::Temporary(reason("4.2.1")); 3];
        let result = result(&item(40, Retry::default().lifetime), Progress::Answered, answers);
        assert_eq!(result.settled.len(), 3);
        let (_, RecipientState::Failed(last)) = &result.settled[0] else { panic!("it fails") };
        assert_eq!((&*last.status, &last.remote), ("5.4.7", &None));
        assert!(last.reply.ends_with("reply 4.2.1"));
        assert!(result.events.iter().all(|event| event.kind == EventKind::Bounced));
    }
}
