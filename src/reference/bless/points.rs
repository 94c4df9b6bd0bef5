//! From ranges at the measured sizes to a curve that holds between them too.
//!
//! Left of the knee, where busbw is under half of the greatest, time is bounded; from there on busbw. The size at the
//! knee has both, so that no size between falls between the two curves.
//!
//! A golden file interpolates between neighbouring points. Where that would be a guess, the curve is broken: a point one
//! byte beyond the lower size with a lower bound only, and one a byte short of the upper size with an upper bound only.
//! Between them each bound lacks its partner, so nothing is said.

use super::range::{Bounds, Ranged};
use crate::reference::{Metric, Point};

/// Sizes this many times apart are not joined. With T = latency + S/beta, interpolation is off by 1.5 % at most between
/// sizes of factor 2, and by 5 % at factor 4; and a switch to another protocol and back fits in between unseen.
const TOO_FAR: u64 = 3;

/// The points of one curve.
pub(super) fn points(ranges: &[Ranged]) -> Vec<Point> {
    let most = ranges.iter().map(|r| r.gbs.value).fold(0.0, f64::max);
    let knee = ranges.iter().position(|r| r.gbs.value >= most / 2.0).unwrap_or(0);
    let time = ranges.get(..if knee == 0 { 0 } else { knee + 1 }).unwrap_or_default();
    let bandwidth = ranges.get(knee..).unwrap_or_default();
    let mut points = curve(ranges, time, Metric::TimeUs, |r| r.us);
    points.extend(curve(ranges, bandwidth, Metric::BusbwGbs, |r| r.gbs));
    points
}

fn curve(all: &[Ranged], part: &[Ranged], metric: Metric, pick: fn(&Ranged) -> Bounds) -> Vec<Point> {
    let mut points = Vec::new();
    let mut last: Option<&Ranged> = None;
    for range in part {
        if let Some(low) = last.filter(|low| !joined(all, low, range)) {
            let (from, to) = (pick(low), pick(range));
            points.push(Point { lower: Some(down(from.lower)), ..empty(low.bytes.saturating_add(1), metric) });
            points.push(Point { upper: Some(up(to.upper)), ..empty(range.bytes.saturating_sub(1), metric) });
        }
        let Bounds { value, lower, upper } = pick(range);
        points.push(Point {
            value: Some(nearest(value)),
            lower: Some(down(lower)),
            upper: Some(up(upper)),
            ..empty(range.bytes, metric)
        });
        last = Some(range);
    }
    points
}

fn empty(bytes: u64, metric: Metric) -> Point {
    Point { bytes, metric, value: None, lower: None, upper: None, tolerance: None, plateau: false }
}

/// Whether sizes between two neighbours can be told from them.
fn joined(all: &[Ranged], low: &Ranged, high: &Ranged) -> bool {
    if high.bytes - low.bytes <= 2 {
        return true; // no room for a break, and nearly no size between
    }
    high.bytes / low.bytes.max(1) < TOO_FAR && step(all, low, high).abs() <= room(low).min(room(high))
}

/// How far, as ln(time), the second size is from where the curve beside it would have it.
///
/// In log-log a curve of latency and bandwidth bends upwards only: its slope rises from 0 to 1, and between two sizes lies
/// between the slopes before and after. A change of algorithm or protocol shows as a slope outside of them, and nobody
/// knows at which size between the two it happens.
fn step(all: &[Ranged], low: &Ranged, high: &Ranged) -> f64 {
    let at = |bytes: u64| all.iter().position(|r| r.bytes == bytes);
    let before = at(low.bytes).and_then(|i| all.get(i.checked_sub(1)?)).map_or(0.0, |r| slope(r, low));
    let after = at(high.bytes).and_then(|i| all.get(i + 1)).map_or(1.0, |r| slope(high, r));
    let slope = slope(low, high);
    (slope - slope.max(before.min(after)).min(before.max(after))) * width(low, high)
}

fn slope(low: &Ranged, high: &Ranged) -> f64 {
    (high.us.value / low.us.value).ln() / width(low, high)
}

fn width(low: &Ranged, high: &Ranged) -> f64 {
    (high.bytes as f64).ln() - (low.bytes as f64).ln()
}

/// The narrower side of a range, as ln(time).
fn room(range: &Ranged) -> f64 {
    let Bounds { value, lower, upper } = range.us;
    (upper / value).ln().min((value / lower).ln())
}

