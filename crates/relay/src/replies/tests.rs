//! Replies of real servers, and what follows from them.

use proptest::prelude::*;

use super::ReplyStage::{Connect, Data, Hello, Login, Mail, Recipient, Text};
use super::*;

const SLEEP: Verdict = Verdict::Rest(Rest::Sleep(None));
const SLOW: Verdict = Verdict::Rest(Rest::Slow);

fn judge(peer: Peer, stage: ReplyStage, text: &str) -> Verdict {
    let code = text[..3].parse().unwrap();
    ReplyRules::default().judge(RefusedReply { stage, peer, code, text })
}

/// Replies of real servers, and their consequence for an account.
const REAL: &[(ReplyStage, &str, Verdict)] = &[
    // Google
    (
        Data,
        "550 5.4.5 Daily user sending limit exceeded. For more information on Gmail 5.4.5 sending limits go to 5.4.5 https://support.google.com/a/answer/166852",
        SLEEP,
    ),
    (Data, "550 5.4.5 Daily user sending quota exceeded. 4-20020a05", SLEEP),
    (
        Data,
        "550 5.7.1 Daily SMTP relay 5.7.1 limit exceeded for customer. For more information on SMTP relay",
        SLEEP,
    ),
    (
        Recipient,
        "450 4.2.1 The user you are trying to contact is receiving mail too quickly. Please resend later",
        Verdict::Retry,
    ),
    (Recipient, "452 4.2.2 The email account that you tried to reach is over quota", Verdict::Retry),
    (
        Recipient,
        "552 5.2.2 The email account that you tried to reach is over quota and inactive",
        Verdict::Bounce,
    ),
    (Recipient, "550 5.1.1 The email account that you tried to reach does not exist", Verdict::Bounce),
    (
        Text,
        "421 4.7.28 Our system has detected an unusual rate of unsolicited mail originating from your IP address",
        SLOW,
    ),
    (
        Text,
        "550 5.7.26 Unauthenticated email from there.example is not accepted due to domain's DMARC policy",
        Verdict::Bounce,
    ),
    (Login, "535 5.7.8 Username and Password not accepted", Verdict::Rest(Rest::Login)),
    (Login, "454 4.7.0 Too many login attempts, please try again later", SLOW),
    // Amazon SES
    (Mail, "454 4.7.0 Throttling failure: Maximum sending rate exceeded.", SLOW),
    (Data, "454 Throttling failure: Maximum sending rate exceeded.", SLOW),
    (Data, "454 4.7.0 Throttling failure: Daily message quota exceeded.", SLEEP),
    (Text, "554 Sending suspended for this account. For more information, please check the inbox", SLEEP),
    (Text, "554 Message rejected: Email address is not verified.", Verdict::Bounce),
    // Microsoft
    (
        Text,
        "550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients",
        SLEEP,
    ),
    (Text, "554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException", SLEEP),
    (Text, "432 4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded", SLOW),
    (Recipient, "550 5.1.8 Access denied, bad outbound sender AS(42004)", SLEEP),
    (Text, "550 5.7.705 Access denied, tenant has exceeded threshold", SLEEP),
    (Mail, "451 4.7.500 Server busy. Please try again later from [192.0.2.1]", SLOW),
    // Hosters, panels and Postfix
    (
        Text,
        "550 Domain acme.example has exceeded the max emails per hour (100/100 (100%)) allowed. Message discarded.",
        SLEEP,
    ),
    (Recipient, "552 5.2.2 Message would take you over your relay quota of 500", SLEEP),
    (
        Mail,
        "550 app@here.example has exceeded its 24-hour sending limit. Messages to 500 recipients out of 500 allowed have been sent.",
        SLEEP,
    ),
    (Text, "550 5.7.0 Requested action not taken: too many emails per second", SLOW),
    (Mail, "421 4.7.0 mx.example Error: too many connections from 192.0.2.1", SLOW),
    (Text, "554 5.4.6 Error: too many hops", Verdict::Bounce),
    (Mail, "552 5.3.4 Message size exceeds fixed limit", Verdict::Bounce),
    (Mail, "450 4.1.8 <app@here.example>: Sender address rejected: Domain not found", Verdict::Retry),
    (Mail, "553 5.7.1 <x@other.example>: Sender address rejected: not owned by user app", Verdict::Next),
    (
        Recipient,
        "450 4.2.0 <a@there.example>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch",
        Verdict::Retry,
    ),
    (Recipient, "451 4.7.1 Greylisting in action, please come back later", Verdict::Retry),
    (Recipient, "450 4.7.1 Please come back in 300 seconds", Verdict::Retry),
    (Recipient, "450 4.7.1 slow down", Verdict::SlowDomain),
    (Data, "451 4.7.1 Greylisted", Verdict::Retry),
    (Recipient, "554 5.7.1 <a@there.example>: Relay access denied", Verdict::Next),
    (Recipient, "530 5.7.0 Authentication required", Verdict::Next),
    (
        Recipient,
        "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org",
        Verdict::Next,
    ),
    (Recipient, "452 4.5.3 Error: too many recipients", Verdict::Retry),
    (Data, "554 5.5.1 Error: no valid recipients", Verdict::Next),
    (Text, "554 5.7.1 Message rejected as spam", Verdict::Bounce),
    (Text, "552 5.2.2 mailbox full", Verdict::Bounce),
    (Text, "552 Mailbox quota exceeded", Verdict::Bounce),
    (Text, "451 4.3.0 Temporary lookup failure", Verdict::Retry),
    (Connect, "554 5.7.1 No SMTP service here", SLOW),
    (Connect, "421 4.3.2 Service not available", SLOW),
    (Hello, "550 5.7.1 Your account has been suspended", SLEEP),
    (Login, "535 5.7.0 Your account has been disabled", SLEEP),
];

