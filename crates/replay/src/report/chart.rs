//! The charts of the report, as drawings.
//!
//! They have the elements, the classes and the scales of the console's charts (`console/src/chart.tsx`) and the
//! same style sheet, `console/src/charts.css`. The report has no script: titles replace the console's cursor.

use std::fmt::Write as _;

use super::{Escaped, grouped, time};
use crate::curve::Point;
use crate::timeline::{Interval, Timeline};

/// A class of the style sheet, which gives an outcome its colour.
pub(super) type Class = &'static str;

/// A series of a chart: its class, its name, and its count.
type Series<T> = (Class, &'static str, fn(&T) -> u64);

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 100.0;

/// Attempts over time, and below them the denied ones alone: few denials would be invisible among many
/// attempts.
pub(super) fn timeline(timeline: &Timeline) -> String {
    if timeline.intervals().iter().all(|one| one.attempts == 0) {
        return "<p>There were no attempts.</p>".to_owned();
    }
    let denied: Series<Interval> = ("deny", "denied", |one| one.denied);
    let others: Series<Interval> = ("allow", "not denied", |one| one.attempts - one.denied);
    stacked("Attempts", &[others, denied], timeline) + &stacked("Denied", &[denied], timeline)
}

/// Areas over time, each on top of those before it, drawn in steps.
fn stacked(title: &str, layers: &[Series<Interval>], timeline: &Timeline) -> String {
    let intervals = timeline.intervals();
    let sum = |one: &Interval| layers.iter().map(|(_, _, count)| count(one)).sum::<u64>();
    let (count, top) = (intervals.len(), scale(intervals.iter().map(sum).max().unwrap_or(0)));
    let mut chart = caption(title, &format!("each step is {}", timeline.width()), layers);
    let _ = write!(
        chart,
        "<div class=\"plot\"><svg viewBox=\"0 0 {count} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title} over time\">\n<path class=\"grid\" d=\"M0 0H{count}M0 {}H{count}\"/>\n",
        HEIGHT / 2.0
    );
    let mut below = vec![0; count];
    for (class, _, of) in layers {
        let values = intervals.iter().map(of);
        let _ = writeln!(chart, "<path class=\"area {class}\" d=\"{}\"/>", area(values, &mut below, top));
    }
    for (index, one) in intervals.iter().enumerate().filter(|(_, one)| one.attempts > 0) {
        let _ = writeln!(
            chart,
            "<rect class=\"hover\" x=\"{index}\" width=\"1\" height=\"{HEIGHT}\"><title>{}: {} attempts, {} denied</title></rect>",
            at(timeline, index),
            grouped(one.attempts),
            grouped(one.denied)
        );
    }
    let _ = writeln!(
        chart,
        "</svg><span class=\"tick\">{}</span><span class=\"tick half\">{}</span></div>\n<div class=\"axis dim\"><span>{}</span><span>{}</span></div>\n</figure>",
        grouped(top),
        half(top),
        at(timeline, 0),
        at(timeline, count)
    );
    chart
}

/// The outline of one area on top of those below it.
fn area(values: impl Iterator<Item = u64>, below: &mut [u64], top: u64) -> String {
    let y = |value: u64| HEIGHT - value as f64 / top as f64 * HEIGHT;
    let (mut up, mut down) = (String::new(), String::new());
    for (at, (value, low)) in values.zip(below).enumerate() {
        let high = *low + value;
        let _ = write!(up, "{}{at} {:.1}H{}", if at == 0 { 'M' } else { 'L' }, y(high), at + 1);
        down.insert_str(0, &format!("L{} {:.1}H{at}", at + 1, y(*low)));
        *low = high;
    }
    up + &down + "Z"
}

/// The scale's end: a round number that is not below the highest count.
fn scale(most: u64) -> u64 {
    let power = 10_u64.pow(most.max(1).ilog10());
    let steps = [1, 2, 5, 10].map(|step| power.saturating_mul(step));
    steps.into_iter().find(|step| *step >= most).unwrap_or(most)
}

fn half(top: u64) -> String {
    if top.is_multiple_of(2) { grouped(top / 2) } else { format!("{}.5", top / 2) }
}

fn at(timeline: &Timeline, index: usize) -> String {
    let micros = timeline.start().as_micros() + timeline.width().as_micros() * index as u64;
    time(tollgate_core::Timestamp::from_micros(micros))
}

/// Horizontal bars with labels.
pub(super) fn bars(class: Class, title: &str, bars: &[(String, u64)]) -> String {
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let height = bars.len() as f64 * 24.0 + 4.0;
    let mut chart = open(height, title);
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
            "<g><title>{0}</title><text class=\"ink\" x=\"330\" y=\"{1}\" text-anchor=\"end\">{2}</text><rect class=\"area {class}\" x=\"340\" y=\"{3}\" width=\"{wide:.2}\" height=\"14\" rx=\"2\"/><text x=\"{4:.2}\" y=\"{1}\">{5}</text></g>",
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

/// Denied requests and clients at each multiple of a rule's numbers.
pub(super) fn curve(points: &[Point]) -> String {
    let (height, top, base) = (280.0, 30.0, 210.0);
    let most = |count: fn(&Point) -> u64| points.iter().map(count).max().unwrap_or(0).max(1);
    let series: [Series<Point>; 2] = [
        ("deny", "requests affected", Point::affected),
        ("blocked", "clients affected at least once", |point| point.clients),
    ];
    let remark = "requests that the rule denies, defers, or would deny if it did not only observe; each line has its own scale";
    let mut chart = caption("Affected", remark, &series);
    chart.push_str(&open(height, "Requests and clients affected at multiples of the limit"));
    let place = |index: usize| 80.0 + (WIDTH - 180.0) * index as f64 / (points.len().max(2) - 1) as f64;
    let _ = writeln!(chart, "<line class=\"grid\" x1=\"40\" x2=\"{WIDTH}\" y1=\"{base}\" y2=\"{base}\"/>");
    for (number, (class, name, count)) in series.into_iter().enumerate() {
        let most = most(count);
        let y = |point: &Point| base - (base - top) * count(point) as f64 / most as f64;
        let line: Vec<String> = points
            .iter()
            .enumerate()
            .map(|(index, point)| format!("{:.1},{:.1}", place(index), y(point)))
            .collect();
        let _ = writeln!(chart, "<polyline class=\"line {class}\" points=\"{}\"/>", line.join(" "));
        for (index, point) in points.iter().enumerate() {
            let shift = if number == 0 { -10.0 } else { 18.0 };
            let _ = writeln!(
                chart,
                "<circle class=\"area {class}\" cx=\"{0:.1}\" cy=\"{1:.1}\" r=\"4\"><title>{2} {name}</title></circle><text x=\"{3:.1}\" y=\"{4:.1}\">{2}</text>",
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
    chart.push_str("</svg>\n</figure>\n");
    chart
}

/// The caption of a chart: its title, a remark, and the legend of the colours.
fn caption<T>(title: &str, remark: &str, series: &[Series<T>]) -> String {
    let mut text = format!(
        "<figure class=\"chart\">\n<figcaption><b>{title}</b><span class=\"dim\">{}</span>",
        Escaped(remark)
    );
    for (class, name, _) in series {
        let _ = write!(text, "<span class=\"legend\"><i class=\"swatch {class}\"></i>{name}</span>");
    }
    text.push_str("</figcaption>\n");
    text
}

fn open(height: f64, label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `scale` in `console/src/chart.tsx`.
    #[test]
    fn a_scale_ends_at_the_next_round_number() {
        let scales = [0, 1, 2, 3, 5, 6, 10, 11, 49, 50, 51, 173, 999].map(scale);
        assert_eq!(scales, [1, 1, 2, 5, 5, 10, 10, 20, 50, 50, 100, 200, 1_000]);
        assert_eq!(scale(u64::MAX), u64::MAX);
    }

    #[test]
    fn areas_stand_on_each_other() {
        let mut below = vec![0, 0];
        assert_eq!(area([1, 0].into_iter(), &mut below, 2), "M0 50.0H1L1 100.0H2L2 100.0H1L1 100.0H0Z");
        assert_eq!(area([1, 1].into_iter(), &mut below, 2), "M0 0.0H1L1 50.0H2L2 100.0H1L1 50.0H0Z");
        assert_eq!(below, [2, 1]);
    }
}
