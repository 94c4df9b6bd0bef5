//! The PTX against its sources and its callers.

use std::collections::BTreeSet;

use super::*;
use crate::case::{DType, Op, Primitive};
use crate::oracle::{Data, Plan};

/// FNV-1a over names and texts of the sources, as `build-ptx.py` computes it too.
fn fingerprint() -> u64 {
    let sources = [
        ("oracle.cuh", include_str!("oracle.cuh")),
        ("methods.cuh", include_str!("methods.cuh")),
        ("stream.cuh", include_str!("stream.cuh")),
        ("job.cuh", include_str!("job.cuh")),
        ("kernels.cu", include_str!("kernels.cu")),
    ];
    let bytes = sources.iter().flat_map(|(name, text)| [name.as_bytes(), &[0], text.as_bytes(), &[0]]).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |value, &byte| (value ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

const MAJORS: [u32; 2] = [7, 9];
const ACTIONS: [Action; 3] = [Action::Fill, Action::Poison, Action::Check];

#[test]
fn the_ptx_is_built_from_the_sources_as_they_are() {
    let header = format!("// collcheck kernels, sources {:016x}", fingerprint());
    for major in MAJORS {
        assert_eq!(ptx(major).lines().next(), Some(&*header), "stale: run src/kernels/build-ptx.py");
    }
}

/// Names of the kernels in a PTX text.
fn entries(ptx: &str) -> BTreeSet<&str> {
    ptx.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('(')).collect()
}

#[test]
fn the_ptx_holds_all_kernels_and_no_others() {
    for major in MAJORS {
        assert_eq!(entries(ptx(major)), NAMES.into_iter().collect());
    }
}

#[test]
fn the_ptx_loads_on_old_drivers_and_is_made_for_blocks_of_this_size() {
    for (major, target) in [(7, ".target sm_70"), (9, ".target sm_90")] {
        let lines: Vec<&str> = ptx(major).lines().collect();
        assert!(lines.contains(&".version 8.0") && lines.contains(&target));
        let limit = format!(".maxntid {THREADS}, 1, 1");
        assert_eq!(lines.iter().filter(|l| **l == limit).count(), NAMES.len());
    }
}

/// What lets dependants begin exists from compute capability 9 on, and has no business in checks.
#[test]
fn fills_can_let_go_early_in_the_newer_ptx_only() {
    let instruction = "griddepcontrol.launch_dependents;";
    assert!(!ptx(7).contains(instruction));
    for kernel in ptx(9).split(".visible .entry ").skip(1) {
        let looks = ["check", GUARD, FINGERPRINT].iter().any(|name| kernel.starts_with(name));
        assert_eq!(kernel.contains(instruction), !looks, "{:?}", kernel.lines().next());
    }
}

/// Every op, dtype and kind of data that a region can have; and every kernel serves some.
#[test]
fn every_region_has_its_own_kernel() {
    let mut used = BTreeSet::from([GUARD, FINGERPRINT]);
    for dtype in DType::ALL {
        let ops = Op::ALL.into_iter().map(Some).chain([None]);
        for op in ops {
            for data in [Data::Plain, Data::Special, Data::OddScalars] {
                // averages are exact for a power of two of ranks
                for plan in [3, 4].map(|ranks| Plan::with(data, 1, Primitive::AllReduce, op, dtype, ranks, 0)) {
                    for (action, reduced) in ACTIONS.into_iter().flat_map(|a| [(a, false), (a, true)]) {
                        let name = name(action, reduced, plan.params());
                        assert!(NAMES.contains(&name), "{name}");
                        let width = name.rsplit('_').next().and_then(|w| w.parse::<u64>().ok());
                        assert!(width.is_none_or(|w| w == dtype.size()), "{name} for {dtype}");
                        assert!(width.is_some() || dtype.size() < 8, "{name} for {dtype}");
                        used.insert(name);
                    }
                }
            }
        }
    }
    assert_eq!(used, NAMES.into_iter().collect());
}

#[test]
fn grids_cover_small_regions_and_are_limited_for_large_ones() {
    assert_eq!(grid(0, 132), (1, 256));
    assert_eq!(grid(1, 132), (1, 256));
    assert_eq!(grid(16 * 1024 + 1, 132), (2, 256));
    assert_eq!(grid(1 << 40, 132), (132 * 64, 256));
    assert_eq!(grid(1 << 40, 0), (64, 256));
    assert_eq!(grid(u64::MAX, u32::MAX).0, 1 << 20);
    assert_eq!(small_grid(1 << 40, 132), (132 * 8, 256));
    assert_eq!(small_grid(1, 0), (1, 256));
}

#[test]
fn an_outcome_tells_the_samples_it_has_and_the_first_of_them() {
    let mut outcome = Outcome::EMPTY;
    assert_eq!((outcome.first(), outcome.samples()), (None, &[][..]));
    let samples = [9, 3, 5].map(|index| Sample { index, actual: 1, expected: 2 });
    outcome.samples[..3].copy_from_slice(&samples);
    (outcome.wrong, outcome.first, outcome.sampled) = (3, 3, 3);
    assert_eq!((outcome.first(), outcome.samples()), (Some(samples[1]), &samples[..]));
    outcome.sampled = u32::MAX;
    assert_eq!(outcome.samples().len(), MAX_SAMPLES);
}

/// Arguments are passed by value: far below the 4 KiB that launches may take.
#[test]
fn arguments_are_small() {
    assert_eq!(size_of::<Params>() % 8, 0);
    assert!(size_of::<Params>() + size_of::<Job>() + 8 <= 1024);
}