#[test]
fn replies_of_real_servers_are_about_what_they_say() {
    for (stage, text, verdict) in REAL {
        assert_eq!(judge(Peer::Account, *stage, text), *verdict, "{stage:?} {text}");
    }
}

#[test]
fn a_host_speaks_of_its_own_mailboxes() {
    for (stage, text, verdict) in [
        (Text, "552 quota exceeded", Verdict::Bounce),
        (Recipient, "554 5.7.1 Relay access denied", Verdict::Bounce),
        (Mail, "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to user complaints", SLOW),
        (Connect, "554 5.7.1 blocked", SLOW),
    ] {
        assert_eq!(judge(Peer::Host, stage, text), verdict, "{stage:?} {text}");
    }
}

#[test]
fn a_rule_of_the_operator_comes_first_and_only_at_its_stages() {
    let rule = |pattern: &str, stages: &[ReplyStage], verdict| ReplyRule {
        pattern: ReplyPattern::new(pattern).unwrap(),
        stages: stages.to_vec(),
        verdict,
    };
    let nap = Verdict::Rest(Rest::Sleep(Some(Span::from_secs(600))));
    let rules = ReplyRules::new(vec![
        rule("550*LIMITE di*raggiunto", &[], nap),
        rule("5.4.5", &[Data], Verdict::Bounce),
    ]);
    let judge = |stage, text: &str| {
        rules.judge(RefusedReply { stage, peer: Peer::Account, code: text[..3].parse().unwrap(), text })
    };
    assert_eq!(judge(Text, "550 Limite di\u{a0}invio giornaliero raggiunto"), nap);
    assert_eq!(judge(Text, "550 raggiunto limite di"), Verdict::Bounce, "the order counts");
    assert_eq!(judge(Data, "550 5.4.5 Daily user sending limit exceeded"), Verdict::Bounce);
    assert_eq!(judge(Mail, "550 5.4.5 Daily user sending limit exceeded"), SLEEP);
    assert_eq!((ReplyPattern::new("*"), ReplyPattern::new(" ")), (None, None));
}

proptest! {
    #[test]
    fn only_a_5xx_about_a_recipient_or_a_text_bounces(
        stage in prop::sample::select(vec![Connect, Hello, Login, Mail, Recipient, Data, Text]),
        code in 200_u16..600,
        words in "[ -~]{0,60}",
    ) {
        for peer in [Peer::Account, Peer::Host] {
            let text = format!("{code} {words}");
            if ReplyRules::default().judge(RefusedReply { stage, peer, code, text: &text }) == Verdict::Bounce {
                prop_assert!(code >= 500);
                prop_assert!(matches!(stage, Recipient | Text | Mail | Data), "{:?} {}", stage, text);
            }
        }
    }
}
