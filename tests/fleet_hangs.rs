//! A case that hangs or loses a rank is a failed case with a verdict, and the next case runs.

mod fleet_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use collcheck::backend::host::HostBackend;
use collcheck::backend::{Layout, Twist};
use collcheck::run::plan::RunPlan;
use collcheck::run::result::{FailKind, Outcome};
use collcheck::trace::Class;
use fleet_support::{Fault, Faulty, Misdeed, Never, Run, plan, run, run_until};

const CASE: &str = "all_reduce::sum::float::64KiB";
const NEXT: [&str; 2] = ["all_gather::none::int8::1KiB", "reduce::max::half::4KiB@root2"];
const DEADLINE: Duration = Duration::from_secs(2);
const FOREVER: Duration = Duration::from_secs(30);

/// Runs three cases with a fault of rank 1 in the first.
fn with(misdeed: Misdeed) -> Run {
    with_in(CASE, misdeed)
}

/// The same with another first case.
fn with_in(case: &str, misdeed: Misdeed) -> Run {
    let fault = Fault { rank: 1, launch: 1, misdeed };
    run(Faulty::new(4, Some(fault)), plan(&[case, NEXT[0], NEXT[1]], DEADLINE))
}

/// Asserts that the first case failed in this way, through rank 1, and that the others passed soon after.
fn expect(run: &Run, kind: FailKind, class: Class) -> String {
    let [first, rest @ ..] = &run.results[..] else { panic!("no results") };
    assert_eq!((first.outcome, first.kind), (Outcome::Fail, Some(kind)), "{}", first.message);
    let verdict = first.verdict.as_ref().unwrap();
    assert_eq!((verdict.class, &verdict.culprit_ranks[..]), (class, &[1][..]), "{}", first.message);
    assert_eq!(rest.len(), 2);
    for next in rest {
        assert_eq!(next.outcome, Outcome::Pass, "{}: {}", next.name, next.message);
    }
    assert!(run.seconds[0] < DEADLINE.as_secs_f64() + 15.0, "{:?}", run.seconds);
    assert_eq!((run.ended.summary.cases, run.ended.summary.failed), (3, 1));
    first.message.clone()
}

#[test]
fn a_rank_that_sleeps_before_its_call_is_stuck() {
    let message = expect(&with(Misdeed::Sleep(FOREVER)), FailKind::Hang, Class::EStuck);
    let first = message.lines().next().unwrap();
    assert!(first.starts_with("no end within 2 s: E.stuck: rank 1 "), "{message}");
    assert!(message.contains("\n  rank 1: never called"), "{message}");
    assert!(message.contains("\n  ranks 0, 2, 3: all_reduce sum float, 16384 elements: running"), "{message}");
    assert!(message.contains("\nnext: "), "{message}");
}

#[test]
fn a_rank_that_leaves_its_call_out_is_one_call_short() {
    let message = expect(&with(Misdeed::Skip), FailKind::Hang, Class::BCount);
    assert!(message.contains("rank 1: waiting for the other workers"), "{message}");
}

#[test]
fn a_rank_that_passes_fewer_elements_is_a_size() {
    let message = expect(&with(Misdeed::Half), FailKind::Hang, Class::ASize);
    assert!(message.contains("all_reduce sum float, 8192 elements"), "{message}");
}

/// More than a channel takes.
const LARGE: &str = "sendrecv::none::float::512KiB";
const SMALL: &str = "sendrecv::none::float::64B";

#[test]
fn a_rank_that_leaves_its_receive_out_is_unpaired_once_the_send_does_not_fit() {
    let message = expect(&with_in(LARGE, Misdeed::Twist(Twist::NoRecv)), FailKind::Hang, Class::CUnpaired);
    assert!(message.contains("send 0->1"), "{message}");
    assert!(message.contains("\n  rank 1: send to 2 float, 131072 elements: completed\n"), "{message}");
}

#[test]
fn a_rank_that_leaves_its_send_out_is_unpaired_whatever_the_size() {
    for case in [LARGE, SMALL] {
        let message = expect(&with_in(case, Misdeed::Twist(Twist::NoSend)), FailKind::Hang, Class::CUnpaired);
        assert!(message.contains("recv 2<-1"), "{message}");
    }
}

