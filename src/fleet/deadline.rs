//! How long things may take.

use std::time::Duration;

use super::part::footprint;
use super::protocol::Request;
use crate::case::{Case, Primitive, Variant};

/// What making a communicator may take, kernels loaded: this, and [`MAKING_PER_RANK`] for each rank.
const MAKING: Duration = Duration::from_secs(60);
const MAKING_PER_RANK: Duration = Duration::from_secs(1);

/// The least that a case gets.
const FLOOR: Duration = Duration::from_secs(10);

/// The least that a communicator's first case gets, as libraries connect at the first call.
const FIRST: Duration = Duration::from_secs(30);

/// Launches of a placement beside the timed ones, in whose place fills and checks count too; those of pipelines and graphs are
/// many more.
const OTHER_LAUNCHES: u64 = 8;
const DRILL_LAUNCHES: u64 = 64;

/// Bytes a second that the slowest backend moves, and seconds of a launch and rank that moves nothing. Both are far below
/// what is seen, as a deadline that strikes a slow machine is worse than one that strikes late.
struct Pace {
    bytes_per_s: f64,
    launch_s: f64,
    /// Ranks move their bytes one after the other, as they share what moves them.
    in_turn: bool,
}

/// Ranks share cores, and the host computes inputs and checks as well.
const HOST: Pace = Pace { bytes_per_s: 0.2e9, launch_s: 2e-3, in_turn: true };
const NCCL: Pace = Pace { bytes_per_s: 0.5e9, launch_s: 1e-3, in_turn: false };
/// Processes that share a GPU take turns of milliseconds on it, and each step of a ring waits for the next one's turn.
const TURNS: Pace = Pace { bytes_per_s: 0.02e9, launch_s: 50e-3, in_turn: true };

/// The least buffers whose case tells what this machine moves: below, time is not a matter of bytes.
const TELLING: u64 = 16 << 20;

/// How many times slower than the slowest case so far one may be that lives.
const SLOWER: f64 = 20.0;

/// What cases of this run have shown: a better measure of what is late than any guess beforehand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Bytes of both buffers a second, in the slowest plain case of some size of each primitive.
    bytes_per_s: [Option<f64>; Primitive::ALL.len()],
}

impl Seen {
    /// Takes in a case that passed, with the mean times of its placements in microseconds. Variants may be slow by right.
    pub fn add(&mut self, case: &Case, ranks: u32, means_us: impl Iterator<Item = f64>) {
        let bytes = footprint(case, ranks);
        if bytes < TELLING || !case.variants.is_empty() {
            return;
        }
        let rates = means_us.filter(|us| us.is_finite() && *us > 0.0).map(|us| bytes as f64 / us * 1e6);
        if let Some(slowest) = self.bytes_per_s.get_mut(case.primitive as usize) {
            *slowest = rates.chain(*slowest).reduce(f64::min);
        }
    }

    /// The primitive's own, or else the slowest of those that were seen.
    fn rate(&self, primitive: Primitive) -> Option<f64> {
        let own = self.bytes_per_s.get(primitive as usize).copied().flatten();
        own.or_else(|| self.bytes_per_s.into_iter().flatten().reduce(f64::min))
    }
}

/// For making a communicator of so many ranks.
pub fn making(ranks: u32) -> Duration {
    MAKING + MAKING_PER_RANK * ranks
}

/// For one case on `backend`, from request to report, where none is set: bytes of both buffers x launches, at a pace far below what
/// was `seen`, or else that no working machine is slower than, plus a floor. `turns` says that processes share a GPU.
pub fn derived(request: &Request, backend: &str, turns: bool, first: bool, seen: Seen) -> Duration {
    let pace = match backend {
        "host" => HOST,
        _ if turns => TURNS,
        _ => NCCL,
    };
    let drilled = request.case.variants.iter().any(|v| matches!(v, Variant::Pipeline | Variant::Graph));
    let others = if drilled { DRILL_LAUNCHES } else { OTHER_LAUNCHES };
    let launches = 2 * (u64::from(request.warmup) + 2 * u64::from(request.iters) + others);
    let (ranks, bytes) = (f64::from(request.ranks), footprint(&request.case, request.ranks) as f64);
    let moved_s = match seen.rate(request.case.primitive) {
        Some(rate) => SLOWER * bytes / rate,
        None if pace.in_turn => ranks * bytes / pace.bytes_per_s,
        None => bytes / pace.bytes_per_s,
    };
    let predicted = launches as f64 * (moved_s + ranks * pace.launch_s);
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
        let seconds = |first| derived(&request, "host", false, first, Seen::default()).as_secs();
        assert!((10..15).contains(&seconds(false)) && (30..35).contains(&seconds(true)));
    }

    #[test]
    fn more_bytes_launches_and_slower_backends_get_more_and_nothing_overflows() {
        let of = |case, iters, backend| derived(&request(case, iters), backend, false, false, Seen::default());
        let base = of("all_reduce::sum::float::1MiB", 20, "nccl");
        assert!(of("all_reduce::sum::float::1GiB", 20, "nccl") > 10 * base);
        assert!(of("all_reduce::sum::float::1MiB", 2000, "nccl") > base);
        assert!(of("all_reduce::sum::float::1MiB", 20, "host") > base);
        assert!(derived(&request("all_reduce::sum::float::1MiB", 20), "nccl", true, false, Seen::default()) > base);
        assert!(of("all_reduce::sum::int8::1048576GiB", 1_000_000, "host") > base);
    }

    #[test]
    fn what_was_seen_makes_a_large_case_late_in_seconds_and_a_slow_machine_gets_its_time() {
        let large = request("all_reduce::sum::float::1GiB", 20);
        let after = |us: f64| {
            let mut seen = Seen::default();
            seen.add(&"all_reduce::sum::float::8B".parse().unwrap(), 4, [1e9].into_iter());
            seen.add(&"all_reduce::sum::float::1GiB@graph".parse().unwrap(), 4, [1e12].into_iter());
            seen.add(&"all_reduce::sum::float::512MiB".parse().unwrap(), 4, [us, f64::NAN].into_iter());
            derived(&large, "nccl", false, false, seen).as_secs_f64()
        };
        // two H200 need 1.7 ms, and ten times as much would still be no hang
        assert!((15.0..60.0).contains(&after(1.7e3)), "{}", after(1.7e3));
        // over a gigabit network a gigabyte takes ten seconds
        assert!(after(5e6) > 60.0 * 10.0 * 2.0);
        let unseen = derived(&large, "nccl", false, false, Seen::default()).as_secs();
        assert!((60..900).contains(&unseen), "{unseen}");
    }

    #[test]
    fn a_slow_primitive_makes_no_other_late_later_and_stands_in_for_those_that_were_not_seen() {
        let mut seen = Seen::default();
        for (case, us) in [("sendrecv", 7.0), ("all_reduce", 1.0), ("all_reduce", 1.5), ("sendrecv", 2.0)] {
            let op = if case == "all_reduce" { "sum" } else { "none" };
            seen.add(&format!("{case}::{op}::float::512MiB").parse().unwrap(), 4, [us * 1e3].into_iter());
        }
        let seconds = |case| derived(&request(case, 20), "nccl", false, false, seen).as_secs_f64();
        let [all_reduce, sendrecv] = ["all_reduce::sum::float::512MiB", "sendrecv::none::float::512MiB"].map(seconds);
        // beside the floor
        assert!(sendrecv - 10.0 > 4.0 * (all_reduce - 10.0), "{sendrecv} and {all_reduce} s");
        // as many bytes in its buffers
        assert_eq!(seconds("alltoall::none::float::512MiB"), sendrecv);
    }
}
