//! What libraries are known to refuse, to get wrong or never to end, so that it is reported as exactly that and anything new still
//! fails.

use std::collections::BTreeMap;

use super::result::FailKind;
use crate::backend::Environment;
use crate::backend::nccl::Version;
use crate::case::{Case, DType, Forced, Op, Primitive, Variant};

/// Why a refusal of this case is expected, if it is.
pub fn refusal(case: &Case, ranks: u32) -> Option<&'static str> {
    let fp8 = matches!(case.dtype, DType::F8e4m3 | DType::F8e5m2);
    let scaled = matches!(case.op, Some(Op::Avg | Op::Mulsum));
    (fp8 && scaled && ranks == 1).then_some(
        "NCCL has no one-rank kernel for scaled reductions of 8-bit floats (seen on 2.28.3 and 2.28.9); two ranks or more run",
    )
}

/// Why a case is not run because it is known not to end, if so.
///
/// NCCL's own registration of buffers that it meets while a graph is captured is at fault: the first launch behind the
/// replays hangs, in a program without collcheck too. With NCCL_GRAPH_REGISTER=0 the same calls end, and so they do where both buffers are one window, or windows of two allocations. Seen at 1 MiB, every
/// time: alltoallv and sendrecv with 2.28.9 on two GPUs, alltoall on 2.30.7 and alltoallv and sendrecv on 2.32.3 with 2 and
/// 4 ranks on one. See `docs/known-bugs.md`.
pub fn hang(case: &Case, variables: &BTreeMap<String, String>) -> Option<&'static str> {
    let off = |name: &str| variables.get(name).is_some_and(|value| value == "0");
    if off("NCCL_GRAPH_REGISTER") || off("NCCL_LOCAL_REGISTER") {
        return None;
    }
    let pairwise =
        !case.primitive.unit().reduces() && !matches!(case.primitive, Primitive::AllGather | Primitive::Broadcast);
    (pairwise && has(case, Variant::Windows) && has(case, Variant::Graph) && has(case, Variant::Pipeline)).then_some(
        "NCCL hangs behind replays of sends from windows of one allocation (seen on 2.28.9, 2.30.7 and 2.32.3; ends with NCCL_GRAPH_REGISTER=0)",
    )
}

/// A fault of the library that such a case may meet: it fails all the same, and says what to do.
struct Bug {
    /// Which versions have it.
    from: Version,
    to: Until,
    /// What comes of it.
    gives: &'static [FailKind],
    /// Which cases show it.
    shows: fn(&Case, &Environment) -> bool,
    /// What it is.
    what: &'static str,
    /// What helps where the library cannot be replaced.
    instead: &'static str,
}

/// How long a fault lasted.
enum Until {
    /// This version has it no more.
    Fixed(Version),
    /// No version is known to be without it; this one, the newest tried, has it.
    Seen(Version),
}

const BUGS: &[Bug] = &[
    Bug {
        from: Version::new(2, 28, 0),
        to: Until::Seen(Version::new(2, 32, 3)),
        gives: &[FailKind::Data, FailKind::Hang],
        shows: |case, environment| environment.ranks_per_gpu > 1 && copy_engine(case) && has(case, Variant::Graph),
        what: "copy-engine collectives in a graph that is replayed, among ranks that share a GPU, miss blocks or never end",
        instead: ", or with one rank on each GPU",
    },
    Bug {
        from: Version::new(2, 19, 0),
        to: Until::Fixed(Version::new(2, 29, 7)),
        gives: &[FailKind::Data],
        shows: |case, environment| environment.ranks == 1 && matches!(case.op, Some(Op::Avg | Op::Mulsum)),
        what: "one-rank avg and mulsum leave out the last elements (#1950)",
        instead: "",
    },
    Bug {
        from: Version::new(2, 28, 0),
        to: Until::Fixed(Version::new(2, 30, 7)),
        gives: &[FailKind::Data],
        shows: |case, _| symmetric(case) && has(case, Variant::Early),
        what: "symmetric kernels do not wait for a producer that lets them begin early",
        instead: ", or NCCL_WIN_ENABLE=0, or producers without programmatic dependent launch",
    },
    Bug {
        from: Version::new(2, 27, 0),
        to: Until::Fixed(Version::new(2, 28, 7)),
        gives: &[FailKind::Data],
        shows: |case, _| symmetric(case) && (grouped(case) || !case.size.0.is_multiple_of(8)),
        what: "symmetric kernels with several operations in a group, or sizes that are no multiple of 8 bytes",
        instead: ", or NCCL_WIN_ENABLE=0",
    },
    Bug {
        from: Version::new(2, 27, 0),
        to: Until::Fixed(Version::new(2, 30, 3)),
        gives: &[FailKind::Data],
        shows: |case, _| symmetric(case) && unaligned(case),
        what: "symmetric LL kernels on unaligned buffers",
        instead: ", or NCCL_WIN_ENABLE=0",
    },
];

