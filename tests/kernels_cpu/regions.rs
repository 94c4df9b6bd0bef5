//! The kernels, run on the CPU over regions of any place, length and content.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use collcheck::backend::MAX_SAMPLES;
use collcheck::case::{DType, Op, Primitive};
use collcheck::kernels::{Action, Job, Outcome, Sample, name};
use collcheck::oracle::{Method, Params, Plan};
use libloading::{Library, Symbol};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::library::{CXX, compile};
use super::{plans, unmasked};

pub type Kernel = unsafe extern "C" fn(Params, Job, *mut Outcome);
type LaunchGuard = unsafe extern "C" fn(u32, u64, u64, u32, *mut Outcome);
type LaunchFingerprint = unsafe extern "C" fn(u32, u64, u64, u32, *mut u64);
type Launch = unsafe extern "C" fn(Kernel, u32, *const Params, *const Job, *mut Outcome);

/// The kernels, compiled once for all tests. They run one at a time.
pub struct Device(Library, Mutex<()>);

impl Device {
    pub fn new() -> Option<&'static Device> {
        static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
        DEVICE.get_or_init(|| Some(Device(compile(&CXX, "kernels.cpp")?, Mutex::new(())))).as_ref()
    }

    /// What the source gives this name; callers state its type.
    pub fn symbol<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: each caller names the type that the source has, beside its use.
        unsafe { self.0.get(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Held while kernels run.
    pub fn alone(&self) -> std::sync::MutexGuard<'_, ()> {
        self.1.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn launch(&self, name: &str, blocks: u32, p: &Params, job: &Job, outcome: &mut Outcome) {
        let _one = self.1.lock();
        // SAFETY: the source gives these names these types.
        let kernel: Symbol<Kernel> = unsafe { self.0.get(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"));
        // SAFETY: as above.
        let launch: Symbol<Launch> = unsafe { self.0.get(b"collcheck_launch") }.unwrap();
        // SAFETY: the job's region lies in a buffer that the caller borrows for the call.
        unsafe { launch(*kernel, blocks, p, job, outcome) };
    }

    fn guard(&self, zone: &[u8], byte: u8) -> Outcome {
        let _one = self.1.lock();
        // SAFETY: the source gives this name this type.
        let launch: Symbol<LaunchGuard> = unsafe { self.0.get(b"collcheck_launch_guard") }.unwrap();
        let mut outcome = Outcome::EMPTY;
        // SAFETY: the kernel reads the zone, and writes the outcome.
        unsafe { launch(2, zone.as_ptr() as u64, zone.len() as u64, byte.into(), &mut outcome) };
        outcome
    }

    fn fingerprint(&self, blocks: u32, bytes: &[u8], width: usize) -> u64 {
        let _one = self.1.lock();
        // SAFETY: the source gives this name this type.
        let launch: Symbol<LaunchFingerprint> = unsafe { self.0.get(b"collcheck_launch_fingerprint") }.unwrap();
        let (mut sum, len) = (0, (bytes.len() / width) as u64);
        // SAFETY: the kernel reads the bytes, and writes the sum.
        unsafe { launch(blocks, bytes.as_ptr() as u64, len, width as u32, &mut sum) };
        sum
    }
}

/// A buffer of bytes that starts on a multiple of 16, and a region of elements in it.
struct Region<'a> {
    memory: Vec<u128>,
    plan: &'a Plan,
    start: u64,
    len: u64,
    element: u64,
    rank: u32,
    reduced: bool,
    blocks: u32,
    early: bool,
}

const BLANK: u8 = 0x5a;
/// Elements after the region, to see that nothing is written there.
const MARGIN: u64 = 40;

impl<'a> Region<'a> {
    fn new(rng: &mut StdRng, plan: &'a Plan, len: u64) -> Region<'a> {
        let (width, ranks) = (plan.dtype().size(), plan.params().ranks);
        let start = rng.random_range(0..40);
        let element = match rng.random_range(0..4) {
            0 => 0,
            1 => rng.random_range(0..100),
            // crosses 2^32 words
            2 => (1u64 << 34) / width - rng.random_range(0..=len),
            _ => start + 16 * rng.random_range(0..1000u64),
        };
        Region {
            memory: vec![u128::from_ne_bytes([BLANK; 16]); ((start + len + MARGIN) * width).div_ceil(16) as usize],
            plan,
            start,
            len,
            element,
            rank: rng.random_range(0..ranks),
            reduced: rng.random(),
            blocks: rng.random_range(1..4),
            early: false,
        }
    }

    fn run(&mut self, device: &Device, action: Action, outcome: &mut Outcome) {
        let job = Job {
            ptr: self.memory.as_mut_ptr() as u64 + self.start * self.plan.dtype().size(),
            len: self.len,
            index: self.start,
            element: self.element,
            rank: self.rank,
            reduced: self.reduced.into(),
            action: action as u32,
            early: self.early.into(),
        };
        let p = self.plan.params();
        device.launch(name(action, self.reduced, p), self.blocks, p, &job, outcome);
    }

    fn get(&self, index: u64) -> u64 {
        let width = self.plan.dtype().size() as usize;
        let at = index as usize * width;
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&self.memory[at / 16].to_ne_bytes()[at % 16..at % 16 + width]);
        u64::from_ne_bytes(bytes)
    }

    fn set(&mut self, index: u64, value: u64) {
        let width = self.plan.dtype().size() as usize;
        let at = index as usize * width;
        let mut bytes = self.memory[at / 16].to_ne_bytes();
        bytes[at % 16..at % 16 + width].copy_from_slice(&value.to_ne_bytes()[..width]);
        self.memory[at / 16] = u128::from_ne_bytes(bytes);
    }

    fn content(&self, index: u64) -> u64 {
        let i = index - self.start + self.element;
        if self.reduced { self.plan.reduced(i) } else { self.plan.input(self.rank, i) }
    }

    fn elements(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.len
    }

    fn describe(&self) -> String {
        let (start, len, element, reduced) = (self.start, self.len, self.element, self.reduced);
        let (dtype, method) = (self.plan.dtype(), self.plan.params().method);
        format!("{dtype} {method:?}, {len} at {start} of {element}, reduced {reduced}, {} blocks", self.blocks)
    }
}

/// Short ones, with head and tail only, and ones of several tiles for several blocks.
fn lengths(rng: &mut StdRng, width: u64) -> [u64; 4] {
    [
        rng.random_range(1..8),
        rng.random_range(8..50),
        rng.random_range(50..3000),
        rng.random_range(20_000..70_000u64) / width,
    ]
}

#[test]
fn fill_writes_the_content_and_poison_its_complement_and_neither_more() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(1);
    for (_, dtype, plan) in plans(&[1, 3, 8, 100]).chain(unmasked(&[1, 3, 100])) {
        for len in lengths(&mut rng, dtype.size()) {
            let mut region = Region::new(&mut rng, &plan, len);
            for (action, flip) in [(Action::Fill, 0), (Action::Poison, dtype.mask())] {
                region.run(device, action, &mut Outcome::EMPTY.clone());
                let step = (len / 500).max(1) as usize;
                let some = region.elements().step_by(step).chain(region.elements().rev().take(40));
                for index in some {
                    assert_eq!(region.get(index), region.content(index) ^ flip, "{} {index}", region.describe());
                }
                let blank = u64::from_ne_bytes([BLANK; 8]) & dtype.mask();
                let end = region.elements().end;
                for index in (0..region.start).chain(end..end + MARGIN) {
                    assert_eq!(region.get(index), blank, "{} writes {index}", region.describe());
                }
            }
        }
    }
}

#[test]
fn check_passes_what_fill_wrote_and_finds_every_element_that_was_changed() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(2);
    for (_, dtype, plan) in plans(&[2, 3, 64]).chain(unmasked(&[2, 3, 64])) {
        for len in lengths(&mut rng, dtype.size()) {
            let mut region = Region::new(&mut rng, &plan, len);
            let mut outcome = Outcome::EMPTY;
            region.run(device, Action::Fill, &mut outcome);
            region.run(device, Action::Check, &mut outcome);
            assert_eq!(outcome, Outcome::EMPTY, "{}", region.describe());

            let mut wrong: Vec<u64> = (0..rng.random_range(1..20)).map(|_| rng.random_range(0..len)).collect();
            wrong.extend([0, len - 1].into_iter().filter(|_| rng.random()));
            wrong.sort_unstable();
            wrong.dedup();
            let mut expected = Vec::new();
            for k in wrong {
                let index = region.start + k;
                // the top bit, so that averages are off by more than their tolerance; all bits, so that no NaN stays one
                let special = plan.params().method == Method::Table;
                let flip = if special { dtype.mask() } else { 1 << (8 * dtype.size() - 1) };
                let actual = region.get(index) ^ flip;
                region.set(index, actual);
                expected.push(Sample { index, actual, expected: actual ^ flip });
            }
            region.run(device, Action::Check, &mut outcome);
            assert_eq!(outcome.wrong, expected.len() as u64, "{}", region.describe());
            assert_eq!(outcome.first, expected[0].index, "{}", region.describe());
            assert_eq!(outcome.first(), Some(expected[0]), "{}", region.describe());
            let mut samples = outcome.samples().to_vec();
            samples.sort_by_key(|s| s.index);
            assert_eq!(samples, expected, "{}", region.describe());
        }
    }
}

