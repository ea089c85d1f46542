//! Tries every command that the store or its scripts use, in a form that changes nothing.
//!
//! A refused script does not always name the forbidden command, and stops at the first one. So each command
//! is tried on its own. A server checks permissions first, so a command that fails for another reason is
//! permitted.

use super::facts::Facts;
use super::talk::{Silence, Talk, command};
use crate::resp::Reply;
use crate::settings::Topology;

/// A key that holds a text for a moment. Commands for other types fail on it.
const GUARD: &[&str] = &["SET", "KEY", "guard", "PX", "5000"];

/// Commands on the guarded key. None of them changes it.
const COMMANDS: &[&[&str]] = &[
    &["EVAL", "return", "1", "KEY"],
    &["EVALSHA", "0000000000000000000000000000000000000000", "1", "KEY"],
    &["EXISTS", "KEY"],
    &["EXISTS", "RECORD"],
    &["GET", "KEY"],
    &["GETRANGE", "KEY", "0", "0"],
    &["HDEL", "KEY", "a"],
    &["HEXISTS", "KEY", "a"],
    &["HGET", "KEY", "a"],
    &["HGETALL", "KEY"],
    &["HLEN", "KEY"],
    &["HMGET", "KEY", "a"],
    &["HSCAN", "KEY", "0"],
    &["HSET", "KEY", "a", "b", "odd"],
    &["LINDEX", "KEY", "0"],
    &["LLEN", "KEY"],
    &["LRANGE", "KEY", "0", "0"],
    &["LREM", "KEY", "0", "a"],
    &["LSET", "KEY", "0", "a"],
    &["LTRIM", "KEY", "0", "0"],
    &["MGET", "KEY"],
    &["PERSIST", "NOWHERE"],
    &["PEXPIRE", "KEY", "5000"],
    &["SCAN", "0", "COUNT", "1"],
    &["TIME"],
    &["TYPE", "KEY"],
    &["ZRANGEBYSCORE", "KEY", "0", "0"],
    &["ZREM", "KEY", "a"],
];

/// These would create the key if it were not guarded.
const GUARDED: &[&[&str]] = &[
    &["HSETNX", "KEY", "a", "b"],
    &["RPUSH", "KEY", "a"],
    &["SETRANGE", "KEY", "0", "g"],
    &["ZADD", "KEY", "0", "a"],
];

/// These delete it.
const LAST: &[&[&str]] = &[&["UNLINK", "KEY"], &["DEL", "KEY"]];

const IN_CLUSTER: &[&[&str]] = &[&["CLUSTER", "SLOTS"], &["ASKING"]];
const UNDER_SENTINEL: &[&[&str]] = &[&["ROLE"]];

/// Every command that a store with this topology uses, as text in which `KEY` stands for a key.
pub(crate) fn needs(topology: &Topology) -> Vec<String> {
    let lists = [&[GUARD], COMMANDS, GUARDED, LAST, besides(topology)];
    lists
        .into_iter()
        .flatten()
        .map(|words| words.join(" ").replace("NOWHERE", "KEY").replace("RECORD", "KEY"))
        .collect()
}

/// The command of such a text, in the form of an ACL.
pub(crate) fn acl_name(line: &str) -> String {
    named(&line.split(' ').collect::<Vec<_>>())
}

/// The further commands of a topology.
fn besides(topology: &Topology) -> &'static [&'static [&'static str]] {
    match topology {
        Topology::Single(_) => &[],
        Topology::Sentinel { .. } => UNDER_SENTINEL,
        Topology::Cluster { .. } => IN_CLUSTER,
    }
}

/// Tries them all on a key, and records the forbidden ones.
pub(super) async fn try_all(
    talk: &mut Talk,
    [key, record]: [&str; 2],
    topology: &Topology,
    facts: &mut Facts,
) -> Result<(), Silence> {
    let guard = talk.send(&written(&[GUARD], key, record)).await?;
    let guarded = !matches!(guard, Reply::Error(_));
    note(&[guard], &[GUARD], facts);
    let mut list = COMMANDS.to_vec();
    list.extend_from_slice(if guarded { GUARDED } else { &[] });
    list.extend_from_slice(LAST);
    list.extend_from_slice(besides(topology));
    let replies = talk.send_all(&written(&list, key, record), list.len()).await?;
    note(&replies, &list, facts);
    Ok(())
}

fn written(list: &[&[&str]], key: &str, record: &str) -> Vec<u8> {
    // In the same slot as the key, so that a Cluster does not redirect.
    let nowhere = format!("{key}:nowhere");
    let fill = |word: &&str| match *word {
        "KEY" => key.to_owned(),
        "NOWHERE" => nowhere.clone(),
        // In any slot: a server checks permissions before it redirects.
        "RECORD" => record.to_owned(),
        word => word.to_owned(),
    };
    list.iter()
        .flat_map(|words| {
            let words: Vec<String> = words.iter().map(fill).collect();
            command(&words.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect()
}

fn note(replies: &[Reply], list: &[&[&'static str]], facts: &mut Facts) {
    for (reply, words) in replies.iter().zip(list) {
        facts.tried += 1;
        let Reply::Error(error) = reply else { continue };
        // A renamed command counts as forbidden.
        if error.starts_with("ERR unknown command") || error.starts_with("NOPERM") && is_command(error) {
            let name = named(words);
            if !facts.forbidden.contains(&name) {
                facts.forbidden.push(name);
            }
        } else if error.starts_with("NOPERM") {
            facts.keys_forbidden = true;
        }
    }
}

/// Whether a refusal is about the command and not about its key.
fn is_command(error: &str) -> bool {
    error.contains("' command")
}

/// A command in the form of an ACL.
fn named(words: &[&str]) -> String {
    match words {
        ["CLUSTER", which, ..] => format!("cluster|{}", which.to_ascii_lowercase()),
        [word, ..] => word.to_ascii_lowercase(),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_scripts_is_tried() {
        let lists = [&[GUARD], COMMANDS, GUARDED, LAST];
        let tried: Vec<&str> = lists.into_iter().flatten().map(|words| words[0]).collect();
        let mut found = 0;
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lua")).unwrap() {
            let script = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for call in ["redis.call('", "change('", "later(i, '", "later(1, '", "{ '"] {
                for rest in script.split(call).skip(1) {
                    let command = rest.split('\'').next().unwrap();
                    assert!(tried.contains(&command), "`{command}` is not tried");
                    found += 1;
                }
            }
        }
        assert!(found > 30, "only {found} calls were found");
    }

    #[test]
    fn a_refused_key_is_told_from_a_refused_command() {
        let mut facts = Facts::default();
        let error = |text: &str| Reply::Error(text.to_owned());
        let replies = [
            error("NOPERM this user has no permissions to run the 'get' command"),
            error("NOPERM User limiter has no permissions to run the 'cluster|slots' command"),
            error("ERR unknown command 'DEL', with args beginning with: 'a'"),
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ];
        note(
            &replies,
            &[&["GET", "KEY"], &["CLUSTER", "SLOTS"], &["DEL", "KEY"], &["HLEN", "KEY"]],
            &mut facts,
        );
        assert_eq!(facts.forbidden, ["get", "cluster|slots", "del"]);
        assert!(!facts.keys_forbidden && facts.tried == 4);
        for refused in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            let mut facts = Facts::default();
            note(&[error(refused)], &[&["GET", "KEY"]], &mut facts);
            assert!(facts.keys_forbidden && facts.forbidden.is_empty());
        }
    }
}
