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
    let mut settled = Vec::new();
    let mut failed_for_now = Vec::new();
    for (index, answer) in about.recipients.iter().zip(&delivery.answers) {
        match answer {
            // Whatever the server replies, the message counts as sent only if the server got the whole text.
            Answer::Sent(reason) if delivery.progress != Progress::Answered => {
                failed_for_now.push((*index, reason));
            }
            Answer::Sent(reason) => settled.push((
                *index,
                RecipientState::Sent(Final { reports: delivery.reports, ..last(reason, about) }),
            )),
            Answer::Permanent(reason) => settled.push((*index, RecipientState::Failed(last(reason, about)))),
            Answer::Temporary(reason) => failed_for_now.push((*index, reason)),
            Answer::Another => {}
        }
    }
    let uncertain = delivery.progress == Progress::Unknown;
    // Recipients for another transaction keep the item's place.
    let (mut due, mut spent) = (about.item.due.min(about.now), Span::ZERO);
    if !failed_for_now.is_empty() {
        match about.retry.after(about.item.failures, about.item.spent, about.now, about.luck) {
            NextTry::Again { due: at, spent: wait } => (due, spent) = (at, wait),
            NextTry::Expired => {
                let expired = failed_for_now.drain(..).map(|(index, reason)| (index, expire(reason, about)));
                settled.extend(expired);
            }
        }
    }
    let until = (due > about.now).then_some(due);
    let event = event(delivery, about, uncertain, until);
    AttemptResult { settled, due, spent, counts: true, uncertain, event }
}

/// The result of a failure before any transaction: no recipient is settled, unless the lifetime is over.
pub(super) fn of_failure(reason: &str, about: &AttemptContext<'_>) -> AttemptResult {
    let answer = Answer::Temporary(Reason::own("4.4.1", reason.to_owned()));
    let answers = vec![answer; about.recipients.len()];
    of_delivery(
        &Delivery { progress: Progress::BeforeMail, answers, throttled: false, reports: false },
        about,
    )
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
    let expired = about.recipients.iter().filter(|_| is_over).map(|index| (*index, expire(&reason, about)));
    let settled = expired.collect();
    let answers = vec![Answer::Temporary(reason); about.recipients.len()];
    let delivery = Delivery { progress: Progress::BeforeMail, answers, throttled: false, reports: false };
    let event = event(&delivery, about, false, (!is_over).then_some(until));
    AttemptResult { settled, due: about.item.due, spent: waited, counts: false, uncertain: false, event }
}

/// The result of a fault of the relay itself: the server may have got the message.
pub(super) fn of_fault(reason: &str, about: &AttemptContext<'_>) -> AttemptResult {
    let answer = Answer::Temporary(Reason::own("4.3.0", reason.to_owned()));
    let answers = vec![answer; about.recipients.len()];
    of_delivery(&Delivery { progress: Progress::Unknown, answers, throttled: false, reports: false }, about)
}

/// The result if a limit rejects all recipients.
pub(super) fn of_rejection(reason: &str, about: &AttemptContext<'_>) -> AttemptResult {
    of_refusal("5.7.1", format!("rate limit exceeded: {reason}"), about)
}

/// The result if all recipients fail without an attempt.
pub(super) fn of_refusal(status: &str, reason: String, about: &AttemptContext<'_>) -> AttemptResult {
    let reason = Reason::own(status, reason);
    let answers = vec![Answer::Permanent(reason); about.recipients.len()];
    let delivery = Delivery { progress: Progress::BeforeMail, answers, throttled: false, reports: false };
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

fn event(
    delivery: &Delivery,
    about: &AttemptContext<'_>,
    uncertain: bool,
    until: Option<Timestamp>,
) -> Event {
    let any = |wanted: fn(&Answer) -> bool| delivery.answers.iter().any(wanted);
    let kind = if uncertain {
        EventKind::Unknown
    } else if any(|answer| matches!(answer, Answer::Sent(_))) {
        EventKind::Sent
    } else if any(|answer| matches!(answer, Answer::Temporary(_))) && until.is_some() {
        EventKind::Failed
    } else {
        EventKind::Bounced
    };
    // The worst answer explains most.
    let rank = |answer: &&Answer| match answer {
        Answer::Permanent(_) => 3,
        Answer::Temporary(_) => 2,
        Answer::Sent(_) => 1,
        Answer::Another => 0,
    };
    let text = match delivery.answers.iter().max_by_key(rank) {
        Some(Answer::Permanent(reason) | Answer::Temporary(reason) | Answer::Sent(reason)) => {
            reason.text.clone()
        }
        Some(Answer::Another) | None => String::new(),
    };
    Event {
        domain: about.item.domain.clone(),
        account: named(about.account),
        remote: named(about.remote),
        text,
        until,
        recipients: u32::try_from(about.recipients.len()).unwrap_or(u32::MAX),
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
        of_delivery(&Delivery { progress, answers, throttled: false, reports: false }, &about)
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
        assert_eq!((result.event.kind, &*result.event.text), (EventKind::Sent, "reply 5.1.1"));
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
        assert_eq!(result.event.kind, EventKind::Unknown);
        assert_eq!(result.due, NOW + Span::from_secs(120));
    }

    #[test]
    fn an_item_whose_lifetime_is_over_fails() {
        let answers = vec![Answer::Temporary(reason("4.2.1")); 3];
        let result = result(&item(40, Retry::default().lifetime), Progress::Answered, answers);
        assert_eq!(result.settled.len(), 3);
        let (_, RecipientState::Failed(last)) = &result.settled[0] else { panic!("it fails") };
        assert_eq!((&*last.status, &last.remote), ("5.4.7", &None));
        assert!(last.reply.ends_with("reply 4.2.1"));
        assert_eq!(result.event.kind, EventKind::Bounced);
    }
}