#[test]
fn averages_are_judged_as_the_plan_judges_them() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(3);
    let mut passed = 0;
    for (_, dtype, plan) in plans(&[1, 2, 3, 8, 200]).filter(|(op, ..)| *op == Some(Op::Avg)) {
        for (len, noise) in lengths(&mut rng, dtype.size()).into_iter().flat_map(|len| [(len, 2), (len, 3)]) {
            let mut region = Region::new(&mut rng, &plan, len);
            region.reduced = true;
            let mut wrong = 0;
            for index in region.elements() {
                let expected = region.content(index);
                let actual = expected.wrapping_add(rng.random_range(0..=2 * noise)).wrapping_sub(noise) & dtype.mask();
                wrong += u64::from(!plan.accepts(actual, expected));
                region.set(index, actual);
            }
            let mut outcome = Outcome::EMPTY;
            region.run(device, Action::Check, &mut outcome);
            assert_eq!(outcome.wrong, wrong, "{}", region.describe());
            passed += u64::from(wrong == 0);
        }
    }
    assert!(passed > 50, "{passed}");
}

/// A rank's input to an average is no average: it must be whole to the bit.
#[test]
fn inputs_have_no_tolerance() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(4);
    let plan = Plan::new(1, Primitive::AllReduce, Some(Op::Avg), DType::Float, 2, 0);
    let mut region = Region::new(&mut rng, &plan, 1000);
    region.reduced = false;
    let mut outcome = Outcome::EMPTY;
    region.run(device, Action::Fill, &mut outcome);
    let index = region.start + 500;
    region.set(index, region.get(index) ^ 1);
    region.run(device, Action::Check, &mut outcome);
    assert_eq!((outcome.wrong, outcome.first), (1, index));
}

