//! Every state survives encoding and decoding; nothing else is decoded.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::When;
use tollgate_core::limit::{Draft, Refund};

use super::*;

fn plan() -> Plan {
    let limits = [
        "10/min",
        "10/day calendar",
        "10/min sliding",
        "10/min sliding by 1s",
        "10/min burst 10",
        "10 at once for 1m",
        "10 in total",
        "ladder 4 +2s then 11 lock 15m",
    ];
    Plan::new(Arc::from("rule"), limits.map(|limit| limit.parse().unwrap()).to_vec()).unwrap()
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, 0..=MAX_EXACT / 64]
}

fn states() -> impl Strategy<Value = Vec<State>> {
    let tally = || {
        let parts = (small(), small());
        parts.prop_map(|(edge, count)| State::Tally(Tally { edge: Timestamp::from_micros(edge), count }))
    };
    let entry = (small(), any::<u64>(), small()).prop_map(|(at, ticket, cost)| Entry {
        at: Timestamp::from_micros(at),
        ticket: Ticket(ticket),
        cost,
    });
    let log = vec(entry, 0..40).prop_map(|entries| State::Log(Box::new(entries.into_iter().collect())));
    let slots = vec((0..4_000_000_000_u64, 1..300_u64), 0..40)
        .prop_map(|counts| State::Slots(Box::new(counts.into_iter().collect())));
    let level = (small(), small())
        .prop_map(|(full_at, rest)| State::Level(Level { full_at: Timestamp::from_micros(full_at), rest }));
    let hold = (".{0,20}", any::<u64>(), small(), small(), small());
    let holds = vec(hold, 0..20).prop_map(|holds| {
        let holds = holds.into_iter().map(|(id, ticket, weight, since, renewed)| {
            let (since, renewed) = (Timestamp::from_micros(since), Timestamp::from_micros(renewed));
            (Box::from(id), Hold { ticket: Ticket(ticket), weight, since, renewed })
        });
        State::Holds(Box::new(holds.collect()))
    });
    let total = small().prop_map(State::Total);
    let failure = (small(), any::<u64>(), small()).prop_map(|(at, ticket, count)| Failure {
        at: Timestamp::from_micros(at),
        ticket: Ticket(ticket),
        count,
    });
    let failures = vec(failure, 0..40).prop_map(|all| State::Failures(Box::new(all.into_iter().collect())));
    let or_fresh = |state: BoxedStrategy<State>| prop_oneof![1 => Just(State::Fresh), 4 => state];
    (
        or_fresh(tally().boxed()),
        or_fresh(tally().boxed()),
        or_fresh(log.boxed()),
        or_fresh(slots.boxed()),
        or_fresh(level.boxed()),
        or_fresh(holds.boxed()),
        or_fresh(total.boxed()),
        or_fresh(failures.boxed()),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| vec![a, b, c, d, e, f, g, h])
}

/// Uses states in every way, so that an impossible one would show.
fn exercise(plan: &Plan, states: &mut [State]) {
    let now = Timestamp::from_micros(1_760_000_000_000_000);
    plan.idle(states);
    plan.denies(states, now);
    let mut states = plan.adopt(plan, states.to_vec(), now);
    for (limit, state) in
        plan.limits().iter().zip(&mut states).filter(|(limit, _)| limit.calendar().is_none())
    {
        let draft = Draft { cost: 1, id: None, ticket: Ticket(1), now, amounts: &[], calendar: &[] };
        limit.freshen(state, &draft);
        if limit.when(state, &draft) == When::Now {
            limit.take(state, &draft);
        }
        limit.read(state, When::Now, &draft);
        limit.refund(state, &draft, Refund { taken_at: now, amount: 1 });
    }
}

/// Encodes a state of a limit, and decodes it again.
fn reread(limit: &str, state: State) -> Result<State, Garbled> {
    let plan = Plan::new(Arc::from("rule"), vec![limit.parse().unwrap()]).unwrap();
    let (mut row, mut states) = (Vec::new(), Vec::new());
    encode(7, &[state], &mut row);
    decode(&row, &plan, &mut states)?;
    Ok(states.remove(0))
}

