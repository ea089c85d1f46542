//! The recorded form of list entries: the stance, and then on each line a word and its value. Unknown words
//! are skipped, so that nodes of several versions can share the records.

use tollgate_core::{Author, Listing, Stance, Target, Timestamp};

/// The recorded form of an entry. Its target is the record's name.
pub(super) fn written(listing: &Listing) -> Vec<u8> {
    let mut lines = vec![listing.stance.name().to_owned()];
    lines.push(format!("since {}", listing.since.as_micros()));
    lines.extend(listing.until.map(|until| format!("until {}", until.as_micros())));
    match &listing.author {
        Author::Configuration => {}
        Author::Key(name) => lines.push(format!("key {name}")),
        Author::Rule(name) => lines.push(format!("rule {name}")),
    }
    if listing.times > 0 {
        lines.push(format!("times {}", listing.times));
    }
    if !listing.reason.is_empty() {
        let word = if listing.show_reason { "told" } else { "reason" };
        lines.push(format!("{word} {}", listing.reason.replace(char::is_control, " ")));
    }
    lines.join("\n").into_bytes()
}

/// Reads the recorded entry of a target.
pub(super) fn read(target: Target, value: &[u8]) -> Option<Listing> {
    let text = std::str::from_utf8(value).ok()?;
    let mut lines = text.lines();
    let stance = match lines.next()? {
        "block" => Stance::Block,
        "allow" => Stance::Allow,
        _ => return None,
    };
    let mut listing = Listing {
        target,
        stance,
        since: Timestamp::ZERO,
        until: None,
        reason: "".into(),
        show_reason: false,
        author: Author::Key("".into()),
        times: 0,
    };
    let moment = |text: &str| text.parse().ok().map(Timestamp::from_micros);
    for (word, rest) in lines.map(|line| line.split_once(' ').unwrap_or((line, ""))) {
        match word {
            "since" => listing.since = moment(rest)?,
            // A ban must not become permanent because its end cannot be read.
            "until" => listing.until = Some(moment(rest)?),
            "key" => listing.author = Author::Key(rest.into()),
            "rule" => listing.author = Author::Rule(rest.into()),
            "times" => listing.times = rest.parse().ok()?,
            "reason" | "told" => (listing.reason, listing.show_reason) = (rest.into(), word == "told"),
            _ => {}
        }
    }
    Some(listing)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::key::Kinds;

    use super::*;

    fn target() -> Target {
        Target::parse("user=bob", &Kinds::default()).unwrap()
    }

    proptest! {
        #[test]
        fn an_entry_is_read_as_it_was_written(
            allow: bool, since in 0_u64..1 << 53, until in prop::option::of(0_u64..1 << 53), reason in "\\PC{0,40}",
            show_reason: bool, author in "[a-z0-9_.-]{1,20}", rule: bool, times in 0_u32..100,
        ) {
            let listing = Listing {
                target: target(),
                stance: if allow { Stance::Allow } else { Stance::Block },
                since: Timestamp::from_micros(since),
                until: until.map(Timestamp::from_micros),
                show_reason: show_reason && !reason.is_empty(),
                reason: reason.into(),
                author: if rule { Author::Rule(author.into()) } else { Author::Key(author.into()) },
                times,
            };
            prop_assert_eq!(read(target(), &written(&listing)), Some(listing));
        }

        #[test]
        fn no_record_makes_it_panic(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = read(target(), &value);
        }
    }

    #[test]
    fn an_unreadable_record_gives_no_entry_and_unknown_lines_are_skipped() {
        for value in ["", "ban", "block\nuntil soon", "block\nsince -1", "block\ntimes many"] {
            assert_eq!(read(target(), value.as_bytes()), None, "{value}");
        }
        let newer = read(target(), b"allow\nsince 5\ncolour blue\nkey ops").unwrap();
        assert_eq!((newer.stance, newer.author), (Stance::Allow, Author::Key("ops".into())));
    }

    #[test]
    fn a_reason_stays_on_its_line() {
        let reason: Box<str> = "a\nuntil 1".into();
        let listing = read(target(), b"block").map(|listing| Listing { reason, ..listing }).unwrap();
        assert_eq!(read(target(), &written(&listing)).unwrap().until, None);
    }
}
