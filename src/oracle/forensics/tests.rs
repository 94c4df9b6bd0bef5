//! Each kind of fault is planted in outputs, and must be named.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::backend::Wrong;
use crate::case::primitive::{Primitive, Segment};
use crate::case::{DType, Kind, Op};
use crate::oracle::{Data, Plan};

#[path = "../../../tests/planted/fold.rs"]
mod fold;
use fold::fold;

const START: u64 = 4096;

const EPOCH: u64 = 9;

fn plan(op: Option<Op>, dtype: DType, ranks: u32) -> Plan {
    let primitive = if op.is_some() { Primitive::AllReduce } else { Primitive::AllGather };
    Plan::new(11, primitive, op, dtype, ranks, EPOCH)
}

/// One segment that holds a reduction, as all_reduce has it.
fn reduced() -> Vec<Segment> {
    vec![Segment { start: 0, len: 1 << 20, source: Source::Reduced { element: 0 } }]
}

/// The verdict on a buffer of which some elements are replaced.
fn verdict(scene: &Scene<'_>, indices: impl Iterator<Item = u64>, actual: impl Fn(u64, u64) -> u64) -> Verdict {
    let mut verdict = Verdict::default();
    for index in indices {
        let expected = clue::value_at(scene, index).unwrap();
        let actual = actual(index, expected);
        if scene.plan.accepts(actual, expected) {
            continue;
        }
        let wrong = Wrong { index, actual, expected };
        verdict.wrong += 1;
        verdict.first = verdict.first.or(Some(wrong));
        if verdict.samples.len() < crate::backend::MAX_SAMPLES {
            verdict.samples.push(wrong);
        }
    }
    // a check tells them in no order
    verdict.samples.reverse();
    verdict
}

fn explained(scene: &Scene<'_>, indices: impl Iterator<Item = u64>, actual: impl Fn(u64, u64) -> u64) -> Explanation {
    let verdict = verdict(scene, indices, actual);
    assert!(verdict.wrong > 0, "nothing shows");
    explain(scene, &verdict).unwrap()
}

/// Asserts that one fault is named, and explains all.
fn names(explanation: &Explanation, fault: Fault, context: &str) {
    assert_eq!(explanation.unexplained, 0, "{context}: {explanation}");
    assert_eq!(explanation.findings.len(), 1, "{context}: {explanation}");
    assert_eq!(explanation.findings[0].fault, fault, "{context}: {explanation}");
}

const DTYPES: [DType; 8] = [
    DType::Int8,
    DType::Uint8,
    DType::Int32,
    DType::Uint64,
    DType::Bfloat16,
    DType::Float,
    DType::Double,
    DType::F8e4m3,
];

#[test]
fn a_missing_contribution_is_named_with_its_rank() {
    for op in Op::ALL {
        for dtype in DTYPES {
            for ranks in [2, 3, 8, 64] {
                let plan = plan(Some(op), dtype, ranks);
                let segments = reduced();
                for missing in if ranks > 8 { vec![ranks - 2] } else { vec![0, ranks - 1] } {
                    let scene = Scene { plan: &plan, segments: &segments, rank: missing };
                    let found = explained(&scene, START..START + 1024, |i, _| {
                        fold(&plan, op, i, |rank| u32::from(rank != missing))
                    });
                    names(&found, Fault::Missing(missing), &format!("{op} {dtype} {ranks} ranks, {missing} missing"));
                }
            }
        }
    }
}

#[test]
fn a_doubled_contribution_is_named_with_its_rank() {
    for op in [Op::Sum, Op::Prod, Op::Avg, Op::Mulsum] {
        for dtype in DTYPES {
            for ranks in [2, 3, 8, 64] {
                let plan = plan(Some(op), dtype, ranks);
                let segments = reduced();
                let doubled = ranks / 3;
                let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
                let found = explained(&scene, START..START + 1024, |i, _| {
                    fold(&plan, op, i, |rank| 1 + u32::from(rank == doubled))
                });
                names(&found, Fault::Doubled(doubled), &format!("{op} {dtype} {ranks} ranks, {doubled} twice"));
            }
        }
    }
}

