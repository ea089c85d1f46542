//! The table of replies whose words say more than their stage: quotas, rates, suspensions, and what only looks like them.
//!
//! The words are those of real servers. A pattern has parts in their order, with `*` between them. The first row that fits
//! counts, so that narrow rows come before wide ones.

use ReplyStage::{Connect, Data, Hello, Login, Mail, Recipient, Text};

use super::{Peer, RefusedReply, ReplyStage, Rest, Verdict, in_order, usual};

/// One row: at these stages, from these peers, these words have this consequence.
struct TableRow {
    stages: &'static [ReplyStage],
    peers: &'static [Peer],
    words: &'static [&'static str],
    then: Then,
}

/// The consequence of a row.
#[derive(Clone, Copy)]
enum Then {
    /// The consequence of the stage: the words look like those of a later row, but are not.
    Usual,
    /// It is about the message: 4xx is retried, and 5xx fails for good.
    OfMessage,
    Says(Verdict),
}

const ALL: &[ReplyStage] = &[Connect, Hello, Login, Mail, Recipient, Data, Text];
const OF_ACCOUNT: &[ReplyStage] = &[Connect, Hello, Login, Mail, Data];
const BUT_RECIPIENT: &[ReplyStage] = &[Connect, Hello, Login, Mail, Data, Text];
const OF_MESSAGE: &[ReplyStage] = &[Mail, Data, Text];
const MAILBOX: &[ReplyStage] = &[Recipient, Text];

const ANY: &[Peer] = &[Peer::Account, Peer::Host];
const ACCOUNT: &[Peer] = &[Peer::Account];

const SLEEP: Then = Then::Says(Verdict::Rest(Rest::Sleep(None)));
const SLOW: Then = Then::Says(Verdict::Rest(Rest::Slow));
const NEXT: Then = Then::Says(Verdict::Next);

/// Words that only a sender is told about its own quota or suspension.
const SENDERS_QUOTA: &[&str] = &[
    "550 5.4.5",
    "552 5.4.5",
    "550 5.1.90",
    "550 5.7.705",
    "550 5.7.232",
    "550 5.7.233",
    "550 5.7.501",
    "bad outbound sender",
    "smtp relay limit",
    "relay quota",
    "relaying quota",
    "sending limit",
    "sending quota",
    "sending has been",
    "sending is suspended",
    "sending is disabled",
    "sending paused",
    "sending suspended",
    "sending disabled",
    "suspended from sending",
    "submission quota",
    "submissionquotaexceeded",
    "message quota exceeded",
    "outbound*quota",
    "outgoing*quota",
    "outgoing*limit",
    "max emails per hour",
    "max*messages per hour",
    "emails per day",
    "messages per day",
    "daily limit for message recipients",
    "email limit",
    "your account*suspended",
    "your account*disabled",
    "your account*blocked",
    "your account*restricted",
];

/// Words of a full or busy mailbox, and of other things that are too many.
const OF_MAILBOX: &[&str] = &[
    "450 4.2.",
    "451 4.2.",
    "452 4.2.",
    "550 5.2.",
    "552 5.2.",
    "553 5.2.",
    "554 5.2.",
    "mailbox",
    "recipient*quota",
    "user*over quota",
    "user*is over",
    "too many hops",
    "too many received",
    "too many recipients",
];

/// Words of a quota or a suspension, where a server speaks of the account.
const QUOTA: &[&str] = &[
    "quota*exceeded",
    "exceeded*quota",
    "over*quota",
    "quota*reached",
    "reached*quota",
    "daily*limit",
    "daily*quota",
    "hourly*limit",
    "hourly*quota",
    "monthly*limit",
    "monthly*quota",
    "limit*per hour",
    "limit*per day",
    "per hour*limit",
    "per day*limit",
    "limit*24 hours",
    "limit*24-hour",
    "account*suspended",
    "account*disabled",
    "account*deactivated",
    "account*locked",
    "account*on hold",
    "account*terminated",
    "user*suspended",
    "domain*suspended",
    "service*suspended",
    "has been suspended",
];

