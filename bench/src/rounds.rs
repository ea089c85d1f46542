//! Measuring two or more things in turn, so that a slow moment of the machine hits all of them.

use std::time::Instant;

/// Nanoseconds for each operation, of every contender in every round.
pub struct Rounds {
    times: Vec<Vec<f64>>,
}

/// Runs every contender in turn, round after round. A contender does its work once when called, and
/// answers how many operations that was.
pub fn measure(rounds: usize, contenders: &mut [&mut dyn FnMut() -> usize]) -> Rounds {
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let operations = contender();
            times.push(start.elapsed().as_nanos() as f64 / operations as f64);
        }
    }
    Rounds { times }
}

impl Rounds {
    /// A contender's median time for one operation.
    pub fn nanos(&self, contender: usize) -> f64 {
        median(self.times[contender].clone())
    }

    /// The median over the rounds of one contender's time over another's.
    pub fn ratio(&self, one: usize, other: usize) -> f64 {
        ratio(&self.times[one], &self.times[other])
    }
}

/// The median of what one showed over what another one did in the same round.
pub fn ratio(one: &[f64], other: &[f64]) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| one / other).collect())
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints one line of the table.
pub fn line(what: &str, measured: &str, beside: &str, ratio: f64, bound: &str) {
    println!("| {what} | {measured} | {beside} | {ratio:.2} | {bound} |");
}

/// Whether a part of a section is measured. All are, unless words after the section's name choose some of its group.
pub fn is_chosen(group: &[&str], part: &str) -> bool {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let is_named = |part: &str| words.iter().any(|word| word == part);
    is_named(part) || !group.iter().any(|part| is_named(part))
}