/// Faults of the output alone look the same for every op.
#[test]
fn faults_of_the_output_are_named() {
    for (op, dtype, ranks) in [
        (Op::Sum, DType::Float, 8),
        (Op::Sum, DType::Int8, 4),
        (Op::Max, DType::Half, 3),
        (Op::Prod, DType::Int32, 16),
        (Op::Avg, DType::Bfloat16, 6),
        (Op::Avg, DType::F8e4m3, 8),
        (Op::Mulsum, DType::Double, 64),
        (Op::Min, DType::F8e5m2, 2),
    ] {
        let plan = plan(Some(op), dtype, ranks);
        let segments = reduced();
        let scene = Scene { plan: &plan, segments: &segments, rank: 1 };
        let context = format!("{op} {dtype} {ranks} ranks");
        let run = || START..START + 300;
        names(&explained(&scene, run(), |_, e| !e & dtype.mask()), Fault::Unwritten, &context);
        names(&explained(&scene, run(), |_, _| 0), Fault::Zero, &context);
        names(&explained(&scene, run(), |i, _| plan.input(1, i)), Fault::OwnInput, &context);
        for by in [1i64, 8, -256, 1024, 5000, 1 << 19] {
            let found = explained(&scene, run(), |i, _| plan.reduced(i.checked_add_signed(by).unwrap()));
            names(&found, Fault::Shifted(by), &format!("{context}, shifted by {by}"));
        }
        for epochs in [1, 2] {
            let earlier = plan.before(epochs).unwrap();
            let found = explained(&scene, run(), |i, _| earlier.reduced(i));
            names(&found, Fault::Stale(epochs), &format!("{context}, {epochs} epochs old"));
        }
        let swapped = |i: u64, _| plan.reduced(i ^ 128);
        names(&explained(&scene, START..START + 256, swapped), Fault::Swapped(128), &context);
        for bit in [3, 8 * dtype.size() as u32 - 1] {
            let one = explained(&scene, START + 77..START + 78, |_, e| e ^ 1 << bit);
            names(&one, Fault::BitFlipped(Some(bit)), &format!("{context}, bit {bit}"));
        }
        let guard = (u64::from(crate::backend::GUARD_BYTE) * 0x0101_0101_0101_0101) & dtype.mask();
        names(&explained(&scene, run(), |_, _| guard), Fault::Guard, &context);
    }
}

#[test]
fn a_stuck_bit_and_stray_bits_are_told_apart() {
    let plan = plan(Some(Op::Sum), DType::Uint64, 5);
    let segments = reduced();
    let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
    names(&explained(&scene, START..START + 9, |_, e| e ^ 1 << 40), Fault::BitFlipped(Some(40)), "stuck");
    names(&explained(&scene, START..START + 9, |i, e| e ^ 1 << (i % 64)), Fault::BitFlipped(None), "stray");
}

#[test]
fn values_that_are_no_numbers_are_named() {
    let plan = plan(Some(Op::Sum), DType::Float, 4);
    let segments = reduced();
    let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
    let found = explained(&scene, START..START + 40, |i, _| 0x7fc0_0000 | i & 7);
    names(&found, Fault::NotANumber, "quiet NaNs");
}

#[test]
fn a_narrow_accumulator_is_named() {
    for (op, dtype, to) in [
        (Op::Sum, DType::Float, DType::Bfloat16),
        (Op::Sum, DType::Double, DType::Float),
        (Op::Avg, DType::Double, DType::Bfloat16),
        (Op::Prod, DType::Float, DType::Bfloat16),
    ] {
        let plan = plan(Some(op), dtype, 8);
        let segments = reduced();
        let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
        let (wide, narrow) = (dtype.float().unwrap(), to.float().unwrap());
        let bits = 8 * to.size() as u32;
        let found = explained(&scene, START..START + 300, |_, e| {
            let value = wide.decode(e, 8 * dtype.size() as u32);
            wide.encode(narrow.decode(narrow.encode(value, bits), bits), 8 * dtype.size() as u32)
        });
        names(&found, Fault::Narrowed(to), &format!("{op} {dtype} in {to}"));
    }
}

