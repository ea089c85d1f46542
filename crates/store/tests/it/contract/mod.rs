//! The contract of a store: one suite of laws, run over every store.
//!
//! A store joins with a [`bench::Bench`] of its own and one line at the end of this file.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;
mod changing;
mod climbing;
mod differential;
mod holding;
mod model;
mod recording;
mod refunding;
mod taking;
mod together;

macro_rules! contract {
    ($store:ident, $bench:expr) => {
        mod $store {
            contract! { @laws $bench,
                taking: [
                    admits_up_to_the_limit_and_no_more,
                    a_retry_time_waited_out_admits_and_a_microsecond_less_does_not,
                    a_peek_says_what_a_take_would_and_takes_nothing,
                    a_cost_of_nothing_never_creates_state,
                    no_charges_conform_and_tell_the_time,
                    a_cost_above_the_capacity_never_passes,
                    refused_client_leaves_the_shared_limit_untouched,
                    an_observed_charge_never_refuses,
                    a_number_in_the_attempt_is_bounded_and_uses_nothing_up,
                    equal_keys_of_two_rules_count_apart,
                    a_calendar_that_does_not_cover_the_time_is_stale,
                    a_calendar_period_ends_at_its_boundary,
                    a_forgotten_key_starts_afresh,
                    forgetting_a_rule_leaves_the_others,
                    a_clock_that_goes_back_denies_no_key_for_longer_than_the_period,
                    many_takes_that_lie_ahead_of_the_clock_count_from_now,
                    a_clock_that_jumps_forward_frees_everything_that_ages,
                ],
                refunding: [
                    a_refunded_cost_can_be_taken_again,
                    a_refund_returns_the_units_of_an_observed_charge,
                    a_receipt_is_given_back_once,
                    a_take_without_an_answer_is_undone_where_its_ticket_is_kept,
                    a_refund_after_the_reset_refunds_nothing,
                    a_refund_to_a_reset_key_takes_nothing_from_later_charges,
                    tickets_of_one_moment_are_told_apart,
                    parts_of_a_ticket_are_given_back_once_each,
                    without_charges_there_is_nothing_to_refund,
                ],
                holding: [
                    a_hold_is_listed_until_it_is_released,
                    an_id_that_is_held_charges_nothing_anywhere,
                    an_id_that_is_held_at_one_of_two_rules_is_decided_by_all_limits,
                    a_lease_runs_out_unless_it_is_renewed,
                    renewing_an_expired_hold_does_not_revive_it,
                    reconciling_replaces_all_holds_by_the_callers_list,
                    orders_about_holds_elsewhere_change_nothing,
                    many_are_renewed_at_once_and_none_is_revived,
                    many_are_released_at_once,
                    many_leases_that_lie_ahead_of_the_clock_end_one_lease_from_now,
                    holds_without_a_lease_keep_their_times_when_the_clock_goes_back,
                    a_key_that_is_held_and_released_again_and_again_holds_nothing,
                    many_holds_end_with_their_limit,
                    claimed_holds_are_held_as_far_as_there_is_room,
                    thousands_are_renewed_and_released_in_one_order,
                    one_of_many_ends_without_a_look_at_the_others,
                ],
                changing: [
                    a_raised_number_keeps_the_count,
                    a_changed_period_starts_afresh,
                    a_changed_kind_starts_afresh,
                    overrides_of_every_shape_keep_what_they_share,
                    a_changed_rate_keeps_the_used_tokens,
                    a_longer_lease_does_not_revive_an_expired_hold,
                    a_refund_under_a_longer_lease_does_not_revive_an_expired_hold,
                    a_charge_that_is_kept_is_carried_over_all_the_same,
                    a_limit_that_stays_is_left_alone_when_another_comes_beside_it,
                ],
                together: [
                    many_threads_admit_exactly_the_limit,
                    many_threads_take_all_or_nothing,
                    threads_that_charge_in_opposite_order_never_wait_for_each_other_for_ever,
                    a_receipt_given_back_by_many_is_given_once,
                    parts_given_back_by_many_are_given_once_each,
                ],
                recording: [
                    a_namespace_is_read_whole_and_then_by_its_changes,
                    an_entry_is_changed_only_from_what_is_expected,
                    of_callers_that_expect_the_same_one_succeeds,
                    edits_whose_condition_fails_leave_the_others,
                    a_reader_that_missed_too_much_reads_everything,
                    namespaces_and_counters_are_apart,
                    a_long_namespace_is_read_whole,
                    an_entry_ends_by_the_clock_of_the_store,
                    an_entry_that_is_written_again_has_its_new_end,
                    a_full_namespace_refuses_new_names_and_nothing_else,
                ],
                differential: [
                    settles_as_the_specification_does,
                    settles_as_the_specification_does_while_the_clock_jumps,
                    climbs_as_the_specification_does,
                    climbs_as_the_specification_does_while_the_clock_jumps,
                ],
                climbing: [
                    failures_climb_the_steps_and_are_forgotten_after_the_last,
                    attempts_that_come_too_early_count_nothing,
                    parallel_guesses_are_counted_before_their_outcomes_are_known,
                    a_success_clears_what_came_before_it_and_nothing_after,
                    a_failure_that_is_known_ends_its_ticket,
                    a_failure_that_is_known_ends_what_it_held,
                    a_ticket_is_too_old_once_nothing_of_it_counts,
                    each_charge_has_a_fate_of_its_own_and_all_are_settled_at_once,
                    a_failure_older_than_its_own_memory_is_not_refunded,
                    failures_beyond_the_last_step_are_counted_and_the_latest_given_back,
                    other_steps_keep_the_failures,
                    failures_that_a_success_cleared_do_not_come_back,
                ],
            }
        }
    };
    (@laws $bench:expr, $($chapter:ident: [$($law:ident),* $(,)?]),* $(,)?) => {
        $(mod $chapter {
            $(#[test]
            fn $law() {
                crate::contract::$chapter::$law(&mut $bench);
            })*
        })*
    };
}

contract!(memory, crate::contract::bench::InMemory::new());
contract!(file, crate::contract::bench::WithFile::new(tollgate_store::file::Syncing::Interval));
contract!(file_always, crate::contract::bench::WithFile::new(tollgate_store::file::Syncing::Always));

mod other_programs;
