//! What libraries are known to refuse or never to end, so that it is reported as exactly that and anything new still fails.

use crate::case::{Case, DType, Op, Primitive, Variant};

/// Why a refusal of this case is expected, if it is.
pub fn refusal(case: &Case, ranks: u32) -> Option<&'static str> {
    let fp8 = matches!(case.dtype, DType::F8e4m3 | DType::F8e5m2);
    let scaled = matches!(case.op, Some(Op::Avg | Op::Mulsum));
    (fp8 && scaled && ranks == 1).then_some(
        "NCCL has no one-rank kernel for scaled reductions of 8-bit floats (seen on 2.28.3 and 2.28.9); two ranks or more run",
    )
}

/// Why a case is not run because it is known not to end, if so. `shared` says that ranks share a GPU.
///
/// Seen with 2 and 4 ranks on one H200, at 1 MiB, every time: alltoall on 2.30.7, alltoallv and sendrecv on 2.32.3. Without
/// any of the three variants, and on smaller sizes, the same calls end. Whether ranks on GPUs of their own hang too is
/// not known; they run.
pub fn hang(case: &Case, shared: bool) -> Option<&'static str> {
    let has = |variant| case.variants.contains(&variant);
    let pairwise =
        !case.primitive.unit().reduces() && !matches!(case.primitive, Primitive::AllGather | Primitive::Broadcast);
    let windows = has(Variant::Window) || has(Variant::Windows);
    (shared && pairwise && windows && has(Variant::Graph) && has(Variant::Pipeline)).then_some(
        "NCCL hangs where several ranks on one GPU replay a graph with many sends from windows (seen on 2.30.7 and 2.32.3)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairwise_windows_in_captured_pipelines_on_a_shared_gpu_are_known_to_hang() {
        let known = |name: &str, shared| hang(&name.parse().unwrap(), shared).is_some();
        assert!(known("sendrecv::none::float::1MiB@windows+graph+pipeline", true));
        assert!(!known("sendrecv::none::float::1MiB@windows+graph+pipeline", false));
        assert!(!known("sendrecv::none::float::1MiB@windows+pipeline", true));
        assert!(!known("all_reduce::sum::float::1MiB@windows+graph+pipeline", true));
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