#[test]
fn another_input_in_the_place_of_one_is_named_with_both_ranks() {
    for (op, dtype, ranks) in [
        (Op::Sum, DType::Int32, 8),
        (Op::Sum, DType::Float, 64),
        (Op::Prod, DType::Uint64, 6),
        (Op::Avg, DType::Double, 16),
    ] {
        let plan = plan(Some(op), dtype, ranks);
        let segments = reduced();
        let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
        let earlier = plan.before(1).unwrap();
        let (rank, read) = (ranks - 1, ranks - 2);
        let planted = |i: u64, value| {
            let element = crate::oracle::combine::Element::new(&plan, i);
            let change = crate::oracle::combine::Change::Replaced(value);
            element.changed(rank, change).unwrap().codes().next().unwrap()
        };
        let contribution = crate::oracle::combine::contribution;
        let run = || START..START + 200;
        let context = format!("{op} {dtype} {ranks} ranks");
        let slot = explained(&scene, run(), |i, _| planted(i, contribution(&plan, rank, read, i)));
        names(&slot, Fault::Slot { rank, read }, &context);
        let stale = explained(&scene, run(), |i, _| planted(i, contribution(&earlier, rank, rank, i)));
        names(&stale, Fault::StaleContribution { rank, epochs: 1 }, &context);
        let moved = explained(&scene, run(), |i, _| planted(i, contribution(&plan, rank, rank, i + 256)));
        names(&moved, Fault::MovedContribution { rank, by: 256 }, &context);
    }
}

/// Three blocks, as all_gather has them, of rank 0, 1 and 2.
fn gathered() -> Vec<Segment> {
    (0..3)
        .map(|rank| Segment { start: 1000 * u64::from(rank), len: 1000, source: Source::Rank { rank, element: 0 } })
        .collect()
}

#[test]
fn moved_data_are_named_by_where_they_come_from() {
    for dtype in [DType::Uint8, DType::Half, DType::Float, DType::Int64] {
        let plan = plan(None, dtype, 3);
        let segments = gathered();
        let scene = Scene { plan: &plan, segments: &segments, rank: 2 };
        let run = || 1100..1200;
        let other = explained(&scene, run(), |i, _| plan.input(0, i - 1000));
        names(&other, Fault::OtherRank(0), &format!("{dtype}"));
        let shifted = explained(&scene, run(), |i, _| plan.input(1, i - 1000 + 16));
        names(&shifted, Fault::Shifted(16), &format!("{dtype}"));
        let stale = explained(&scene, run(), |i, _| plan.before(1).unwrap().input(1, i - 1000));
        names(&stale, Fault::Stale(1), &format!("{dtype}"));
        // blocks of an alltoall start elsewhere in each rank's data
        let scattered: Vec<Segment> = segments
            .iter()
            .map(|s| match s.source {
                Source::Rank { rank, .. } => {
                    Segment { source: Source::Rank { rank, element: 7000 + 10 * u64::from(rank) }, ..*s }
                }
                other => Segment { source: other, ..*s },
            })
            .collect();
        let scene = Scene { segments: &scattered, ..scene };
        let place = explained(&scene, run(), |i, _| clue::value_at(&scene, i + 1000).unwrap());
        names(&place, Fault::OtherPlace(1000), &format!("{dtype}"));
    }
}

#[test]
fn what_looks_the_same_is_named_too() {
    let plan = plan(Some(Op::Sum), DType::Float, 2);
    let segments = reduced();
    let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
    let found = explained(&scene, START..START + 64, |i, _| plan.input(0, i));
    names(&found, Fault::OwnInput, "two ranks");
    assert!(found.findings[0].alternatives.contains(&Fault::Missing(1)), "{found}");
}