/// Words of a server that wants less mail in the same time.
const RATE: &[&str] = &[
    "throttl",
    "rate limit",
    "rate-limit",
    "ratelimit",
    "limit*rate",
    "rate*exceeded",
    "exceeded*rate",
    "exceeds*rate",
    "sending rate",
    "unusual rate",
    "unusual volume",
    "too many",
    "too much mail",
    "too fast",
    "too quickly",
    "too frequent",
    "per second",
    "per minute",
    "slow down",
    "concurrent connections",
    "connection limit",
    "thread limit",
];

/// Words of a server that wants to see the message again.
const GREYLISTED: &[&str] = &["greylist", "graylist", "grey-list", "grey list", "gray list"];

/// Words and statuses that are about a sender's address or a text, whatever was asked.
const ABOUT_MESSAGE: &[&str] = &[
    "501 5.1.7",
    "550 5.1.7",
    "553 5.1.7",
    "450 4.1.8",
    "451 4.1.8",
    "550 5.1.8",
    "553 5.1.8",
    "552 5.3.4",
    "552 5.2.3",
    "550 5.6.",
    "552 5.6.",
    "554 5.6.",
    "message*too large",
    "message*too big",
    "size exceeds",
    "exceeds*size",
    "maximum message size",
];

/// Words about the client at RCPT: the account lacks a login, or its server does not want this relay.
const ABOUT_CLIENT: &[&str] = &[
    "authentication required",
    "authentication is required",
    "authenticate first",
    "must authenticate",
    "not authenticated",
    "must issue a starttls",
    "client host",
    "blocked using",
    "spamhaus",
    "your ip",
];
const RELAY_DENIED: &[&str] = &[
    "relay*denied",
    "relaying*denied",
    "relaying*not",
    "relay not",
    "unable to relay",
    "not allowed to relay",
];

const TABLE: &[TableRow] = &[
    TableRow { stages: ALL, peers: ANY, words: SENDERS_QUOTA, then: SLEEP },
    TableRow { stages: MAILBOX, peers: ANY, words: GREYLISTED, then: Then::Says(Verdict::Retry) },
    TableRow { stages: OF_MESSAGE, peers: ANY, words: GREYLISTED, then: Then::Says(Verdict::Retry) },
    TableRow { stages: OF_MESSAGE, peers: ANY, words: ABOUT_MESSAGE, then: Then::OfMessage },
    TableRow { stages: MAILBOX, peers: ANY, words: OF_MAILBOX, then: Then::Usual },
    TableRow { stages: OF_ACCOUNT, peers: ANY, words: QUOTA, then: SLEEP },
    TableRow { stages: &[Text], peers: ACCOUNT, words: QUOTA, then: SLEEP },
    TableRow { stages: BUT_RECIPIENT, peers: ANY, words: RATE, then: SLOW },
    TableRow { stages: &[Recipient], peers: ANY, words: RATE, then: Then::Says(Verdict::SlowDomain) },
    TableRow { stages: &[Recipient], peers: ANY, words: ABOUT_CLIENT, then: NEXT },
    TableRow { stages: &[Recipient], peers: ACCOUNT, words: RELAY_DENIED, then: NEXT },
];

/// The verdict of the table on a refusal, whose text is in lower case; `None` if no row fits.
pub(super) fn judge(refusal: RefusedReply<'_>, text: &str) -> Option<Verdict> {
    let RefusedReply { stage, peer, code, .. } = refusal;
    let fits = |row: &&TableRow| {
        row.stages.contains(&stage)
            && row.peers.contains(&peer)
            && row.words.iter().any(|words| in_order(words.split('*'), text))
    };
    // Only a refusal is worth a look: `354 send slow down` is none.
    let row = TABLE.iter().filter(|_| matches!(code, 400..=599)).find(fits)?;
    Some(match row.then {
        Then::Usual => usual(stage, code),
        Then::OfMessage if code >= 500 => Verdict::Bounce,
        Then::OfMessage => Verdict::Retry,
        Then::Says(verdict) => verdict,
    })
}