/// Also where the rank that it turns to has done all that it should and is in no call.
#[test]
fn a_rank_that_turns_to_the_wrong_peer_is_unpaired_and_that_peer_is_not_blamed() {
    for case in [LARGE, SMALL] {
        for twist in [Twist::SendTo(3), Twist::RecvFrom(3), Twist::SendTo(0)] {
            expect(&with_in(case, Misdeed::Twist(twist)), FailKind::Hang, Class::CUnpaired);
        }
    }
}

#[test]
fn a_rank_that_comes_late_to_its_sends_and_receives_is_stuck() {
    expect(&with_in(LARGE, Misdeed::Sleep(FOREVER)), FailKind::Hang, Class::EStuck);
}

#[test]
fn a_rank_that_dies_is_a_crash_long_before_the_deadline() {
    let run = with(Misdeed::Panic);
    let message = expect(&run, FailKind::Crash, Class::ECrash);
    assert!(message.starts_with("rank 1 ended before the case did: E.crash"), "{message}");
    assert!(message.contains("panicked: as told"), "{message}");
    assert!(run.seconds[0] < 2.0, "{:?}", run.seconds);
}

#[test]
fn a_rank_that_is_stuck_where_no_call_is_open_is_found_too() {
    let message = expect(&with(Misdeed::SleepInPrepare(FOREVER)), FailKind::Hang, Class::EStuck);
    assert!(message.contains("the workers' meeting"), "{message}");
}

#[test]
fn a_call_that_one_rank_is_refused_fails_with_its_reason_and_frees_the_others() {
    let fault = Fault { rank: 1, launch: 1, misdeed: Misdeed::Refuse };
    let run = run(Faulty::new(4, Some(fault)), plan(&[CASE, NEXT[0]], FOREVER));
    let first = &run.results[0];
    assert_eq!((first.outcome, first.kind), (Outcome::Fail, Some(FailKind::Error)));
    assert!(first.message.contains("rank 1") && first.message.contains("as told"), "{}", first.message);
    assert_eq!(run.results[1].outcome, Outcome::Pass, "{}", run.results[1].message);
    assert!(run.seconds[0] < 10.0, "{:?}", run.seconds);
}

/// Where ranks meet no more before the end, too; and at a deadline it is the reason that counts, not that others wait.
#[test]
fn a_timed_call_that_one_rank_is_refused_fails_with_its_reason_too() {
    // by the clock and by marks, out of place and in place
    for launch in [4, 8, LAUNCHES + 4, LAUNCHES + 8] {
        let fault = Fault { rank: 1, launch, misdeed: Misdeed::Refuse };
        let run = run(Faulty::new(4, Some(fault)), plan(&[CASE, NEXT[0]], DEADLINE));
        let first = &run.results[0];
        assert_eq!((first.outcome, first.kind), (Outcome::Fail, Some(FailKind::Error)), "{launch}: {}", first.message);
        assert!(first.message.contains("rank 1") && first.message.contains("as told"), "{launch}: {}", first.message);
        assert_eq!(run.results[1].outcome, Outcome::Pass, "{launch}: {}", run.results[1].message);
    }
}

/// The others end all the same, and what they have sent is left on the way.
#[test]
fn a_rank_that_falls_behind_at_the_end_of_a_chain_leaves_nothing_to_the_next_case() {
    let fault = Fault { rank: 3, launch: LAUNCHES + 4, misdeed: Misdeed::Refuse };
    let run = run(Faulty::new(4, Some(fault)), plan(&["broadcast::none::int8::1KiB", NEXT[0], NEXT[1]], DEADLINE));
    let [first, rest @ ..] = &run.results[..] else { panic!("no results") };
    assert_eq!((first.outcome, first.kind), (Outcome::Fail, Some(FailKind::Error)), "{}", first.message);
    assert!(first.placements.iter().all(|p| p.in_place == (p.mean_us == 0.0)), "{:?}", first.placements);
    for next in rest {
        assert_eq!(next.outcome, Outcome::Pass, "{}: {}", next.name, next.message);
    }
}

/// Launches of a placement: the first, one to warm up, one before the clock starts, those by the clock, those by marks.
const LAUNCHES: u32 = 1 + 1 + 1 + TIMED + TIMED;
const TIMED: u32 = 3;