#[test]
fn two_faults_are_both_named_with_their_shares() {
    let plan = plan(Some(Op::Sum), DType::Int32, 8);
    let segments = reduced();
    let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
    let found = explained(&scene, START..START + 200, |i, e| {
        if i < START + 120 { fold(&plan, Op::Sum, i, |rank| u32::from(rank != 5)) } else { !e & 0xffff_ffff }
    });
    let named: Vec<(Fault, usize)> = found.findings.iter().map(|f| (f.fault, f.covers)).collect();
    assert_eq!(named, [(Fault::Missing(5), 120), (Fault::Unwritten, 80)], "{found}");
    assert_eq!(found.unexplained, 0);
}

/// Values at random are explained by nothing, in no type and at no number of ranks.
#[test]
fn noise_stays_unexplained() {
    let mut rng = StdRng::seed_from_u64(5);
    for op in Op::ALL {
        for dtype in DTYPES {
            for ranks in [2, 64] {
                let plan = plan(Some(op), dtype, ranks);
                let segments = reduced();
                let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
                for length in [1, 3, 60] {
                    let noise: Vec<u64> = (0..length).map(|_| rng.random::<u64>() & dtype.mask()).collect();
                    let verdict = verdict(&scene, START..START + length, |i, _| noise[(i - START) as usize]);
                    let Some(found) = explain(&scene, &verdict) else { continue };
                    // noise may be no number
                    let named = found.findings.iter().filter(|f| f.fault != Fault::NotANumber);
                    let explained = named.map(|f| f.covers).sum::<usize>();
                    // a random byte differs in a single bit now and then, or fits a short type
                    let chance = if dtype.size() <= 2 { 2 + length as usize / 8 } else { 0 };
                    assert!(explained <= chance, "{op} {dtype} {ranks} ranks, {length} elements: {found}");
                }
            }
        }
    }
}

#[test]
fn a_verdict_on_other_inputs_is_not_explained_away() {
    let (ours, theirs) = (plan(Some(Op::Sum), DType::Float, 4), plan(Some(Op::Sum), DType::Float, 5));
    let segments = reduced();
    let scene = Scene { plan: &theirs, segments: &segments, rank: 0 };
    let verdict = verdict(&scene, START..START + 20, |_, e| !e & 0xffff_ffff);
    let found = explain(&Scene { plan: &ours, ..scene }, &verdict).unwrap();
    assert!(found.findings.is_empty() && found.unexplained == 20, "{found}");
    assert!(explain(&scene, &Verdict::default()).is_none());
}

/// What is wrong, and how much of it that covers; each fact once.
#[test]
fn the_text_says_faults_and_their_shares_and_the_shape_says_the_place() {
    let plan = plan(Some(Op::Sum), DType::Int32, 8);
    let segments = reduced();
    let scene = Scene { plan: &plan, segments: &segments, rank: 0 };
    let unwritten = |_, e: u64| !e & 0xffff_ffff;
    let found = explained(&scene, START..START + 32, unwritten);
    assert_eq!(found.to_string(), "never written (all 32)");
    assert_eq!(found.shape.to_string(), "elements 4096 to 4127, from a multiple of 16KiB on, up to a multiple of 128B");
    let alone = explained(&scene, START..START + 1, |_, e| e ^ 1 << 7);
    assert_eq!(alone.to_string(), "bit 7 flipped");
    let many = explained(&scene, START..START + 5000, unwritten);
    assert_eq!(many.to_string(), "never written (all 256 sampled)");
    let mixed =
        explained(&scene, START..START + 20, |i, e| if i < START + 15 { !e & 0xffff_ffff } else { (i * i) ^ e });
    assert_eq!(mixed.to_string(), "never written (15 of 20); unexplained (5 of 20)");
}

