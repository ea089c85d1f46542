//! Explains which attempts a rule counts, as text.

use tollgate_web::Statuses;

/// Which attempts count, by their responses.
pub fn count_when(statuses: &Statuses) -> String {
    match statuses.others() {
        None => "every attempt, whatever its answer".to_owned(),
        Some(others) if statuses.is_written_by_others() => {
            format!("every attempt unless its answer is {}; then it is refunded", listed(&others))
        }
        Some(_) => {
            format!("an attempt whose answer is {}; others are refunded once answered", listed(statuses))
        }
    }
}

pub(super) fn listed(statuses: &Statuses) -> String {
    let entries: Vec<String> = statuses.written().map(|entry| entry.to_string()).collect();
    match entries.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        entries => entries.concat(),
    }
}

#[cfg(test)]
mod tests {
    //! Every form, case by case.

    use super::*;

    #[test]
    fn counted_statuses_are_explained_briefly() {
        let table = [
            ("401", "an attempt whose answer is 401; others are refunded once answered"),
            ("[403, 401]", "an attempt whose answer is 401 or 403; others are refunded once answered"),
            (
                "[4xx, 503, 500]",
                "an attempt whose answer is 4xx, 500 or 503; others are refunded once answered",
            ),
            ("not 5xx", "every attempt unless its answer is 5xx; then it is refunded"),
            ("not [5xx, 404]", "every attempt unless its answer is 404 or 5xx; then it is refunded"),
            ("[1xx, 2xx, 3xx, 4xx, 5xx]", "every attempt, whatever its answer"),
        ];
        for (written, words) in table {
            assert_eq!(count_when(&written.parse().unwrap()), words, "{written}");
        }
    }
}
