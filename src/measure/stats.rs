//! Statistics of single launches.

use crate::run::result::TimeStats;

/// Statistics of launch times in microseconds. `None` where there is no sample.
///
/// NaN and infinite samples are left out, and `n` counts the rest. Percentiles as [`percentile`]; the median is p50.
/// `cv` is the sample standard deviation (n - 1) over the mean, 0 for one sample or a mean of 0.
pub fn time_stats(samples_us: &[f64]) -> Option<TimeStats> {
    let mut sorted: Vec<f64> = samples_us.iter().copied().filter(|s| s.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let median = percentile(&sorted, 50.0)?;
    Some(TimeStats {
        median,
        p50: median,
        p90: percentile(&sorted, 90.0)?,
        p99: percentile(&sorted, 99.0)?,
        min,
        max,
        cv: variation(&sorted),
        n: sorted.len(),
    })
}

/// The `percent`-th percentile (0 to 100) of ascending samples, `None` where there are none.
///
/// Linear between the two nearest samples: with `h = (n - 1) * percent / 100` it is `x[floor h]` plus the fraction of
/// `h` times the step to the next. That is Hyndman and Fan's type 7, the default of NumPy and R, so that figures can be
/// recomputed from the samples with either.
pub fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let h = (last as f64 * percent / 100.0).clamp(0.0, last as f64);
    let below = *sorted.get(h.floor() as usize)?;
    let above = *sorted.get(h.ceil() as usize)?;
    Some(below + (above - below) * h.fract())
}

/// Sample standard deviation over mean.
fn variation(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if samples.len() < 2 || mean == 0.0 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
    (squares / (n - 1.0)).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// By hand: sorted 10 20 30 40, h = 1.5, 2.7, 2.97; mean 25, squares 225 25 25 225 = 500, 500/3 = 166.67.
    #[test]
    fn percentiles_and_cv_equal_those_computed_by_hand() {
        let s = time_stats(&[40.0, 10.0, 30.0, 20.0]).unwrap();
        assert!(close(s.median, 25.0) && close(s.p50, 25.0));
        assert!(close(s.p90, 37.0), "{}", s.p90);
        assert!(close(s.p99, 39.7), "{}", s.p99);
        assert_eq!((s.min, s.max, s.n), (10.0, 40.0, 4));
        assert!(close(s.cv, (500.0f64 / 3.0).sqrt() / 25.0));
    }

    #[test]
    fn an_odd_count_has_its_middle_sample_as_median() {
        let s = time_stats(&[3.0, 1.0, 100.0, 2.0, 4.0]).unwrap();
        assert_eq!(s.median, 3.0);
        assert!(close(s.p90, 4.0 + 0.6 * 96.0));
    }

    #[test]
    fn one_sample_is_every_percentile_and_does_not_vary() {
        let s = time_stats(&[7.5]).unwrap();
        assert_eq!(s, TimeStats { median: 7.5, p50: 7.5, p90: 7.5, p99: 7.5, min: 7.5, max: 7.5, cv: 0.0, n: 1 });
    }

    #[test]
    fn no_samples_give_no_statistics() {
        assert_eq!(time_stats(&[]), None);
        assert_eq!(time_stats(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn samples_that_are_no_numbers_are_left_out() {
        let s = time_stats(&[f64::NAN, 2.0, f64::NEG_INFINITY, 4.0]).unwrap();
        assert_eq!((s.n, s.median, s.min, s.max), (2, 3.0, 2.0, 4.0));
    }

    #[test]
    fn percents_outside_of_0_to_100_are_the_extremes() {
        assert_eq!(percentile(&[1.0, 2.0], -5.0), Some(1.0));
        assert_eq!(percentile(&[1.0, 2.0], 105.0), Some(2.0));
    }
}
