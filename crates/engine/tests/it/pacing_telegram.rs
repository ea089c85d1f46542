//! Telegram's rules over virtual minutes: 30 a second over all chats, one a second to a chat, 20 a minute to
//! a group, in any second and any minute. And an API that accepts ten requests a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::pacing::{Trace, Track, in_virtual_time, waiting};
use crate::support::policies;
use tollgate_core::Policies;

fn telegram() -> Policies {
    let rules = vec![
        waiting("all", &[], &["30/s sliding"]),
        waiting("chat", &["chat"], &["1/s sliding"]),
        waiting("group", &["group"], &["20/min sliding"]),
    ];
    policies(rules, &[("telegram", &["all", "chat", "group"])])
}

/// The recipient of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Chat(u32),
    Group(u32),
}

impl To {
    fn fields(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Chat(chat) => vec![("chat", chat.to_string())],
            Self::Group(group) => vec![("chat", format!("-{group}")), ("group", format!("-{group}"))],
        }
    }
}

/// Sends all messages at once, and returns when each was sent, by recipient.
async fn send_all(messages: impl IntoIterator<Item = To>) -> BTreeMap<To, Vec<u64>> {
    let track = Track::new(telegram()).await;
    let trace: Trace<(To, u64)> = Trace::default();
    let tasks = messages.into_iter().map(|to| track.send("telegram", to.fields(), &trace, to));
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it is let go");
    }
    let mut times: BTreeMap<To, Vec<u64>> = BTreeMap::new();
    for (to, at) in trace.lock().iter() {
        times.entry(*to).or_default().push(*at);
    }
    times
}

/// The most messages that were sent in any interval of this length.
fn most_within(millis: u64, mut times: Vec<u64>) -> usize {
    times.sort_unstable();
    let within = |start: &u64| times.iter().filter(|at| (*start..*start + millis).contains(at)).count();
    times.iter().map(within).max().unwrap_or(0)
}

#[test]
fn one_chat_gets_a_message_a_second() {
    let times = in_virtual_time(send_all([To::Chat(1); 90]));
    let expected: Vec<u64> = (0..90).map(|second| 1_000 * second).collect();
    assert_eq!(times[&To::Chat(1)], expected);
}

#[test]
fn many_chats_get_thirty_messages_a_second() {
    let times = in_virtual_time(send_all((0..3_000).map(To::Chat)));
    for (to, at) in times {
        let To::Chat(chat) = to else { unreachable!() };
        assert_eq!(at, [u64::from(chat / 30) * 1_000], "chat {chat}");
    }
}

#[test]
fn a_group_gets_twenty_messages_a_minute_a_second_apart() {
    let times = in_virtual_time(send_all([To::Group(1); 70]));
    let expected: Vec<u64> = (0..70).map(|n| 60_000 * (n / 20) + 1_000 * (n % 20)).collect();
    assert_eq!(times[&To::Group(1)], expected);
}

#[test]
fn chats_within_the_shared_limit_do_not_delay_each_other() {
    let groups = (0..5).flat_map(|group| [To::Group(group); 50]);
    let chats = (0..20).flat_map(|chat| [To::Chat(chat); 50]);
    let times = in_virtual_time(send_all(groups.chain(chats)));
    for (to, at) in times {
        let expected: Vec<u64> = match to {
            To::Chat(_) => (0..50).map(|n| 1_000 * n).collect(),
            To::Group(_) => (0..50).map(|n| 60_000 * (n / 20) + 1_000 * (n % 20)).collect(),
        };
        assert_eq!(at, expected, "{to:?}");
    }
}

#[test]
fn where_too_many_want_to_go_all_of_it_is_used_and_all_get_the_same() {
    // Sixty chats and three groups want more than thirty a second for two minutes.
    let round = |round| {
        let groups = (0..3).filter(move |_| round < 40).map(To::Group);
        groups.chain((0..60).map(To::Chat))
    };
    let messages: Vec<To> = (0..60).flat_map(round).collect();
    let total = messages.len();
    let times = in_virtual_time(send_all(messages));
    let all: Vec<u64> = times.values().flatten().copied().collect();
    assert_eq!(all.len(), total);
    assert_eq!(most_within(1_000, all.clone()), 30);
    for (to, at) in &times {
        assert_eq!(most_within(1_000, at.clone()), 1, "{to:?}");
        if let To::Group(_) = to {
            assert!(most_within(60_000, at.clone()) <= 20, "{to:?}");
            let first_minute = at.iter().filter(|at| **at < 60_000).count();
            assert_eq!(first_minute, 20, "{to:?} is not held up by the chats");
        }
    }
    for second in 0..120 {
        let sent = all.iter().filter(|at| **at == second * 1_000).count();
        assert_eq!(sent, 30, "in second {second}");
        let by_then = |at: &Vec<u64>| at.iter().filter(|at| **at <= second * 1_000).count();
        let chats = times.iter().filter(|(to, _)| matches!(to, To::Chat(_))).map(|(_, at)| by_then(at));
        let (least, most) = chats.fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
        assert!(most - least <= 1, "after second {second}: {least} to {most}");
    }
}

#[test]
fn an_api_gets_ten_requests_a_second_evenly() {
    let even = in_virtual_time(async {
        let rules = vec![waiting("basic", &["key"], &["10/s burst 1"])];
        let track = Track::new(policies(rules, &[("ton", &["basic"])])).await;
        let trace: Trace<(u64, u64)> = Trace::default();
        let tasks = (0..600).map(|n| track.send("ton", vec![("key", "basic".into())], &trace, n));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        Arc::into_inner(trace).unwrap().into_inner()
    });
    let expected: Vec<(u64, u64)> = (0..600).map(|n| (n, 100 * n)).collect();
    assert_eq!(even, expected);
}
