//! Rows read back as they were written, and damage is noticed.

use proptest::prelude::*;

use super::*;

fn time() -> impl Strategy<Value = Timestamp> {
    (0..1_u64 << 53).prop_map(Timestamp::from_micros)
}

fn state() -> impl Strategy<Value = RecipientState> {
    let last = || {
        let parts = (time(), ".{0,20}", ".{0,40}", prop::option::of(".{0,20}"), any::<bool>());
        parts.prop_map(|(at, status, reply, remote, reports)| Final { at, status, reply, remote, reports })
    };
    prop_oneof![
        Just(RecipientState::Waiting),
        last().prop_map(RecipientState::Sent),
        last().prop_map(RecipientState::Failed),
        time().prop_map(RecipientState::Cancelled),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let recipient = (any::<u32>(), state()).prop_map(|(index, state)| ItemRecipient { index, state });
    let recipients = prop::collection::vec(recipient, 0..5);
    (".{0,20}", recipients, any::<(u32, u32)>(), time(), any::<u64>(), any::<bool>()).prop_map(
        |(domain, recipients, (attempts, failures), due, spent, possible_duplicate)| Item {
            domain,
            recipients,
            attempts,
            failures,
            due,
            spent: Span::from_micros(spent),
            possible_duplicate,
        },
    )
}

fn kept() -> impl Strategy<Value = Kept> {
    let notify =
        any::<(bool, bool, bool)>().prop_map(|(success, failure, delay)| Notify { success, failure, delay });
    let recipient = (".{0,20}", ".{0,20}", notify, prop::option::of(".{0,20}"))
        .prop_map(|(address, domain, notify, original)| Recipient { address, domain, notify, original });
    let names = (".{0,10}", prop::option::of(".{0,10}"), prop::option::of(".{0,20}"));
    let rest = (time(), any::<(bool, bool, bool)>(), prop::option::of(".{0,10}"), prop::option::of(time()));
    let place = prop_oneof![Just(Place::Table), Just(Place::File), Just(Place::Gone)];
    let numbers = any::<(u128, u64, u64, u32)>();
    let priority = prop_oneof![Just(Priority::High), Just(Priority::Normal), Just(Priority::Low)];
    let origin = (
        prop::option::of(".{0,20}"),
        prop::option::of(any::<std::net::IpAddr>()),
        prop::option::of(".{0,5}"),
        prop::option::of(".{0,5}"),
    );
    (names, prop::collection::vec(recipient, 0..4), rest, place, numbers, priority, origin).prop_map(
        |((tenant, account, sender), recipients, rest, place, numbers, priority, origin)| {
            let (id, size, checksum, open_items) = numbers;
            let (message_id, client, user, api_key) = origin;
            let (accepted, (eight_bit, utf8, full), envelope_id, finished) = rest;
            let envelope = Envelope {
                id: MessageId(id),
                tenant,
                account,
                priority,
                sender,
                recipients,
                accepted,
                needs: Needs { eight_bit, utf8 },
                report: ReportWish { full, envelope_id },
                message_id,
                origin: Origin { client, user, api_key },
                idempotency: None,
            };
            Kept { envelope, place, size, checksum, open_items, finished }
        },
    )
}

proptest! {
    #[test]
    fn rows_read_back_and_damage_is_noticed(
        item in item(),
        kept in kept(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        prop_assert_eq!(Item::decode(&item.encode()), Some(item.clone()));
        prop_assert_eq!(Kept::decode(&kept.encode()), Some(kept.clone()));
        for mut bytes in [item.encode(), kept.encode()] {
            let place = at.index(bytes.len());
            bytes[place] ^= flip;
            prop_assert_eq!(Item::decode(&bytes), None);
            prop_assert_eq!(Kept::decode(&bytes), None);
            prop_assert_eq!(Item::decode(&bytes[..place]), None);
        }
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        // With a checksum that fits, so that the parts are read.
        let mut row = bytes.clone();
        row.extend_from_slice(&checksum(&bytes).to_le_bytes());
        let _ = Item::decode(&row);
        let _ = Kept::decode(&row);
        let _ = Event::decode(&row);
        let _ = OpenAttempt::decode(&row);
        let _ = Used::decode(&row);
    }
}