/// Four significant digits, rounded outwards: what was inside stays inside.
fn down(figure: f64) -> f64 {
    rounded(figure, f64::floor)
}

fn up(figure: f64) -> f64 {
    rounded(figure, f64::ceil)
}

fn nearest(figure: f64) -> f64 {
    rounded(figure, f64::round)
}

fn rounded(figure: f64, round: fn(f64) -> f64) -> f64 {
    let decimals = 3 - figure.log10().floor() as i32;
    // a power of ten that is a whole number is exact, so that the quotient is the nearest number to its digits
    if decimals >= 0 {
        let scale = 10f64.powi(decimals);
        round(figure * scale) / scale
    } else {
        let scale = 10f64.powi(-decimals);
        round(figure / scale) * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Entry;

    /// Times with 10 % to either side; busbw is bytes over time.
    fn ranges(times: &[(u64, f64)]) -> Vec<Ranged> {
        let range = |&(bytes, us): &(u64, f64)| {
            let around = |value: f64| Bounds { value, lower: value * 0.9, upper: value * 1.1 };
            Ranged { bytes, us: around(us), gbs: around(bytes as f64 / us / 1e3) }
        };
        times.iter().map(range).collect()
    }

    fn entry(times: &[(u64, f64)]) -> Entry {
        Entry::of_points(points(&ranges(times)))
    }

    /// latency 10 us, 100 GB/s, from 1 KiB to 64 MiB.
    fn model() -> Vec<(u64, f64)> {
        (10..27).map(|i| (1u64 << i, 10.0 + (1u64 << i) as f64 / 1e5)).collect()
    }

    #[test]
    fn every_size_from_the_first_to_the_last_has_a_range_and_the_model_is_inside() {
        let entry = entry(&model());
        for bytes in (1024..1 << 26).step_by(99_991) {
            let us = 10.0 + bytes as f64 / 1e5;
            let inside = |r: crate::reference::Range, f: f64| r.lower.unwrap() <= f && f <= r.upper.unwrap();
            match (entry.range(Metric::TimeUs, bytes), entry.range(Metric::BusbwGbs, bytes)) {
                (Some(time), _) => assert!(inside(time, us), "{bytes}"),
                (None, Some(busbw)) => assert!(inside(busbw, bytes as f64 / us / 1e3), "{bytes}"),
                (None, None) => panic!("nothing is said at {bytes}"),
            }
        }
    }

    #[test]
    fn time_is_bounded_left_of_the_knee_and_busbw_right_of_it() {
        let entry = entry(&model());
        // half of 98.5 GB/s is reached between 512 KiB (34 GB/s) and 1 MiB (51 GB/s)
        let sizes = |m| entry.curve(m).map(|p| p.bytes).collect::<Vec<_>>();
        assert_eq!(sizes(Metric::TimeUs), (10..=20).map(|i| 1 << i).collect::<Vec<_>>());
        assert_eq!(sizes(Metric::BusbwGbs), (20..27).map(|i| 1 << i).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_said_between_sizes_where_the_time_steps() {
        let stepped: Vec<(u64, f64)> =
            model().into_iter().map(|(b, us)| (b, if b > 1 << 22 { us * 1.5 } else { us })).collect();
        let entry = entry(&stepped);
        let says = |bytes| entry.range(Metric::BusbwGbs, bytes).is_some();
        assert!(says(1 << 22) && says(1 << 23), "what was measured stands");
        assert!(!says((1 << 22) + 4096) && !says(6 << 20) && !says((1 << 23) - 4096));
        assert!(says(3 << 20) && says(12 << 20), "elsewhere the curve is whole");
    }

    #[test]
    fn sizes_far_apart_are_not_joined() {
        let few: Vec<(u64, f64)> = model().into_iter().filter(|(b, _)| [1 << 10, 1 << 26].contains(b)).collect();
        let entry = entry(&few);
        let says = |bytes| [Metric::TimeUs, Metric::BusbwGbs].iter().any(|m| entry.range(*m, bytes).is_some());
        assert!(says(1 << 10) && says(1 << 26) && !says(1 << 20));
    }

    #[test]
    fn figures_are_rounded_outwards() {
        assert_eq!((down(12.3456), up(12.3456), nearest(12.3456)), (12.34, 12.35, 12.35));
        assert_eq!((down(123_456.0), up(123_456.0)), (123_400.0, 123_500.0));
        assert_eq!((down(0.000_123_456), up(0.000_123_456)), (0.000_123_4, 0.000_123_5));
    }
}
