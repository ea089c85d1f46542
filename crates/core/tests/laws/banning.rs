//! Bans by rules: their grammar, and how they grow.

use proptest::prelude::*;
use tollgate_core::{Banning, Span};

#[test]
fn bans_are_read_as_they_are_printed() {
    for text in [
        "after 100 denials in 10m ban 1h",
        "after 1 denial in 1s ban 1d",
        "after 20 denials in 1h ban 15m up to 1d",
        "after 5 denials in 250ms ban 1m up to 1m",
    ] {
        assert_eq!(text.parse::<Banning>().unwrap().to_string(), text);
    }
    let loose = "after 1_000 denials in 90s  ban 60m up to 24h".parse::<Banning>().unwrap();
    assert_eq!(loose.to_string(), "after 1000 denials in 1m30s ban 1h up to 1d");
}

#[test]
fn mistakes_come_with_a_remedy() {
    let table = [
        ("", "character 1: expected `after`"),
        ("100 denials", "expected `after`"),
        ("after many", "character 7: `after` is followed by how many"),
        ("after 0 denials in 1m ban 1h", "at least one denial"),
        ("after 5 times in 1m ban 1h", "expected `denials`"),
        ("after 5 denials ban 1h", "expected `in`"),
        ("after 5 denials in ban 1h", "a duration is a number and a unit"),
        ("after 5 denials in 1m", "expected `ban`"),
        ("after 5 denials in 1m ban", "a duration is a number and a unit"),
        ("after 5 denials in 1m ban 0s", "more than nothing"),
        ("after 5 denials in 1m ban 1h up 2h", "expected `to`"),
        ("after 5 denials in 1m ban 1h up to 30m", "character 36: a ban grows"),
        ("after 5 denials in 1m ban 1h for good", "`for` is one word too many"),
    ];
    for (text, expected) in table {
        let problem = text.parse::<Banning>().unwrap_err().to_string();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

#[test]
fn a_ban_doubles_with_each_repetition_up_to_its_most() {
    let lasts = |text: &str| {
        let banning: Banning = text.parse().unwrap();
        [0, 1, 2, 4, 63, 64, u32::MAX].map(|times| banning.lasts_after(times).to_string())
    };
    assert_eq!(lasts("after 5 denials in 1m ban 1h up to 1d"), ["1h", "2h", "4h", "16h", "1d", "1d", "1d"]);
    assert_eq!(lasts("after 5 denials in 1m ban 1h"), ["1h"; 7], "without `up to` it does not grow");
}

proptest! {
    #[test]
    fn every_ban_round_trips_and_never_shrinks(
        after in 1_u64..1_000_000, within in 1_u64..10_000_000_000, lasts in 1_u64..10_000_000_000, more in prop::option::of(0_u64..10_000_000_000_000),
    ) {
        let [within, lasts] = [within, lasts].map(Span::from_micros);
        let most = more.map_or(String::new(), |more| format!(" up to {}", Span::from_micros(lasts.as_micros() + more)));
        let banning: Banning = format!("after {after} denials in {within} ban {lasts}{most}").parse().unwrap();
        prop_assert_eq!(banning.to_string().parse::<Banning>(), Ok(banning));
        for times in 0..70 {
            prop_assert!(banning.lasts_after(times) <= banning.lasts_after(times + 1));
            prop_assert!(banning.lasts_after(times) <= banning.most().unwrap_or(lasts));
        }
        // Its limit can be printed and parsed.
        if let Some(limit) = banning.limit() {
            prop_assert_eq!(limit.to_string().parse(), Ok(limit));
        }
    }
}
