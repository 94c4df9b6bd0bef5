//! What libraries are known to refuse, so that a refusal is reported as exactly that and a new one still fails.

use crate::case::{Case, DType, Op};

/// Why a refusal of this case is expected, if it is.
pub fn refusal(case: &Case, ranks: u32) -> Option<&'static str> {
    let fp8 = matches!(case.dtype, DType::F8e4m3 | DType::F8e5m2);
    let scaled = matches!(case.op, Some(Op::Avg | Op::Mulsum));
    (fp8 && scaled && ranks == 1).then_some(
        "NCCL has no one-rank kernel for scaled reductions of 8-bit floats (seen on 2.28.3 to 2.32.3); two ranks or more run",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scaled_fp8_on_one_rank_is_a_known_refusal() {
        let case = |name: &str| name.parse::<Case>().unwrap();
        assert!(refusal(&case("all_reduce::avg::f8e4m3::8B"), 1).is_some());
        assert!(refusal(&case("all_reduce::avg::f8e4m3::8B"), 2).is_none());
        assert!(refusal(&case("all_reduce::sum::f8e4m3::8B"), 1).is_none());
        assert!(refusal(&case("all_reduce::avg::half::8B"), 1).is_none());
    }
}