#[test]
fn a_region_that_is_wrong_all_over_is_counted_and_sampled_within_bounds() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(5);
    for (_, _, plan) in plans(&[4]).chain(unmasked(&[4])) {
        let mut region = Region::new(&mut rng, &plan, 9000);
        let mut outcome = Outcome::EMPTY;
        region.run(device, Action::Poison, &mut outcome);
        region.run(device, Action::Check, &mut outcome);
        assert_eq!((outcome.wrong, outcome.first), (9000, region.start), "{}", region.describe());
        assert_eq!(outcome.first().map(|s| s.index), Some(region.start), "{}", region.describe());
        let indices: BTreeSet<u64> = outcome.samples().iter().map(|s| s.index).collect();
        assert_eq!(indices.len(), MAX_SAMPLES, "{}", region.describe());
        for &s in outcome.samples() {
            let (actual, expected) = (region.get(s.index), region.content(s.index));
            assert_eq!(s, Sample { index: s.index, actual, expected }, "{}", region.describe());
        }
        // an outcome goes on over further checks, and keeps the first of all
        let first = outcome.first;
        region.start += 1;
        region.len -= 1;
        region.element += 1;
        region.run(device, Action::Check, &mut outcome);
        assert_eq!((outcome.wrong, outcome.first), (17_999, first), "{}", region.describe());
    }
}

