//! From the figures of some launches to the range that the next one should be in.
//!
//! In words, for one curve:
//!
//! - `sigma` is the standard deviation of ln(time) between launches of the same case and placement, pooled over the
//!   size and its two neighbours on either side. Few launches tell little of one size alone.
//! - `margin = max(1 + tolerance, e^(3 sigma))`, a factor.
//! - `latency` is the median time at the smallest size, if busbw there is under a quarter of the greatest: the time is
//!   then nearly all latency. Otherwise it is 0.
//! - slowest accepted: `max(slowest * margin + latency, 3 * latency)`.
//! - fastest accepted: `min(fastest / margin, fastest - latency / 2)`, but not under half of the fastest.
//!
//! Slowest and fastest are of all launches and placements, so all that was measured is inside.

use super::collect::{Figure, Size};

/// Neighbours on either side whose spread counts.
const NEIGHBOURS: usize = 2;

/// Share of the greatest busbw under which the time at the smallest size is latency. With T = latency + S/beta, at a
/// quarter of beta three quarters of the time are latency.
const LATENCY_SHARE: f64 = 0.25;

/// What is accepted at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranged {
    pub bytes: u64,
    /// Median, least and most accepted time in microseconds.
    pub us: Bounds,
    /// Likewise busbw in GB/s: the same range, seen the other way.
    pub gbs: Bounds,
}

/// A figure and its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub value: f64,
    pub lower: f64,
    pub upper: f64,
}

/// Ranges of one curve's sizes, which are in rising order and have a figure each.
pub(super) fn ranges(sizes: &[Size], tolerance: f64) -> Vec<Ranged> {
    let latency = latency(sizes);
    let ranged = sizes.iter().enumerate().map(|(i, size)| {
        let near = sizes.iter().skip(i.saturating_sub(NEIGHBOURS)).take(i.min(NEIGHBOURS) + 1 + NEIGHBOURS);
        let margin = (3.0 * spread(near)).exp().max(1.0 + tolerance);
        let (us, gbs) = (Extent::of(size, |f| f.us), Extent::of(size, |f| f.gbs));
        let slowest = (us.greatest * margin + latency).max(3.0 * latency);
        let fastest = (us.least / margin).min(us.least - latency / 2.0).max(us.least / 2.0);
        Ranged {
            bytes: size.bytes,
            us: Bounds { value: us.median, lower: fastest, upper: slowest },
            gbs: Bounds {
                value: gbs.median,
                lower: gbs.least * (us.greatest / slowest),
                upper: gbs.greatest * (us.least / fastest),
            },
        }
    });
    ranged.collect()
}

fn latency(sizes: &[Size]) -> f64 {
    let Some(first) = sizes.first() else { return 0.0 };
    let most = sizes.iter().map(|size| Extent::of(size, |f| f.gbs).greatest).fold(0.0, f64::max);
    if Extent::of(first, |f| f.gbs).greatest < LATENCY_SHARE * most { Extent::of(first, |f| f.us).median } else { 0.0 }
}

/// Pooled standard deviation of ln(time) between launches; 0 where no series has two.
fn spread<'a>(sizes: impl Iterator<Item = &'a Size>) -> f64 {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for series in sizes.flat_map(|size| &size.series) {
        let n = series.len() as f64;
        let mean = series.iter().map(|f| f.us.ln()).sum::<f64>() / n;
        squares += series.iter().map(|f| (f.us.ln() - mean).powi(2)).sum::<f64>();
        freedom += n - 1.0;
    }
    if freedom > 0.0 { (squares / freedom).sqrt() } else { 0.0 }
}

struct Extent {
    least: f64,
    median: f64,
    greatest: f64,
}

impl Extent {
    fn of(size: &Size, pick: fn(&Figure) -> f64) -> Self {
        let mut figures: Vec<f64> = size.series.iter().flatten().map(pick).collect();
        figures.sort_by(f64::total_cmp);
        Extent {
            least: figures.first().copied().unwrap_or_default(),
            median: crate::measure::stats::percentile(&figures, 50.0).unwrap_or_default(),
            greatest: figures.last().copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One series a size; busbw is bytes over time.
    fn size(bytes: u64, times: &[f64]) -> Size {
        let series = times.iter().map(|&us| Figure { us, gbs: bytes as f64 / us / 1e3 }).collect();
        Size { bytes, series: vec![series] }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b
    }

    /// By hand: all alike, so the margin is 1.05; one size alone is no latency.
    #[test]
    fn launches_that_agree_get_the_tolerance_on_both_sides() {
        let r = ranges(&[size(1 << 20, &[100.0; 3])], 0.05)[0];
        assert!(close(r.us.upper, 105.0) && close(r.us.lower, 100.0 / 1.05), "{r:?}");
        assert!(close(r.gbs.lower, 10.48576 / 1.05) && close(r.gbs.upper, 10.48576 * 1.05), "{r:?}");
    }

    /// By hand: ln of 90, 100, 111.11 is ln 100 - d, ln 100, ln 100 + d with d = 0.10536, so sigma = d and e^(3d) = 1.3717.
    #[test]
    fn launches_that_differ_get_three_deviations_beyond_the_outermost() {
        let r = ranges(&[size(1 << 20, &[90.0, 100.0, 100.0 / 0.9])], 0.05)[0];
        assert!(close(r.us.upper, 100.0 / 0.9 / 0.729) && close(r.us.lower, 90.0 * 0.729), "{r:?}");
    }

    #[test]
    fn the_spread_of_neighbours_counts_up_to_the_second() {
        // so close to each other that none is all latency
        let mut sizes: Vec<Size> = (0..10).map(|i| size(1_000_000 + i, &[100.0, 100.0, 100.0])).collect();
        sizes[2] = size(1_000_002, &[80.0, 100.0, 120.0]);
        let wide: Vec<bool> = ranges(&sizes, 0.05).iter().map(|r| r.us.upper > 125.0).collect();
        assert_eq!(wide, [true, true, true, true, true, false, false, false, false, false]);
    }

    /// By hand: 10 us at 8 B is latency, as 0.0008 GB/s is little of 10.
    #[test]
    fn latency_may_triple_or_halve_and_adds_once_to_what_is_large() {
        let r = ranges(&[size(8, &[10.0; 3]), size(10_000_000, &[1000.0; 3])], 0.05);
        assert!(close(r[0].us.upper, 30.0) && close(r[0].us.lower, 5.0), "{r:?}");
        assert!(close(r[1].us.upper, 1060.0) && close(r[1].us.lower, 1000.0 / 1.05), "{r:?}");
        assert!(close(r[1].gbs.lower, 10.0 / 1.06) && close(r[1].gbs.upper, 10.5), "{r:?}");
    }

    #[test]
    fn a_sweep_of_large_sizes_has_no_latency() {
        let r = ranges(&[size(10_000_000, &[1000.0; 3]), size(20_000_000, &[1900.0; 3])], 0.05);
        assert!(close(r[0].us.upper, 1050.0), "{r:?}");
    }

    #[test]
    fn one_outlier_does_not_open_the_fast_side_beyond_half() {
        let r = ranges(&[size(1 << 20, &[100.0, 100.0, 100.0, 900.0])], 0.05)[0];
        assert!(close(r.us.lower, 50.0), "{r:?}");
    }
}
