//! How long things may take.

use std::time::Duration;

use super::part::footprint;
use super::protocol::Request;

/// What making a communicator may take, kernels loaded: this, and [`MAKING_PER_RANK`] for each rank.
const MAKING: Duration = Duration::from_secs(60);
const MAKING_PER_RANK: Duration = Duration::from_secs(1);

/// The least that a case gets.
const FLOOR: Duration = Duration::from_secs(10);

/// The least that a communicator's first case gets, as libraries connect at the first call.
const FIRST: Duration = Duration::from_secs(30);

/// Launches of a placement beside the timed ones: the first, checks, and those of pipelines and graphs.
const OTHER_LAUNCHES: u64 = 64;

/// Bytes a second that the slowest backend moves, and seconds of a launch and rank that moves nothing. Both are far below
/// what is seen, as a deadline that strikes a slow machine is worse than one that strikes late.
struct Pace {
    bytes_per_s: f64,
    launch_s: f64,
}

/// Ranks share cores, and the host computes inputs and checks as well.
const HOST: Pace = Pace { bytes_per_s: 0.2e9, launch_s: 2e-3 };
const NCCL: Pace = Pace { bytes_per_s: 0.5e9, launch_s: 1e-3 };
/// Processes that share a GPU take turns of milliseconds on it, and each step of a ring waits for the next one's turn.
const TURNS: Pace = Pace { bytes_per_s: 0.02e9, launch_s: 50e-3 };

/// For making a communicator of so many ranks.
pub fn making(ranks: u32) -> Duration {
    MAKING + MAKING_PER_RANK * ranks
}

/// For one case on `backend`, from request to report, where none is set: bytes of both buffers x ranks x launches at a
/// pace that no working machine is slower than, plus a floor. `turns` says that processes share a GPU.
pub fn derived(request: &Request, backend: &str, turns: bool, first: bool) -> Duration {
    let pace = match backend {
        "host" => HOST,
        _ if turns => TURNS,
        _ => NCCL,
    };
    let launches = 2 * (u64::from(request.warmup) + 2 * u64::from(request.iters) + OTHER_LAUNCHES);
    let work = launches as f64 * f64::from(request.ranks);
    let predicted = work * (footprint(&request.case, request.ranks) as f64 / pace.bytes_per_s + pace.launch_s);
    let floor = if first { FIRST } else { FLOOR };
    // beyond any Duration only for a case that fits into no memory
    floor.saturating_add(Duration::try_from_secs_f64(predicted).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(case: &str, iters: u32) -> Request {
        let case = case.parse().unwrap();
        Request { case, ranks: 4, seed: 0, epoch: 1, warmup: 1, iters, check: true, tamper: None, fault: None }
    }

    #[test]
    fn small_cases_get_about_the_floor_and_the_first_one_more() {
        let request = request("all_reduce::sum::float::8B", 20);
        let seconds = |first| derived(&request, "host", false, first).as_secs();
        assert!((10..15).contains(&seconds(false)) && (30..35).contains(&seconds(true)));
    }

    #[test]
    fn more_bytes_launches_and_slower_backends_get_more_and_nothing_overflows() {
        let of = |case, iters, backend| derived(&request(case, iters), backend, false, false);
        let base = of("all_reduce::sum::float::1MiB", 20, "nccl");
        assert!(of("all_reduce::sum::float::1GiB", 20, "nccl") > 10 * base);
        assert!(of("all_reduce::sum::float::1MiB", 2000, "nccl") > base);
        assert!(of("all_reduce::sum::float::1MiB", 20, "host") > base);
        assert!(derived(&request("all_reduce::sum::float::1MiB", 20), "nccl", true, false) > base);
        assert!(of("all_reduce::sum::int8::1048576GiB", 1_000_000, "host") > base);
    }
}
