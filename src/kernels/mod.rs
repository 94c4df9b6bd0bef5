//! The CUDA kernels: sources, the PTX built of them, and what launches need to know.
//!
//! `oracle.cuh` and `methods.cuh` are the oracle's arithmetic, `stream.cuh` turns it into vectors of memory, `job.cuh`
//! holds the structures below, and `kernels.cu` the kernels. `build-ptx.py` makes the PTX, which is committed: building
//! collcheck takes no CUDA toolkit, and running it only the driver (525 or later).
//!
//! Every kernel but [`GUARD`] and [`FINGERPRINT`] takes `(Params, Job, Outcome*)`, the first two by value, and any grid from [`grid`]. A
//! region may begin and end at any element; its address must be a multiple of the element's size.

use crate::backend::MAX_SAMPLES;
use crate::oracle::{Method, Params};

#[cfg(test)]
mod tests;

/// The PTX for a device by the major number of its compute capability, which must be 7 or more.
///
/// The newer one is the same source, with fills that can let go early (see [`Job::early`]).
pub fn ptx(compute_capability_major: u32) -> &'static str {
    if compute_capability_major >= 9 { include_str!("collcheck_sm90.ptx") } else { include_str!("collcheck_sm70.ptx") }
}

/// What is done to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// Write its content.
    Fill = 0,
    /// Write the complement of its content.
    Poison = 1,
    /// Compare it with its content.
    Check = 2,
}

/// One launch's region. `struct Job` of `job.cuh` has the same layout: change both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Job {
    /// Device address of the region's first element.
    pub ptr: u64,
    /// Elements.
    pub len: u64,
    /// What the first element is called in the outcome: its index in the buffer.
    pub index: u64,
    /// The logical element that the first one is, as in [`crate::backend::Content`].
    pub element: u64,
    /// Whose input it is, where it is one.
    pub rank: u32,
    /// 1 for the reduction over all ranks, 0 for a rank's input.
    pub reduced: u32,
    /// The [`Action`].
    pub action: u32,
    /// 1 for a fill that lets what is queued next begin before it has ended: programmatic dependent launch. Only the PTX
    /// for compute capability 9 and above knows how; elsewhere it is a plain fill.
    pub early: u32,
}

/// One wrong element.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// `Job::index` and on.
    pub index: u64,
    /// Bits found.
    pub actual: u64,
    /// Bits expected.
    pub expected: u64,
}

/// What checks found. Several checks in a row may add to one; it begins as [`Outcome::EMPTY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Outcome {
    /// Wrong elements.
    pub wrong: u64,
    /// Least index of them, all ones if there is none.
    pub first: u64,
    /// Wrong elements that asked for a place in `samples`; may exceed what there is.
    pub sampled: u32,
    /// The kernels' own; it begins as 0.
    pub lock: u32,
    /// The first `sampled` of these are wrong elements in no order, with the least one among them.
    pub samples: [Sample; MAX_SAMPLES],
}

impl Outcome {
    /// Nothing found yet.
    pub const EMPTY: Outcome = Outcome {
        wrong: 0,
        first: u64::MAX,
        sampled: 0,
        lock: 0,
        samples: [Sample { index: 0, actual: 0, expected: 0 }; MAX_SAMPLES],
    };

    /// The wrong elements kept.
    pub fn samples(&self) -> &[Sample] {
        self.samples.get(..self.sampled as usize).unwrap_or(&self.samples)
    }

    /// The wrong element with the least index.
    pub fn first(&self) -> Option<Sample> {
        self.samples().iter().find(|s| s.index == self.first).copied()
    }
}

/// The kernel that checks guard zones: takes `(u64 ptr, u64 len, u32 byte, Outcome*)`, for `len` bytes that must all be
/// `byte`. Indices in the outcome count bytes from `ptr` on.
pub const GUARD: &str = "guard";

/// The kernel that adds up [`crate::oracle::fingerprint`]: takes `(u64 ptr, u64 len, u32 width, u64 *sum)`, for `len` elements of
/// `width` bytes, and any grid from [`small_grid`].
pub const FINGERPRINT: &str = "fingerprint";

/// All kernels.
pub const NAMES: [&str; 40] = [
    GUARD,
    FINGERPRINT,
    "check_exact",
    "check_exact_8",
    "check_near",
    "check_near_8",
    "write_stream",
    "write_stream_8",
    "int_sum_1",
    "int_sum_4",
    "int_sum_8",
    "int_prod_1",
    "int_prod_4",
    "int_prod_8",
    "int_extreme_1",
    "int_extreme_4",
    "int_extreme_8",
    "int_avg_1",
    "int_avg_4",
    "int_avg_8",
    "float_sum_1",
    "float_sum_2",
    "float_sum_4",
    "float_sum_8",
    "float_prod_1",
    "float_prod_2",
    "float_prod_4",
    "float_prod_8",
    "float_extreme_1",
    "float_extreme_2",
    "float_extreme_4",
    "float_extreme_8",
    "float_avg_1",
    "float_avg_2",
    "float_avg_4",
    "float_avg_8",
    "each_1",
    "each_2",
    "each_4",
    "each_8",
];