/// Elements before the first vector come last in a thread: long after the places for samples are gone.
#[test]
fn the_first_wrong_element_is_kept_even_if_it_is_found_late() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(7);
    let plan = Plan::new(1, Primitive::AllGather, None, DType::Int8, 2, 0);
    let mut region = Region::new(&mut rng, &plan, 100_000);
    (region.start, region.blocks) = (1, 1);
    let mut outcome = Outcome::EMPTY;
    region.run(device, Action::Check, &mut outcome);
    let first = region.elements().find(|&index| region.get(index) != region.content(index));
    assert_eq!(first, Some(1), "the blank bytes differ from the content");
    assert_eq!(outcome.first().map(|s| s.index), first);
}

#[test]
fn a_guard_zone_is_whole_or_its_first_broken_byte_is_told() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(6);
    for len in [0usize, 1, 15, 16, 17, 100, 4096, 40_000] {
        for start in 0..18 {
            let mut memory = vec![0xc5u8; start + len + 1];
            memory[start + len] = 0;
            assert_eq!(device.guard(&memory[start..start + len], 0xc5), Outcome::EMPTY);
            if len == 0 {
                continue;
            }
            let broken = rng.random_range(0..len);
            memory[start + broken] = 0xc4;
            memory[start + len - 1] = 0xc4;
            let outcome = device.guard(&memory[start..start + len], 0xc5);
            assert_eq!(outcome.wrong, if broken == len - 1 { 1 } else { 2 });
            let first = Sample { index: broken as u64, actual: 0xc4, expected: 0xc5 };
            assert_eq!(outcome.first(), Some(first));
        }
    }
}

/// Special values: NaNs of other payloads pass in results, and in no input.
#[test]
fn another_nan_is_right_in_a_result_and_wrong_in_an_input() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(8);
    for (_, dtype, plan) in unmasked(&[3]).filter(|(.., plan)| plan.params().method == Method::Table) {
        let p = plan.params();
        for reduced in [false, true] {
            let mut region = Region::new(&mut rng, &plan, 1000);
            region.reduced = reduced;
            let mut outcome = Outcome::EMPTY;
            region.run(device, Action::Fill, &mut outcome);
            let nans: Vec<u64> = region.elements().filter(|&k| region.get(k) & !p.sign > p.largest).collect();
            assert!(nans.len() > 20, "{dtype}");
            for &index in &nans {
                region.set(index, region.get(index) ^ p.sign);
            }
            region.run(device, Action::Check, &mut outcome);
            assert_eq!(outcome.wrong, if reduced { 0 } else { nans.len() as u64 }, "{}", region.describe());
        }
    }
}

/// Letting go early changes nothing of what a fill writes.
#[test]
fn an_early_fill_writes_what_a_fill_writes() {
    let Some(device) = Device::new() else { return };
    let mut rng = StdRng::seed_from_u64(9);
    for (_, _, plan) in plans(&[4]).chain(unmasked(&[4])) {
        let mut region = Region::new(&mut rng, &plan, 300);
        region.early = true;
        region.run(device, Action::Fill, &mut Outcome::EMPTY.clone());
        for index in region.elements() {
            assert_eq!(region.get(index), region.content(index), "{} {index}", region.describe());
        }
    }
}

#[test]
fn fingerprints_are_the_same_in_both_languages_whatever_the_grid() {
    let Some(device) = Device::new() else { return };
    let mut random = StdRng::seed_from_u64(5);
    for width in [1, 2, 4, 8] {
        for len in [0usize, 1, 255, 1000] {
            // the heap aligns for any width
            let words: Vec<u64> = (0..len * width / 8 + 1).map(|_| random.random()).collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let bytes = &bytes[..len * width];
            let expected = collcheck::oracle::fingerprint::sum(bytes, width, 0);
            for blocks in [1, 3] {
                assert_eq!(device.fingerprint(blocks, bytes, width), expected, "{len} elements of {width}");
            }
        }
    }
}