fn has(case: &Case, variant: Variant) -> bool {
    case.variants.contains(&variant)
}

/// Whether NCCL may leave the case to copy engines.
fn copy_engine(case: &Case) -> bool {
    use Primitive::{AllGather, Alltoall, Gather, Scatter};
    let moves = matches!(case.primitive, AllGather | Alltoall | Gather | Scatter);
    moves && has(case, Variant::Cta(2)) && (has(case, Variant::Window) || has(case, Variant::Windows))
}

/// Whether NCCL may run one of its symmetric kernels, which there are for three primitives.
fn symmetric(case: &Case) -> bool {
    let own = matches!(case.primitive, Primitive::AllReduce | Primitive::AllGather | Primitive::ReduceScatter);
    let window = |v: &Variant| matches!(v, Variant::Window | Variant::Windows | Variant::Path(Forced::Symmetric(_)));
    own && case.variants.iter().any(window)
}

fn grouped(case: &Case) -> bool {
    case.variants.iter().any(|v| matches!(v, Variant::Agg | Variant::AggMixed))
}

/// Whether a buffer, or a rank's block of it, begins at no multiple of 8 bytes.
fn unaligned(case: &Case) -> bool {
    let offset = |v: &Variant| match v {
        Variant::Unaligned(elements) => !(u64::from(*elements) * case.dtype.size()).is_multiple_of(8),
        Variant::Odd => case.dtype.size() < 8,
        _ => false,
    };
    case.variants.iter().any(offset)
}