/// The kernel for an action on a region whose content is the reduction (`reduced`) or a rank's input.
///
/// Expected values and copied inputs are one masked stream for all ops and dtypes. A rank's input to a reduction has a
/// kernel for each method and width, which does all three actions; so have special values, and results of odd scalars.
pub fn name(action: Action, reduced: bool, p: &Params) -> &'static str {
    if p.method == Method::Table || reduced && p.odd == 1 {
        return match p.width {
            8 => "each_8",
            4 => "each_4",
            2 => "each_2",
            _ => "each_1",
        };
    }
    if reduced || p.method == Method::Copy {
        return match (action, reduced && p.tolerance > 0, p.width) {
            (Action::Check, false, 8) => "check_exact_8",
            (Action::Check, false, _) => "check_exact",
            (Action::Check, true, 8) => "check_near_8",
            (Action::Check, true, _) => "check_near",
            (Action::Fill | Action::Poison, _, 8) => "write_stream_8",
            (Action::Fill | Action::Poison, _, _) => "write_stream",
        };
    }
    // There is no integer of 2 bytes.
    match (p.method, p.width) {
        (Method::Copy | Method::Table, _) => "write_stream",
        (Method::IntSum, 8) => "int_sum_8",
        (Method::IntSum, 4) => "int_sum_4",
        (Method::IntSum, _) => "int_sum_1",
        (Method::IntProd, 8) => "int_prod_8",
        (Method::IntProd, 4) => "int_prod_4",
        (Method::IntProd, _) => "int_prod_1",
        (Method::IntMin | Method::IntMax, 8) => "int_extreme_8",
        (Method::IntMin | Method::IntMax, 4) => "int_extreme_4",
        (Method::IntMin | Method::IntMax, _) => "int_extreme_1",
        (Method::IntAvg, 8) => "int_avg_8",
        (Method::IntAvg, 4) => "int_avg_4",
        (Method::IntAvg, _) => "int_avg_1",
        (Method::FloatSum, 8) => "float_sum_8",
        (Method::FloatSum, 4) => "float_sum_4",
        (Method::FloatSum, 2) => "float_sum_2",
        (Method::FloatSum, _) => "float_sum_1",
        (Method::FloatProd, 8) => "float_prod_8",
        (Method::FloatProd, 4) => "float_prod_4",
        (Method::FloatProd, 2) => "float_prod_2",
        (Method::FloatProd, _) => "float_prod_1",
        (Method::FloatMin | Method::FloatMax, 8) => "float_extreme_8",
        (Method::FloatMin | Method::FloatMax, 4) => "float_extreme_4",
        (Method::FloatMin | Method::FloatMax, 2) => "float_extreme_2",
        (Method::FloatMin | Method::FloatMax, _) => "float_extreme_1",
        (Method::FloatAvg, 8) => "float_avg_8",
        (Method::FloatAvg, 4) => "float_avg_4",
        (Method::FloatAvg, 2) => "float_avg_2",
        (Method::FloatAvg, _) => "float_avg_1",
    }
}

/// Threads of a block: the kernels are compiled for exactly this.
pub const THREADS: u32 = 256;

/// Bytes that a block of a check takes at a time: 4 vectors of 16 bytes a thread.
const TILE: u64 = THREADS as u64 * 4 * 16;

/// Blocks per multiprocessor. About 4 run at a time; many more than that let faster multiprocessors take more of them.
const BLOCKS_PER_SM: u64 = 64;

/// Kernels count the elements of one step of the whole grid in 32 bits.
const MOST_BLOCKS: u64 = 1 << 20;

/// Blocks, and threads of each, for a region of `bytes` on a device with `sms` multiprocessors.
pub fn grid(bytes: u64, sms: u32) -> (u32, u32) {
    let most = (u64::from(sms.max(1)) * BLOCKS_PER_SM).min(MOST_BLOCKS);
    (bytes.div_ceil(TILE).clamp(1, most) as u32, THREADS)
}

/// Likewise, with no more blocks than run at a time: each thread adds to one number in the end.
pub fn small_grid(bytes: u64, sms: u32) -> (u32, u32) {
    let (blocks, threads) = grid(bytes, sms);
    (blocks.min(sms.max(1).saturating_mul(8)), threads)
}
