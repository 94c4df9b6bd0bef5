//! What libraries are known to refuse or never to end, so that it is reported as exactly that and anything new still fails.

use std::collections::BTreeMap;

use crate::case::{Case, DType, Op, Primitive, Variant};

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
    let has = |variant| case.variants.contains(&variant);
    let pairwise =
        !case.primitive.unit().reduces() && !matches!(case.primitive, Primitive::AllGather | Primitive::Broadcast);
    (pairwise && has(Variant::Windows) && has(Variant::Graph) && has(Variant::Pipeline)).then_some(
        "NCCL hangs behind replays of sends from windows of one allocation (seen on 2.28.9, 2.30.7 and 2.32.3; ends with NCCL_GRAPH_REGISTER=0)",
    )
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
    fn only_scaled_fp8_on_one_rank_is_a_known_refusal() {
        let case = |name: &str| name.parse::<Case>().unwrap();
        assert!(refusal(&case("all_reduce::avg::f8e4m3::8B"), 1).is_some());
        assert!(refusal(&case("all_reduce::avg::f8e4m3::8B"), 2).is_none());
        assert!(refusal(&case("all_reduce::sum::f8e4m3::8B"), 1).is_none());
        assert!(refusal(&case("all_reduce::avg::half::8B"), 1).is_none());
    }
}
