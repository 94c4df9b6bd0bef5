//! Regions of more than 2^32 elements: a few blocks of the largest grid, on memory of which only what they touch exists.

use collcheck::backend::MAX_SAMPLES;
use collcheck::case::DType;
use collcheck::kernels::{Action, Job, Outcome, grid, name};
use collcheck::oracle::{Method, Plan};
use libloading::Symbol;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::regions::{Device, Kernel};
use super::{plans, unmasked};

type LaunchBlocks = unsafe extern "C" fn(Kernel, u32, u32, *const collcheck::oracle::Params, *const Job, *mut Outcome);
type Map = unsafe extern "C" fn(u64) -> u64;
type Unmap = unsafe extern "C" fn(u64, u64);

/// Bytes that one step of the largest grid passes over with vectors, and a rest for a second step.
const BYTES: u64 = (1 << 34) + 40_013 * 8;

/// What the first element is called: indices of the outcome pass 2^33 from the start.
const INDEX: u64 = (1 << 33) + 5;

/// Where the region's data begin: no multiple of a vector or a word, beyond 2^35 elements.
const ELEMENT: u64 = (1 << 35) + 3;

/// Address space without memory behind it, but where it is written to.
struct Sparse<'a> {
    device: &'a Device,
    base: u64,
}

impl<'a> Sparse<'a> {
    fn new(device: &'a Device) -> Option<Sparse<'a>> {
        // SAFETY: the source gives this name this type; it takes a number.
        let base = unsafe { device.symbol::<Map>("collcheck_map")(BYTES + 4096) };
        if base == 0 {
            eprintln!("not tested: {BYTES} bytes of address space are refused");
        }
        (base != 0).then_some(Sparse { device, base })
    }

    /// The region's first byte: aligned to the element, and not to a vector.
    fn start(&self, width: u64) -> u64 {
        self.base + width
    }

    fn get(&self, width: u64, k: u64) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the mapping holds BYTES and a page more, and nobody else writes to it.
        unsafe {
            let at = std::ptr::with_exposed_provenance::<u8>((self.start(width) + k * width) as usize);
            std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), width as usize);
        }
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, width: u64, k: u64, value: u64) {
        // SAFETY: as above.
        unsafe {
            let at = std::ptr::with_exposed_provenance_mut::<u8>((self.start(width) + k * width) as usize);
            std::ptr::copy_nonoverlapping(value.to_ne_bytes().as_ptr(), at, width as usize);
        }
    }
}

impl Drop for Sparse<'_> {
    fn drop(&mut self) {
        // SAFETY: the source gives this name this type, and the mapping is this one's.
        unsafe { self.device.symbol::<Unmap>("collcheck_unmap")(self.base, BYTES + 4096) };
    }
}

/// How kernels cut a region: bytes of what a thread takes at a time, and how many of these a block takes at a time.
fn cut(kernel: &str, width: u64) -> (u64, u64) {
    match kernel {
        _ if kernel.starts_with("check") || kernel.starts_with("write") => (16, 1024),
        _ if kernel.starts_with("each") => (width, 256),
        _ => (width.max(4), 256),
    }
}

/// Some elements that a block of the grid takes: the first and the last of each of its tiles, over the whole region.
fn taken(kernel: &str, width: u64, start: u64, len: u64, blocks: u64, block: u64) -> Vec<u64> {
    let (unit, tile) = cut(kernel, width);
    let head = (start.wrapping_neg() % unit) / width;
    let units = (len - head) * width / unit;
    let tiles = (0..).map(|step| (step * blocks + block) * tile).take_while(|first| *first < units);
    tiles.flat_map(|first| [first, (first + tile).min(units) - 1]).map(|v| head + v * (unit / width)).collect()
}

#[test]
fn elements_beyond_2_to_the_32_are_written_checked_and_told_by_their_index() {
    let Some(device) = Device::new() else { return };
    let Some(memory) = Sparse::new(device) else { return };
    let mut rng = StdRng::seed_from_u64(10);
    let blocks = grid(u64::MAX, u32::MAX).0;
    let mut furthest = 0;
    for (_, dtype, plan) in plans(&[3]).chain(unmasked(&[3])) {
        let width = dtype.size();
        let len = BYTES / width - 2;
        for reduced in [false, true] {
            for block in [0, rng.random_range(1..blocks - 1), blocks - 1] {
                let run = |action: Action| large(device, &memory, &plan, reduced, action, len, blocks, block);
                let context = format!("{dtype} {:?}, reduced {reduced}, block {block}", plan.params().method);
                let content = |k| content(&plan, reduced, ELEMENT + k);
                run(Action::Fill);
                let kernel = name(Action::Fill, reduced, plan.params());
                let elements = taken(kernel, width, memory.start(width), len, blocks.into(), block.into());
                for &k in &elements {
                    assert_eq!(memory.get(width, k), content(k), "{context}: element {k}");
                }
                assert_eq!(run(Action::Check), Outcome::EMPTY, "{context}");

                let far = *elements.last().expect("each block has some");
                furthest = furthest.max(far);
                memory.set(width, far, content(far) ^ flip(&plan, dtype));
                let outcome = run(Action::Check);
                let sample = outcome.first().expect("the first wrong element is sampled");
                assert_eq!((outcome.wrong, outcome.first, sample.index), (1, INDEX + far, INDEX + far), "{context}");
                assert_eq!(sample.expected, content(far), "{context}");
            }
        }
    }
    assert!(furthest > 1 << 33, "{furthest}");
}

/// Bits that make any value wrong: all, so that a NaN is none any more, or the top one, beyond any tolerance.
fn flip(plan: &Plan, dtype: DType) -> u64 {
    if plan.params().method == Method::Table { dtype.mask() } else { 1 << (8 * dtype.size() - 1) }
}

fn content(plan: &Plan, reduced: bool, element: u64) -> u64 {
    if reduced { plan.reduced(element) } else { plan.input(1, element) }
}

#[allow(clippy::too_many_arguments)] // a launch has as many
fn large(
    device: &Device,
    memory: &Sparse<'_>,
    plan: &Plan,
    reduced: bool,
    action: Action,
    len: u64,
    blocks: u32,
    block: u32,
) -> Outcome {
    let p = plan.params();
    let job = Job {
        ptr: memory.start(plan.dtype().size()),
        len,
        index: INDEX,
        element: ELEMENT,
        rank: 1,
        reduced: reduced.into(),
        action: action as u32,
        early: 0,
    };
    let mut outcome = Outcome::EMPTY;
    let _one = device.alone();
    let kernel: Symbol<Kernel> = device.symbol(name(action, reduced, p));
    let launch: Symbol<LaunchBlocks> = device.symbol("collcheck_launch_block");
    // SAFETY: the source gives these names these types, and the region lies in the mapping.
    unsafe { launch(*kernel, blocks, block, p, &job, &mut outcome) };
    assert!(outcome.samples.len() == MAX_SAMPLES);
    outcome
}
