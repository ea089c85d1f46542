//! Measures the memory of a lane with one waiting message: the number that `docs/guides/relay.md` states.
//!
//! `cargo test -p tollgate-relay --test it lanes_memory -- --nocapture` prints it.

use tollgate_core::Timestamp;
use tollgate_relay::lanes::{LaneOptions, Lanes, Priority};
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::{ItemKey, Waiting};

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
const LANES: u32 = 100_000;
const MOST_BYTES: i64 = 500;

/// What 100,000 lanes of one message each allocate, for each of them.
fn bytes_of_a_lane(due: Timestamp) -> i64 {
    let mut lanes = None;
    let used = allocation_counter::measure(|| {
        let lanes = lanes.insert(Lanes::new(LaneOptions::default()));
        for number in 0..LANES {
            let waiting = Waiting {
                key: ItemKey { message: MessageId(u128::from(number) << 64), number: 0 },
                tenant: "acme".to_owned(),
                account: None,
                domain: format!("domain{number}.example"),
                priority: Priority::Normal,
                recipients: 1,
                due,
                reports_on: None,
            };
            lanes.add(&waiting, NOW);
        }
    });
    assert_eq!(lanes.map(|lanes| lanes.len()), Some(LANES as usize));
    used.bytes_current / i64::from(LANES)
}

#[test]
fn a_lane_of_one_waiting_message_takes_at_most_500_bytes() {
    let hour = tollgate_core::Span::from_secs(3_600);
    for (what, due) in [("due", NOW), ("due later", NOW + hour)] {
        let bytes = bytes_of_a_lane(due);
        println!("a lane of one message that is {what} takes {bytes} bytes");
        assert!(bytes <= MOST_BYTES, "a lane of one message that is {what} takes {bytes} bytes");
    }
}
