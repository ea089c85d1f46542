//! The charts of the report, as drawings.

use std::fmt::Write as _;

use super::{Escaped, grouped, time};
use crate::curve::Point;
use crate::timeline::Timeline;

/// A line of the curve: the ending of its classes, its name, and what it counts.
type Series = (&'static str, &'static str, fn(&Point) -> u64);

const WIDTH: f64 = 1_000.0;

/// Attempts over time, with the denied ones in front of them.
pub(super) fn timeline(timeline: &Timeline) -> String {
    let intervals = timeline.intervals();
    let (height, top, base) = (240.0, 14.0, 206.0);
    let most = intervals.iter().map(|one| one.attempts).max().unwrap_or(0);
    if most == 0 {
        return "<p>There were no attempts.</p>".to_owned();
    }
    let mut chart = open(height, "Attempts and denials over time");
    grid(&mut chart, most, top, base);
    let step = (WIDTH - 60.0) / intervals.len() as f64;
    let bar = (step * 0.9).max(0.6);
    for (index, one) in intervals.iter().enumerate().filter(|(_, one)| one.attempts > 0) {
        let left = 60.0 + step * index as f64;
        let tall = |count: u64| (base - top) * count as f64 / most as f64;
        let _ = write!(
            chart,
            "<g><title>{}: {} attempts, {} denied</title>",
            at(timeline, index),
            grouped(one.attempts),
            grouped(one.denied)
        );
        for (class, count) in [("all", one.attempts), ("bad", one.denied)] {
            if count > 0 {
                let tall = tall(count).max(1.0);
                let _ = write!(
                    chart,
                    "<rect class=\"{class}\" x=\"{left:.2}\" y=\"{:.2}\" width=\"{bar:.2}\" height=\"{tall:.2}\"/>",
                    base - tall
                );
            }
        }
        chart.push_str("</g>\n");
    }
    let _ = write!(
        chart,
        "<text x=\"60\" y=\"{0}\">{1}</text><text x=\"{WIDTH}\" y=\"{0}\" text-anchor=\"end\">{2}</text></svg>\n<p class=\"sub\">Each bar is {3}. Grey: attempts. Red: denied.</p>",
        base + 22.0,
        at(timeline, 0),
        at(timeline, intervals.len()),
        timeline.width()
    );
    chart
}

fn at(timeline: &Timeline, index: usize) -> String {
    let micros = timeline.start().as_micros() + timeline.width().as_micros() * index as u64;
    time(tollgate_core::Timestamp::from_micros(micros))
}

/// Horizontal bars with labels.
pub(super) fn bars(bars: &[(String, u64)]) -> String {
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let height = bars.len() as f64 * 24.0 + 4.0;
    let mut chart = open(height, "The keys denied most often");
    for (index, (label, count)) in bars.iter().enumerate() {
        let y = index as f64 * 24.0;
        let short: String = if label.chars().count() > 44 {
            label.chars().take(43).chain(['…']).collect()
        } else {
            label.clone()
        };
        let wide = (560.0 * *count as f64 / most as f64).max(1.0);
        let _ = writeln!(
            chart,
            "<g><title>{0}</title><text class=\"ink\" x=\"330\" y=\"{1}\" text-anchor=\"end\">{2}</text><rect class=\"bad\" x=\"340\" y=\"{3}\" width=\"{wide:.2}\" height=\"14\" rx=\"2\"/><text x=\"{4:.2}\" y=\"{1}\">{5}</text></g>",
            Escaped(label),
            y + 15.0,
            Escaped(&short),
            y + 4.0,
            348.0 + wide,
            grouped(*count)
        );
    }
    chart.push_str("</svg>\n");
    chart
}

/// Requests and clients denied at multiples of a rule's numbers.
pub(super) fn curve(points: &[Point]) -> String {
    let (height, top, base) = (280.0, 30.0, 210.0);
    let most = |count: fn(&Point) -> u64| points.iter().map(count).max().unwrap_or(0).max(1);
    let series: [Series; 2] =
        [("", "requests affected", Point::affected), ("2", "clients affected", |point| point.clients)];
    let mut chart = open(height, "Requests and clients affected at multiples of the limit");
    let place = |index: usize| 80.0 + (WIDTH - 180.0) * index as f64 / (points.len().max(2) - 1) as f64;
    let _ = writeln!(chart, "<line class=\"grid\" x1=\"40\" x2=\"{WIDTH}\" y1=\"{base}\" y2=\"{base}\"/>");
    for (number, (suffix, name, count)) in series.into_iter().enumerate() {
        let most = most(count);
        let y = |point: &Point| base - (base - top) * count(point) as f64 / most as f64;
        let line: Vec<String> = points
            .iter()
            .enumerate()
            .map(|(index, point)| format!("{:.1},{:.1}", place(index), y(point)))
            .collect();
        let _ = writeln!(chart, "<polyline class=\"path{suffix}\" points=\"{}\"/>", line.join(" "));
        for (index, point) in points.iter().enumerate() {
            let shift = if number == 0 { -10.0 } else { 18.0 };
            let _ = writeln!(
                chart,
                "<circle class=\"dot{suffix}\" cx=\"{0:.1}\" cy=\"{1:.1}\" r=\"4\"><title>{2} {name}</title></circle><text x=\"{3:.1}\" y=\"{4:.1}\">{2}</text>",
                place(index),
                y(point),
                grouped(count(point)),
                place(index) + 8.0,
                y(point) + shift
            );
        }
    }
    for (index, point) in points.iter().enumerate() {
        let _ = writeln!(
            chart,
            "<text class=\"ink\" x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2} ×</text><text x=\"{0:.1}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
            place(index),
            base + 36.0,
            point.factor,
            base + 54.0,
            Escaped(&point.limits)
        );
    }
    chart.push_str("</svg>\n<p class=\"sub\">Red: requests that the rule denies, defers, or would deny if it did not only observe. Blue: clients to which that happens at least once. Each line has its own scale.</p>");
    chart
}

fn open(height: f64, label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">\n")
}

/// Two lines and their numbers.
fn grid(chart: &mut String, most: u64, top: f64, base: f64) {
    for (count, y) in [(most, top), (0, base)] {
        let _ = writeln!(
            chart,
            "<line class=\"grid\" x1=\"60\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/><text x=\"52\" y=\"{}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            grouped(count)
        );
    }
}
