//! Ranges between and beyond the points of an entry.

use super::golden::{Entry, Metric, Point};
use crate::case::Bytes;

/// A range at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// What is bounded.
    pub metric: Metric,
    /// The figure expected, where one is stated.
    pub value: Option<f64>,
    /// The least that is accepted.
    pub lower: Option<f64>,
    /// The most that is accepted.
    pub upper: Option<f64>,
}

impl Entry {
    /// The range of `metric` at `bytes`; `None` where the entry says nothing of that size.
    ///
    /// Between two points every figure is interpolated linearly in log(bytes) and log(figure), as curves of bandwidth
    /// are drawn. A bound that one of the two lacks is absent between them. Beyond the first and the last point nothing is
    /// said, unless the last is a plateau. Sizes are those really moved, rounded down to whole blocks, so that a size up to
    /// 1 % short of the first point counts as the first point.
    pub fn range(&self, metric: Metric, bytes: u64) -> Option<Range> {
        self.figures(metric, bytes).filter(|range| range.lower.is_some() || range.upper.is_some())
    }

    fn figures(&self, metric: Metric, bytes: u64) -> Option<Range> {
        let mut below: Option<&Point> = None;
        for point in self.curve(metric) {
            if point.bytes == bytes {
                return Some(self.at(point));
            }
            if point.bytes > bytes {
                let nearly = point.bytes - point.bytes / 100 <= bytes;
                return match below {
                    Some(low) => Some(self.between(low, point, bytes)),
                    None => nearly.then(|| self.at(point)),
                };
            }
            below = Some(point);
        }
        below.filter(|last| last.plateau).map(|last| self.at(last))
    }

    /// The sizes that `metric` covers, as `1MiB to 1GiB`; `None` where it covers none.
    pub(super) fn covers(&self, metric: Metric) -> Option<String> {
        let first = self.curve(metric).next()?;
        let last = self.curve(metric).last()?;
        let from = Bytes(first.bytes);
        Some(match (last.plateau, first.bytes == last.bytes) {
            (true, _) => format!("{from} and more"),
            (false, true) => format!("{from} only"),
            (false, false) => format!("{from} to {}", Bytes(last.bytes)),
        })
    }

    fn at(&self, point: &Point) -> Range {
        let (lower, upper) = point.bounds(self.tolerance);
        Range { metric: point.metric, value: point.value, lower, upper }
    }

    fn between(&self, low: &Point, high: &Point, bytes: u64) -> Range {
        let ln = |bytes: u64| (bytes as f64).ln();
        let share = (ln(bytes) - ln(low.bytes)) / (ln(high.bytes) - ln(low.bytes));
        let mix = |a: Option<f64>, b: Option<f64>| Some((a?.ln() * (1.0 - share) + b?.ln() * share).exp());
        let (a, b) = (self.at(low), self.at(high));
        Range {
            metric: low.metric,
            value: mix(a.value, b.value),
            lower: mix(a.lower, b.lower),
            upper: mix(a.upper, b.upper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bytes: u64, lower: Option<f64>, upper: Option<f64>) -> Point {
        Point { bytes, metric: Metric::BusbwGbs, value: None, lower, upper, tolerance: None, plateau: false }
    }

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9 * b)
    }

    /// 1 KiB and 4 KiB, half way in log(bytes) at 2 KiB: the figures' geometric means.
    #[test]
    fn between_points_figures_are_interpolated_in_log_space() {
        let e = Entry::of_points(vec![point(1024, Some(10.0), Some(20.0)), point(4096, Some(40.0), Some(45.0))]);
        let r = e.range(Metric::BusbwGbs, 2048).unwrap();
        assert!(close(r.lower, 20.0), "sqrt(10 * 40): {r:?}");
        assert!(close(r.upper, 30.0), "sqrt(20 * 45): {r:?}");
        // A quarter of the way from 1 B to 16 B is 2 B; 16^(1/4) = 2.
        let e = Entry::of_points(vec![point(1, Some(1.0), None), point(16, Some(16.0), None)]);
        assert!(close(e.range(Metric::BusbwGbs, 2).unwrap().lower, 2.0));
    }

    #[test]
    fn a_bound_that_one_neighbour_lacks_is_absent_between_them() {
        let e = Entry::of_points(vec![point(1024, Some(10.0), Some(20.0)), point(4096, Some(40.0), None)]);
        let r = e.range(Metric::BusbwGbs, 2048).unwrap();
        assert!(r.lower.is_some() && r.upper.is_none());
        assert_eq!(e.range(Metric::BusbwGbs, 1024).unwrap().upper, Some(20.0), "at the point itself it stands");
        let e = Entry::of_points(vec![point(1024, Some(10.0), None), point(4096, None, Some(20.0))]);
        assert_eq!(e.range(Metric::BusbwGbs, 2048), None, "without bounds nothing is said");
    }

    #[test]
    fn nothing_is_said_beyond_the_ends_but_on_a_plateau() {
        let mut e = Entry::of_points(vec![point(1024, Some(10.0), None), point(4096, Some(40.0), None)]);
        assert_eq!(e.range(Metric::BusbwGbs, 1013), None);
        assert_eq!(e.range(Metric::BusbwGbs, 4097), None);
        assert_eq!(e.range(Metric::TimeUs, 1024), None);
        assert_eq!(e.covers(Metric::BusbwGbs).as_deref(), Some("1KiB to 4KiB"));
        e.points.iter_mut().for_each(|p| p.plateau = p.bytes == 4096);
        assert_eq!(e.range(Metric::BusbwGbs, 1 << 40).unwrap().lower, Some(40.0));
        assert_eq!(e.range(Metric::BusbwGbs, 1013), None);
    }

    #[test]
    fn a_first_size_that_was_rounded_down_to_blocks_is_still_the_first_size() {
        let e = Entry::of_points(vec![point(1 << 20, Some(10.0), None)]);
        // 1 MiB of floats over 7 ranks, each block a multiple of 16 bytes.
        assert_eq!(e.range(Metric::BusbwGbs, 1_048_544).unwrap().lower, Some(10.0));
        assert_eq!(e.range(Metric::BusbwGbs, 1_030_000), None);
    }

    #[test]
    fn a_tolerance_bounds_a_value_on_both_sides() {
        let mut e = Entry::of_points(vec![point(1024, None, None), point(4096, None, None)]);
        e.tolerance = Some(0.25);
        e.points.iter_mut().for_each(|p| p.value = Some(100.0));
        e.points.iter_mut().filter(|p| p.bytes == 1024).for_each(|p| p.tolerance = Some(0.5));
        let r = e.range(Metric::BusbwGbs, 4096).unwrap();
        assert_eq!((r.lower, r.upper), (Some(75.0), Some(125.0)));
        assert_eq!(e.range(Metric::BusbwGbs, 1024).unwrap().lower, Some(50.0), "the point's own goes first");
    }
}