#[test]
fn a_number_of_more_than_64_bits_is_garbled() {
    for (last, number) in [(0, Ok(u64::MAX >> 1)), (1, Ok(u64::MAX)), (2, Err(Garbled)), (0x7f, Err(Garbled))]
    {
        let bytes = [&[0xff; 9][..], &[last]].concat();
        assert_eq!(Cursor(&bytes).number(), number, "{last}");
    }
}

#[test]
fn entries_that_come_to_more_than_is_exact_are_garbled() {
    let moment = Timestamp::from_micros(1);
    let log = |cost| {
        State::Log(Box::new(
            [cost, 1].map(|cost| Entry { at: moment, ticket: Ticket(1), cost }).into_iter().collect(),
        ))
    };
    let failures = |count| {
        let failures = [count, 1].map(|count| Failure { at: moment, ticket: Ticket(1), count });
        State::Failures(Box::new(failures.into_iter().collect()))
    };
    let slots = |count| State::Slots(Box::new([(1, count), (2, 1)].into_iter().collect()));
    let holds = |weight| {
        let hold = |weight| Hold { ticket: Ticket(1), weight, since: moment, renewed: moment };
        State::Holds(Box::new([("a".into(), hold(weight)), ("b".into(), hold(1))].into_iter().collect()))
    };
    let kinds: [(&str, &dyn Fn(u64) -> State); 4] = [
        ("10/min sliding", &log),
        ("ladder 10 lock 1m", &failures),
        ("10/min sliding by 1s", &slots),
        ("10 at once", &holds),
    ];
    for (limit, state) in kinds {
        assert_eq!(reread(limit, state(MAX_EXACT - 1)), Ok(state(MAX_EXACT - 1)), "{limit}");
        assert_eq!(reread(limit, state(MAX_EXACT)), Err(Garbled), "{limit}");
    }
}

#[test]
fn a_slot_after_the_last_moment_is_garbled() {
    let slots = |index| State::Slots(Box::new([(index, 1)].into_iter().collect()));
    let last = MAX_MOMENT / 1_000_000;
    assert_eq!(reread("10/min sliding by 1s", slots(last)), Ok(slots(last)));
    assert_eq!(reread("10/min sliding by 1s", slots(last + 1)), Err(Garbled));
    assert_eq!(reread("10/min sliding by 1s", slots(last * 2)), Err(Garbled));
}

proptest! {
    #[test]
    fn encoding_and_decoding_returns_the_same_states(number in any::<u32>(), states in states()) {
        let mut row = Vec::new();
        encode(number, &states, &mut row);
        let mut read = Vec::new();
        prop_assert_eq!(plan_of(&row), Ok(number));
        prop_assert_eq!(decode(&row, &plan(), &mut read), Ok(()));
        prop_assert_eq!(read, states);
    }

    #[test]
    fn a_row_cut_short_is_garbled(states in states(), cut in any::<prop::sample::Index>()) {
        let mut row = Vec::new();
        encode(7, &states, &mut row);
        row.truncate(cut.index(row.len()));
        prop_assert_eq!(decode(&row, &plan(), &mut Vec::new()), Err(Garbled));
    }

    #[test]
    fn arbitrary_bytes_are_never_more_than_garbled(row in vec(any::<u8>(), 0..200)) {
        let _ = plan_of(&row);
        let mut states = Vec::new();
        if decode(&row, &plan(), &mut states).is_ok() {
            exercise(&plan(), &mut states);
        }
    }

    #[test]
    fn a_damaged_row_is_garbled_or_a_possible_state(
        states in states(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut row = Vec::new();
        encode(7, &states, &mut row);
        for (index, byte) in flips {
            let index = index.index(row.len());
            row[index] = byte;
        }
        let mut states = Vec::new();
        if decode(&row, &plan(), &mut states).is_ok() {
            exercise(&plan(), &mut states);
        }
    }
}
