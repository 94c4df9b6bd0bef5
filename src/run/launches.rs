//! Several fresh launches of one case -> one result.

use super::result::{CaseResult, Outcome, PlacementResult};

/// The result over all launches: the worst outcome, and for each placement the launch with the median time.
///
/// Within one launch the algorithm, the buffers and their addresses stay what they are; only fresh launches show how far
/// those move a figure. The median is one that was measured, not a mean of unlike ones.
pub fn combine(mut launches: Vec<CaseResult>) -> CaseResult {
    let worst = launches.iter().enumerate().max_by_key(|(i, r)| (rank(r.outcome), usize::MAX - i)).map(|(i, _)| i);
    let mut result = launches.swap_remove(worst.unwrap_or(0));
    if launches.is_empty() || result.outcome != Outcome::Pass {
        return result;
    }
    launches.push(result.clone());
    for placement in &mut result.placements {
        let mut same: Vec<&PlacementResult> = launches
            .iter()
            .filter_map(|launch| launch.placements.iter().find(|p| p.in_place == placement.in_place))
            .collect();
        same.sort_by(|a, b| a.mean_us.total_cmp(&b.mean_us));
        if let Some(median) = same.get(same.len() / 2) {
            *placement = (*median).clone();
        }
    }
    result.duration_s = launches.iter().map(|r| r.duration_s).sum();
    result
}

fn rank(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Pass => 0,
        Outcome::Skip => 1,
        Outcome::Fail => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::super::assemble::frame;
    use super::*;

    fn launch(mean_us: f64, outcome: Outcome) -> CaseResult {
        let case = "all_reduce::sum::float::8B".parse().unwrap();
        let figure = PlacementResult {
            in_place: false,
            mean_us,
            time_us: None,
            algbw_gbs: 1.0 / mean_us,
            busbw_gbs: 1.0 / mean_us,
            wrong: Some(0),
            first_wrong: None,
            agree: None,
            repeats: None,
        };
        CaseResult { outcome, placements: vec![figure], message: format!("{mean_us}"), ..frame(&case, 2) }
    }

    #[test]
    fn the_median_launch_is_kept_whole() {
        let r = combine([3.0, 1.0, 2.0].map(|us| launch(us, Outcome::Pass)).to_vec());
        assert_eq!((r.placements[0].mean_us, r.placements[0].busbw_gbs), (2.0, 0.5));
    }

    #[test]
    fn one_failed_launch_fails_the_case() {
        let r = combine(vec![launch(1.0, Outcome::Pass), launch(2.0, Outcome::Fail), launch(3.0, Outcome::Fail)]);
        assert_eq!((r.outcome, r.message.as_str()), (Outcome::Fail, "2"));
    }
}