#[test]
fn a_thousand_ranks_are_searched() {
    for (op, dtype) in [(Op::Sum, DType::Bfloat16), (Op::Min, DType::Double), (Op::Prod, DType::Float)] {
        let plan = plan(Some(op), dtype, 1024);
        let segments = reduced();
        let scene = Scene { plan: &plan, segments: &segments, rank: 1000 };
        let found = explained(&scene, START..START + 1024, |i, _| fold(&plan, op, i, |rank| u32::from(rank != 777)));
        names(&found, Fault::Missing(777), &format!("{op} {dtype}"));
    }
}

/// Of odd scalars the contributions are what they are scaled to.
#[test]
fn a_contribution_that_is_missing_under_odd_scalars_is_named() {
    for dtype in [DType::Half, DType::Bfloat16, DType::Float, DType::Double] {
        let plan = Plan::with(Data::OddScalars, 11, Primitive::AllReduce, Some(Op::Mulsum), dtype, 8, EPOCH);
        let scene = Scene { plan: &plan, segments: &reduced(), rank: 1 };
        let found =
            explained(&scene, START..START + 64, |i, _| fold(&plan, Op::Mulsum, i, |rank| u32::from(rank != 5)));
        names(&found, Fault::Missing(5), dtype.name());
    }
}

/// Results of special values are few: only what a value is by itself is said of it.
#[test]
fn of_special_values_nothing_is_said_that_few_values_cannot_prove() {
    for op in Op::ALL {
        for dtype in [DType::Float, DType::Half, DType::F8e4m3] {
            let plan = Plan::with(Data::Special, 11, Primitive::AllReduce, Some(op), dtype, 8, EPOCH);
            let p = plan.params();
            let scene = Scene { plan: &plan, segments: &reduced(), rank: 1 };
            let unwritten = explained(&scene, START..START + 200, |_, expected| !expected & p.mask);
            assert_eq!(unwritten.findings[0].fault, Fault::Unwritten, "{op} {dtype}: {unwritten}");
            let signless = explained(&scene, START..START + 200, |_, expected| expected & !p.sign);
            for finding in signless.findings {
                assert!(matches!(finding.fault, Fault::Zero), "{op} {dtype}: {:?}", finding.fault);
            }
            let nans = explained(&scene, START..START + 200, |_, _| p.sign - 1);
            assert!(nans.findings.iter().all(|f| f.fault == Fault::NotANumber), "{op} {dtype}: {nans}");
        }
    }
}

/// Of buffers with more than 2^32 elements, faults at their ends and distances of that size.
#[test]
fn faults_beyond_2_to_the_32_are_named_with_place_and_distance() {
    let len = (1u64 << 33) + 11;
    for (op, dtype) in [(Op::Sum, DType::Int8), (Op::Max, DType::Half), (Op::Sum, DType::Double)] {
        let plan = plan(Some(op), dtype, 5);
        let segments = vec![Segment { start: 0, len, source: Source::Reduced { element: 0 } }];
        let scene = Scene { plan: &plan, segments: &segments, rank: 3 };
        let last = || len - 200..len;
        let missing = explained(&scene, last(), |i, _| fold(&plan, op, i, |rank| u32::from(rank != 4)));
        names(&missing, Fault::Missing(4), dtype.name());
        assert!(missing.shape.first >= len - 200 && missing.shape.last < len, "{}", missing.shape);
        // what a kernel gives that counts in 32 bits
        for by in [-(1i64 << 32), -(1 << 31)] {
            let wrapped = explained(&scene, last(), |i, _| plan.reduced(i.checked_add_signed(by).unwrap()));
            names(&wrapped, Fault::Shifted(by), dtype.name());
        }
        let unwritten = explained(&scene, last(), |_, e| !e & dtype.mask());
        assert_eq!(
            unwritten.shape.to_string(),
            format!("elements {} to {}, to the end of the buffer", len - 200, len - 1)
        );
    }
}