/// What is known of such a failure of this case with the environment's version of NCCL, and what to do.
pub fn bug(case: &Case, environment: &Environment, kind: FailKind) -> Option<String> {
    let version: Version = environment.nccl_version.parse().ok()?;
    let meets = |bug: &&Bug| {
        let over = matches!(bug.to, Until::Fixed(fixed) if version >= fixed);
        bug.from <= version && !over && bug.gives.contains(&kind) && (bug.shows)(case, environment)
    };
    let Bug { to, what, instead, .. } = BUGS.iter().find(meets)?;
    Some(match to {
        Until::Fixed(fixed) => format!(
            "known: NCCL before {fixed}: {what}. Take {fixed} or newer{instead}. This case may have met that, or something \
             new: the same case on {fixed} tells"
        ),
        Until::Seen(newest) => format!(
            "known: NCCL to {newest} at least: {what}. No version is known to be without it. This case may have met that, or \
             something new: the same case without a graph{instead} tells"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairwise_windows_of_one_allocation_in_captured_pipelines_are_known_to_hang() {
        let known = |name: &str| hang(&name.parse().unwrap(), &BTreeMap::new()).is_some();
        assert!(known("sendrecv::none::float::1MiB@windows+graph+pipeline"));
        assert!(!known("sendrecv::none::float::1MiB@window+graph+pipeline"));
        assert!(!known("sendrecv::none::float::1MiB@windows+pipeline"));
        assert!(!known("all_reduce::sum::float::1MiB@windows+graph+pipeline"));
        let off = BTreeMap::from([("NCCL_GRAPH_REGISTER".to_owned(), "0".to_owned())]);
        assert!(hang(&"sendrecv::none::float::1MiB@windows+graph+pipeline".parse().unwrap(), &off).is_none());
    }

    #[test]
    fn a_known_data_fault_is_named_with_the_version_that_ends_it_and_for_no_other_case() {
        let known = |name: &str, ranks, version: &str| {
            let environment = Environment { ranks, nccl_version: version.to_owned(), ..Environment::default() };
            let said = bug(&name.parse().unwrap(), &environment, FailKind::Data)?;
            said.split_once("Take ")?.1.split_once(" or newer").map(|(fixed, _)| fixed.to_owned())
        };
        let is = |version: &str| Some(version.to_owned());
        // each seen on two H200, or one
        assert_eq!(known("all_reduce::sum::float::64KiB@window+pipeline+early", 2, "2.28.9"), is("2.30.7"));
        assert_eq!(known("reduce_scatter::sum::half::1MiB@window+agg", 2, "2.28.3"), is("2.28.7"));
        assert_eq!(known("all_reduce::sum::half::1002B@unaligned1+sym-agxll_r", 2, "2.28.9"), is("2.30.3"));
        assert_eq!(known("all_gather::none::f8e4m3::65538B@odd+window+pipeline", 2, "2.28.9"), is("2.30.3"));
        assert_eq!(known("all_reduce::avg::bfloat16::1048584B", 1, "2.28.9"), is("2.29.7"));
        // the versions that have the fixes, the paths that have not the fault, and what is no version
        assert_eq!(known("all_reduce::sum::float::64KiB@window+pipeline+early", 2, "2.30.7"), None);
        assert_eq!(known("reduce_scatter::sum::half::1MiB@window+agg", 2, "2.28.9"), None);
        assert_eq!(known("all_reduce::sum::half::1002B@unaligned1+pipeline", 2, "2.28.9"), None);
        assert_eq!(known("all_gather::none::double::64KiB@odd+window+pipeline", 2, "2.28.9"), None);
        assert_eq!(known("sendrecv::none::float::64KiB@window+pipeline+early", 2, "2.28.9"), None);
        assert_eq!(known("all_reduce::avg::bfloat16::1048584B", 2, "2.28.9"), None);
        assert_eq!(known("all_reduce::avg::bfloat16::1048584B", 1, ""), None);
    }

    #[test]
    fn a_fault_without_a_fix_is_named_for_what_it_gives_where_it_was_seen() {
        let known = |name: &str, ranks_per_gpu, kind| {
            let environment =
                Environment { ranks: 2, ranks_per_gpu, nccl_version: "2.30.7".to_owned(), ..Environment::default() };
            bug(&name.parse().unwrap(), &environment, kind)
        };
        let case = "all_gather::none::float::1GiB@window+cta2+graph+pipeline";
        for kind in [FailKind::Data, FailKind::Hang] {
            assert!(known(case, 2, kind).unwrap().contains("No version is known to be without it"));
        }
        assert_eq!(known(case, 2, FailKind::Slow), None);
        assert_eq!(known(case, 1, FailKind::Hang), None);
        assert_eq!(known("all_gather::none::float::1GiB@window+cta2+pipeline", 2, FailKind::Hang), None);
        assert_eq!(known("all_reduce::sum::float::1GiB@window+cta2+graph+pipeline", 2, FailKind::Hang), None);
    }

    #[test]
    fn only_scaled_fp8_on_one_rank_is_a_known_refusal() {
        let case = |name: &str| name.parse::<Case>().unwrap();
        assert!(refusal(&case("all_reduce::avg::f8e4m3::8B"), 1).is_some());
        assert!(refusal(&case("all_reduce::avg::f8e4m3::8B"), 2).is_none());
        assert!(refusal(&case("all_reduce::sum::f8e4m3::8B"), 1).is_none());
        assert!(refusal(&case("all_reduce::avg::half::8B"), 1).is_none());
    }
}
