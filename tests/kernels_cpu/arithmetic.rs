//! `oracle.cuh` and `stream.cuh` agree with Rust bit for bit.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

use collcheck::kernels::{Job, Outcome, Sample, THREADS, grid};
use collcheck::oracle::special::{SCENARIOS, Scenario};
use collcheck::oracle::{Method, Params, Plan};
use libloading::{Library, Symbol};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::library::{C, compile};
use super::{plans, unmasked};

const RANKS: [u32; 8] = [1, 2, 3, 4, 8, 17, 64, 1024];

const PHASE_VECTOR: u32 = 0;
const PHASE_WORD: u32 = 1;
const PHASE_BYTE: u32 = 2;
const PHASE_DOUBLE: u32 = 3;
/// No phase of the kernels: asks for the general way.
const ANYWHERE: u32 = 4;

/// Compiled once for all tests.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| compile(&C, "oracle.c")).as_ref()
}

fn symbol<T>(library: &'static Library, name: &str) -> Symbol<'static, T> {
    // SAFETY: callers state the type that the source gives this name; each does so beside its use.
    unsafe { library.get(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Indices of all sizes: small ones, around 2^32 words and elements, and any.
fn index(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..4) {
        0 => rng.random_range(0..5000),
        1 => (1u64 << rng.random_range(30..36)) - 40 + rng.random_range(0..80),
        2 => rng.random_range(0..1u64 << 33),
        _ => rng.random_range(0..1u64 << 44),
    }
}

#[test]
fn structures_have_the_layout_that_rust_gives_them() {
    let Some(library) = library() else { return };
    macro_rules! layout {
        ($type:ty: $($field:ident)*) => { [size_of::<$type>(), $(offset_of!($type, $field)),*] };
    }
    let params = layout!(Params: mask target_and target_add target_xor sign max_finite sign_flip pair_range base
        target_key split_key pair_key width method ranks offset stride active owners pairs target_bits fraction_bits bias
        tolerance scaled growth skewed odd largest table);
    let scenario = layout!(Scenario: first second others expected);
    let job = layout!(Job: ptr len index element rank reduced action early);
    let sample = layout!(Sample: index actual expected);
    let outcome = layout!(Outcome: wrong first sampled lock samples);
    let per_tile = (0u64..).find(|&n| grid(16 * n + 1, 1_000).0 == 2).unwrap() / u64::from(THREADS);
    let constants = [THREADS as usize, per_tile as usize, collcheck::backend::MAX_SAMPLES, SCENARIOS];
    let ours = params.iter().chain(&scenario).chain(&job).chain(&sample).chain(&outcome).chain(&constants);
    let ours: Vec<u64> = ours.map(|&n| n as u64).collect();
    let len: Symbol<*const u64> = symbol(library, "collcheck_layout_len");
    let first: Symbol<*const u64> = symbol(library, "collcheck_layout");
    // SAFETY: the source defines `const u64 collcheck_layout[]` and its length.
    let theirs = unsafe { std::slice::from_raw_parts(*first, **len as usize) };
    assert_eq!(ours, theirs);
}

#[test]
fn inputs_expected_values_and_scalars_are_the_same_bits() {
    let Some(library) = library() else { return };
    type Indexed = unsafe extern "C" fn(*const Params, u32, u64) -> u64;
    let input: Symbol<Indexed> = symbol(library, "collcheck_input");
    let reduced: Symbol<unsafe extern "C" fn(*const Params, u64) -> u64> = symbol(library, "collcheck_reduced");
    let scalar: Symbol<unsafe extern "C" fn(*const Params, u32) -> u64> = symbol(library, "collcheck_scalar");
    let mut rng = StdRng::seed_from_u64(1);
    for (op, dtype, plan) in plans(&RANKS).chain(unmasked(&RANKS)) {
        let p = plan.params();
        for _ in 0..2000 {
            let i = index(&mut rng);
            let rank = rng.random_range(0..p.ranks);
            // SAFETY: the functions only read `*p`, which has the layout they expect, as the test above shows.
            let theirs = unsafe { (input(p, rank, i), reduced(p, i), scalar(p, rank)) };
            let ours = (plan.input(rank, i), plan.reduced(i), plan.scalar(rank));
            let scalars = if p.method == Method::Copy { (0, 0) } else { (ours.2, theirs.2) };
            assert_eq!(
                (ours.0, ours.1, scalars.0),
                (theirs.0, theirs.1, scalars.1),
                "{op:?} {dtype} {p:?} rank {rank} element {i}"
            );
        }
    }
}

#[test]
fn words_of_inputs_hold_the_elements_in_memory_order() {
    let Some(library) = library() else { return };
    type Indexed = unsafe extern "C" fn(*const Params, u32, u64) -> u64;
    let input_word: Symbol<Indexed> = symbol(library, "collcheck_input_word");
    let mut rng = StdRng::seed_from_u64(2);
    let ranks = [1, 2, 3, 8, 1024];
    for (op, dtype, plan) in plans(&ranks).chain(unmasked(&ranks)) {
        let p = plan.params();
        if p.method == Method::Copy {
            continue;
        }
        for _ in 0..100 {
            let i = index(&mut rng);
            let rank = rng.random_range(0..p.ranks);
            let ours = elements(&plan, 4.max(p.width), |k| plan.input(rank, i + k));
            // SAFETY: as above.
            let theirs = unsafe { input_word(p, rank, i) };
            assert_eq!(ours, theirs.to_ne_bytes()[..ours.len()], "{op:?} {dtype} {p:?} rank {rank} element {i}");
        }
    }
}

/// `bytes` bytes of elements as they lie in memory.
fn elements(plan: &Plan, bytes: u32, element: impl Fn(u64) -> u64) -> Vec<u8> {
    let width = plan.params().width as usize;
    (0..u64::from(bytes) / width as u64).flat_map(|k| element(k).to_ne_bytes()[..width].to_vec()).collect()
}

#[test]
fn vectors_hold_the_elements_in_memory_order_in_every_phase() {
    let Some(library) = library() else { return };
    type Vector = unsafe extern "C" fn(*const Params, u32, u64, *mut u32);
    let vector: Symbol<Vector> = symbol(library, "collcheck_vector");
    let phase_of: Symbol<unsafe extern "C" fn(u32, u64) -> u32> = symbol(library, "collcheck_phase_of");
    let mut rng = StdRng::seed_from_u64(3);
    for (op, dtype, plan) in plans(&[4]).chain(plans(&[1024])) {
        let p = plan.params();
        for case in 0..400 {
            let step = [16, 4, 1][case % 3] / u64::from(p.width);
            let i = index(&mut rng) / step.max(1) * step.max(1);
            let byte = i * u64::from(p.width);
            let ours = elements(&plan, 16, |k| plan.reduced(i + k));
            // SAFETY: takes two numbers.
            let fastest = unsafe { phase_of(p.width, byte) };
            let phases: &[u32] = match p.width {
                8 => &[PHASE_DOUBLE, ANYWHERE],
                _ => &[PHASE_VECTOR, PHASE_WORD, PHASE_BYTE, ANYWHERE],
            };
            assert!(phases.contains(&fastest));
            // indices of words grow past 32 bits inside the vector: only the general way is asked for this
            let crosses = (byte / 4) as u32 > u32::MAX - 5;
            for &phase in phases.iter().filter(|p| if crosses { **p == ANYWHERE } else { **p >= fastest }) {
                let mut words = [0u32; 4];
                // SAFETY: reads `*p` and writes four words.
                unsafe { vector(p, phase, byte, words.as_mut_ptr()) };
                let theirs: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
                assert_eq!(ours, theirs, "{op:?} {dtype} phase {phase} byte {byte}");
            }
        }
    }
}

/// What the comparison of all elements of a word at once rests on: see `differ` in `stream.cuh`.
#[test]
fn targets_of_averages_keep_away_from_zero_and_all_ones_and_carry_into_no_neighbour() {
    let mut rng = StdRng::seed_from_u64(4);
    for (op, dtype, plan) in plans(&RANKS) {
        let p = plan.params();
        assert!(p.tolerance == 0 || p.tolerance == 2);
        let (and, add) = (p.target_and & p.mask, p.target_add & p.mask);
        assert!(and.checked_add(add).is_some_and(|most| most <= p.mask), "{op:?} {dtype}: elements carry");
        for _ in 0..if p.tolerance > 0 { 2000 } else { 0 } {
            let expected = plan.reduced(index(&mut rng));
            assert!((2..p.mask - 2).contains(&expected), "{op:?} {dtype} {expected:#x}");
        }
    }
}

#[test]
fn a_vector_differs_exactly_if_one_of_its_elements_is_not_accepted() {
    let Some(library) = library() else { return };
    type Differs = unsafe extern "C" fn(*const Params, *const u32, *const u32) -> c_int;
    let differs: Symbol<Differs> = symbol(library, "collcheck_differs");
    type Accepts = unsafe extern "C" fn(*const Params, u64, u64) -> c_int;
    let accepts: Symbol<Accepts> = symbol(library, "collcheck_accepts");
    let mut rng = StdRng::seed_from_u64(5);
    for (op, dtype, plan) in plans(&[1, 2, 3, 8, 64, 1024]) {
        let p = plan.params();
        let mut seen = [0u32; 2];
        for _ in 0..400 {
            let i = index(&mut rng);
            let count = u64::from(16 / p.width);
            let expected: Vec<u64> = (0..count).map(|k| plan.reduced(i + k)).collect();
            let mut actual: Vec<u64> = expected
                .iter()
                .map(|e| {
                    let noise = if p.tolerance > 0 { rng.random_range(0..=4u64) } else { 2 };
                    e.wrapping_add(noise).wrapping_sub(2) & p.mask
                })
                .collect();
            for _ in 0..rng.random_range(0..3) {
                let k = rng.random_range(0..actual.len());
                actual[k] = match rng.random_range(0..5) {
                    0 => actual[k] ^ 1 << rng.random_range(0..8 * p.width),
                    1 => expected[k].wrapping_add(rng.random_range(0..10)).wrapping_sub(5) & p.mask,
                    2 => 0,
                    3 => p.mask,
                    _ => rng.random::<u64>() & p.mask,
                };
            }
            let accepted = actual.iter().zip(&expected).all(|(&a, &e)| plan.accepts(a, e));
            // SAFETY: reads `*p`.
            let each = actual.iter().zip(&expected).all(|(&a, &e)| unsafe { accepts(p, a, e) } != 0);
            let pack = |elements_: &[u64]| -> Vec<u32> {
                let bytes = elements(&plan, 16, |k| elements_[k as usize]);
                bytes.chunks(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
            };
            let (a, e) = (pack(&actual), pack(&expected));
            // SAFETY: reads `*p` and four words of each.
            let differs = unsafe { differs(p, a.as_ptr(), e.as_ptr()) } != 0;
            assert_eq!((accepted, accepted), (each, !differs), "{op:?} {dtype} {actual:x?} for {expected:x?}");
            seen[usize::from(accepted)] += 1;
        }
        assert!(seen[0] > 40 && seen[1] > 40, "{seen:?}");
    }
}

/// Of special values any NaN passes for an expected one, and nothing else but the same bits.
#[test]
fn a_nan_passes_for_a_nan_and_a_number_never_does() {
    let Some(library) = library() else { return };
    type Accepts = unsafe extern "C" fn(*const Params, u64, u64) -> c_int;
    let accepts: Symbol<Accepts> = symbol(library, "collcheck_accepts");
    let mut rng = StdRng::seed_from_u64(6);
    for (op, dtype, plan) in unmasked(&[1, 2, 8]).filter(|(.., plan)| plan.params().method == Method::Table) {
        let p = plan.params();
        let is_nan = |bits: u64| bits & !p.sign > p.largest;
        let mut seen = [0u32; 2];
        for i in 0..500 {
            let expected = plan.reduced(i);
            let any = rng.random::<u64>() & p.mask;
            let quiet = p.mask ^ if rng.random() { p.sign } else { 0 };
            for actual in [expected, any, quiet, expected ^ p.sign, !expected & p.mask, p.largest] {
                let wanted = actual == expected || is_nan(actual) && is_nan(expected);
                // SAFETY: reads `*p`.
                let theirs = unsafe { accepts(p, actual, expected) } != 0;
                let all = (plan.accepts(actual, expected), theirs);
                assert_eq!(all, (wanted, wanted), "{op:?} {dtype} {actual:#x} for {expected:#x}");
                seen[usize::from(is_nan(expected) && !wanted)] += 1;
            }
            assert!(!plan.accepts(!expected & p.mask, expected), "the poison of {expected:#x} passes");
        }
        assert!(seen[0] > 100 && seen[1] > 10, "{op:?} {dtype} {seen:?}");
    }
}
