//! What a launch runs as (`NCCL_DEBUG_SUBSYS=TUNING`). Rank 0 writes it, for every collective of every launch.
//!
//! ```text
//! 2.18, 2.19   nothing
//! 2.20..2.22   1048576 Bytes -> Algo 1 proto 2 time 12.3                          enqueue.cc, topoGetAlgoInfo
//! 2.23         AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 12.3
//! 2.24 on      AllReduce: 1048576 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..23}
//! 2.27 on      AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 [nWorks 1]
//! 2.29 on      AllGather [Copy Engine]: 1048576 Bytes -> cudaMemcpy[; CE synchronization with NVLS]
//! 2.30 on      AllGather [Hierarchical CE]: 1048576 Bytes -> RMA proxy + CE
//! ```
//!
//! With one rank there is nothing to choose, and no line. Send, receive and what is made of them have none either.

use super::scan::Scan;

/// One choice of NCCL's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// The collective, as `AllReduce`; not known before 2.23.
    pub function: Option<String>,
    /// As NCCL counts them: for AllGather and ReduceScatter of some versions one rank's share.
    pub bytes: u64,
    /// What runs.
    pub choice: Choice,
}

/// What NCCL chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// One of the classic kernels.
    Classic {
        /// As `RING`, also where the log has a number.
        algo: String,
        /// As `LL128`.
        proto: String,
        /// The first channel and the last, from 2.24 on.
        channels: Option<(u32, u32)>,
    },
    /// A kernel for symmetric windows.
    Symmetric {
        /// As `AllReduce_AGxLL_R`.
        kernel: String,
        /// How many channels it runs on.
        channels: u32,
    },
    /// The copy engines.
    CopyEngine {
        /// `Copy Engine` or `Hierarchical CE`.
        kind: String,
    },
}

/// By `NCCL_ALGO_*` of device.h.
const ALGORITHMS: [&str; 7] = ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];

/// By `NCCL_PROTO_*`.
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];

impl Tuning {
    pub(super) fn read(text: &str) -> Option<Tuning> {
        let mut scan = Scan(text);
        let front = scan.until(" Bytes -> ")?;
        let (function, bytes) = front.rsplit_once(": ").map_or((None, front), |(f, bytes)| (Some(f), bytes));
        let bytes = bytes.parse().ok()?;
        let (function, kind) = match function.map(|f| f.split_once(" [")) {
            Some(Some((function, kind))) => (Some(function), Some(kind.strip_suffix(']')?)),
            Some(None) => (function, None),
            None => (None, None),
        };
        // a name, and not the rest of some other line
        let is_name = |f: &str| f.chars().all(|c| c.is_ascii_alphanumeric());
        let function = function.map(|f| is_name(f).then(|| f.to_owned()).ok_or(())).transpose().ok()?;
        let choice = match kind {
            None => classic(&mut scan)?,
            Some("Symmetric") => symmetric(&mut scan)?,
            Some(kind @ ("Copy Engine" | "Hierarchical CE")) => Choice::CopyEngine { kind: kind.to_owned() },
            Some(_) => return None,
        };
        Some(Tuning { function, bytes, choice })
    }
}

fn classic(scan: &mut Scan<'_>) -> Option<Choice> {
    scan.eat("Algo ")?;
    let algo = scan.word()?;
    scan.eat(" proto ")?;
    let proto = scan.word()?;
    let by_number = |names: &[&str], number: &str| names.get(number.parse::<usize>().ok()?).map(|s| (*s).to_owned());
    if scan.eat(" time ").is_some() {
        let (algo, proto) = (by_number(&ALGORITHMS, algo)?, by_number(&PROTOCOLS, proto)?);
        return Some(Choice::Classic { algo, proto, channels: None });
    }
    scan.eat(" channel{Lo..Hi}={")?;
    let first = scan.number()?;
    scan.eat("..")?;
    let last = scan.number()?;
    // without its end the number may be cut off
    scan.eat("}")?;
    Some(Choice::Classic { algo: algo.to_owned(), proto: proto.to_owned(), channels: Some((first, last)) })
}

fn symmetric(scan: &mut Scan<'_>) -> Option<Choice> {
    scan.eat("Kernel ")?;
    let kernel = scan.word()?.to_owned();
    scan.eat(" nchannels ")?;
    let channels = scan.number()?;
    scan.eat(" nthreads ")?;
    Some(Choice::Symmetric { kernel, channels })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classic(algo: &str, proto: &str, channels: Option<(u32, u32)>) -> Choice {
        Choice::Classic { algo: algo.into(), proto: proto.into(), channels }
    }

    #[test]
    fn every_form_since_2_20_is_read() {
        let kernel = Choice::Symmetric { kernel: "AllReduce_AGxLL_R".into(), channels: 8 };
        let engine = |kind: &str| Choice::CopyEngine { kind: kind.into() };
        for (text, function, choice) in [
            ("64 Bytes -> Algo 1 proto 2 time 12.300000", None, classic("RING", "SIMPLE", None)),
            ("AllGather: 64 Bytes -> Algo 6 proto 2 time 12.3", Some("AllGather"), classic("PAT", "SIMPLE", None)),
            (
                "AllReduce: 64 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..23}",
                Some("AllReduce"),
                classic("NVLS_TREE", "SIMPLE", Some((0, 23))),
            ),
            (
                "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512",
                Some("AllReduce"),
                kernel.clone(),
            ),
            (
                "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1",
                Some("AllReduce"),
                kernel,
            ),
            ("AllGather [Copy Engine]: 64 Bytes -> cudaMemcpy", Some("AllGather"), engine("Copy Engine")),
            (
                "AlltoAll [Copy Engine]: 64 Bytes -> cudaMemcpy; CE synchronization with NVLS",
                Some("AlltoAll"),
                engine("Copy Engine"),
            ),
            ("AllGather [Hierarchical CE]: 64 Bytes -> RMA proxy + CE", Some("AllGather"), engine("Hierarchical CE")),
        ] {
            let expected = Tuning { function: function.map(str::to_owned), bytes: 64, choice };
            assert_eq!(Tuning::read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_cut_off_or_not_chosen_says_nothing() {
        for text in [
            "AllReduce: 64 Bytes -> Algo RING proto LL",
            "AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..2",
            "64 Bytes -> Algo -1 proto -1 time 3600000000.0",
            "64 Bytes -> Algo 9 proto 0 time 1.0",
            "AllReduce: -8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..2}",
            "AllReduce [Future]: 64 Bytes -> Kernel x nchannels 1 nthreads 2",
            "  Algorithm   |                            Tree                  |",
        ] {
            assert_eq!(Tuning::read(text), None, "{text}");
        }
    }
}