#[test]
fn a_fault_in_a_timed_launch_is_placed_there() {
    // the first and the second by the clock, one by marks, and the first launch of the next placement
    for launch in [4, 5, 8, LAUNCHES + 1] {
        for (misdeed, class) in [(Misdeed::Sleep(FOREVER), Class::EStuck), (Misdeed::Half, Class::ASize)] {
            let fault = Fault { rank: 3, launch, misdeed };
            let run = run(Faulty::new(4, Some(fault)), plan(&[CASE], DEADLINE));
            let (verdict, message) = (run.results[0].verdict.as_ref().unwrap(), &run.results[0].message);
            assert_eq!((verdict.class, &verdict.culprit_ranks[..]), (class, &[3][..]), "{launch}: {message}");
            assert_eq!(verdict.sequence, Some(u64::from(launch)), "{message}");
        }
    }
}

/// The root sends ahead of the others: what it has done must not be taken for where all are.
#[test]
fn a_rank_that_is_stuck_in_a_timed_broadcast_is_found_though_the_root_is_far_ahead() {
    const MANY: u32 = 20;
    let (broadcast, scatter) = ("broadcast::none::int8::1KiB", "scatter::none::int8::64B");
    // behind the first, the warm-up and the one before the clock: late by the clock, and late by marks
    for (case, launch) in [(broadcast, 3 + 15), (broadcast, 3 + MANY + 17), (scatter, 3 + 15)] {
        let fault = Fault { rank: 1, launch, misdeed: Misdeed::Sleep(FOREVER) };
        let run = run(Faulty::new(4, Some(fault)), RunPlan { iters: MANY, ..plan(&[case], DEADLINE) });
        let (verdict, message) = (run.results[0].verdict.as_ref().unwrap(), &run.results[0].message);
        assert_eq!(
            (verdict.class, &verdict.culprit_ranks[..]),
            (Class::EStuck, &[1][..]),
            "{case} {launch}: {message}"
        );
        // nobody waits for one that a scatter only gives something to, but at the meeting that follows
        let sequence = if case == scatter { 1 } else { u64::from(launch) };
        assert_eq!(verdict.sequence, Some(sequence), "{case}: {message}");
    }
}

#[test]
fn a_timed_call_that_is_left_out_is_one_too_few() {
    let fault = Fault { rank: 3, launch: 5, misdeed: Misdeed::Skip };
    let run = run(Faulty::new(4, Some(fault)), plan(&[CASE], DEADLINE));
    let verdict = run.results[0].verdict.as_ref().unwrap();
    assert_eq!((verdict.class, &verdict.culprit_ranks[..]), (Class::BCount, &[3][..]), "{}", run.results[0].message);
}

#[test]
fn an_interrupted_run_keeps_its_results_and_accounts_for_every_case() {
    // the second case's first launch hangs
    let launches_of_the_first = 2 * LAUNCHES;
    let fault = Fault { rank: 0, launch: launches_of_the_first + 1, misdeed: Misdeed::Sleep(FOREVER) };
    let interrupt = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            interrupt.store(true, Ordering::Relaxed);
        });
        let cases = ["all_gather::none::int8::1KiB", CASE, NEXT[1]];
        let mut plan = plan(&cases, FOREVER);
        plan.cases.truncate(3);
        run_until(Faulty::new(4, Some(fault)), plan, interrupt.clone())
    });
    assert!(run.ended.interrupted && began.elapsed() < Duration::from_secs(15));
    assert_eq!(run.results.len(), 3);
    assert_eq!(run.results[0].outcome, Outcome::Pass, "{}", run.results[0].message);
    assert!(run.results[1..].iter().all(|r| r.outcome == Outcome::Skip && r.message.contains("interrupted")));
}

#[test]
fn a_run_that_is_interrupted_before_it_starts_runs_nothing() {
    let run = run_until(Faulty::new(2, None), plan(&NEXT[..1], FOREVER), Arc::new(AtomicBool::new(true)));
    assert!(run.ended.interrupted && run.results[0].outcome == Outcome::Skip);
}

#[test]
fn making_a_communicator_can_be_interrupted() {
    let host = HostBackend::new(&Layout { ranks: 2, ranks_per_thread: 1, ranks_per_gpu: 1 }).unwrap();
    let interrupt = Arc::new(AtomicBool::new(false));
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            interrupt.store(true, Ordering::Relaxed);
        });
        run_until(Arc::new(Never(host)), plan(&NEXT[..1], FOREVER), interrupt.clone())
    });
    assert!(run.ended.interrupted && run.results[0].outcome == Outcome::Skip);
}
