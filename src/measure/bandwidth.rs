//! Bytes and time into algbw and busbw, by nccl-tests' definitions.

/// algbw in GB/s (1e9 bytes): `bytes` over `us` microseconds.
///
/// 0 where the time is not a positive number: what was not measured meets no lower bound, and JSON has no infinity.
pub fn algbw_gbs(bytes: u64, us: f64) -> f64 {
    if us.is_finite() && us > 0.0 { bytes as f64 / us / 1e3 } else { 0.0 }
}

/// busbw in GB/s: algbw times the primitive's factor ([`crate::case::primitive::Unit::busbw_factor`]).
pub fn busbw_gbs(bytes: u64, factor: f64, us: f64) -> f64 {
    algbw_gbs(bytes, us) * factor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Primitive;

    /// Rows of nccl-tests on two GPUs, as it printed them: bytes, time, algbw, busbw.
    #[test]
    fn figures_are_those_of_nccl_tests() {
        for (primitive, bytes, us, algbw, busbw) in [
            (Primitive::AllReduce, 536_870_912, 1701.31, 315.56, 315.56),
            (Primitive::AllGather, 536_870_912, 1045.37, 513.57, 256.79),
            (Primitive::Reduce, 134_217_728, 379.66, 353.52, 353.52),
            (Primitive::ReduceScatter, 33_554_432, 91.46, 366.88, 183.44),
        ] {
            let factor = primitive.unit().busbw_factor(2);
            assert!((algbw_gbs(bytes, us) - algbw).abs() < 0.006, "{primitive}: {}", algbw_gbs(bytes, us));
            assert!((busbw_gbs(bytes, factor, us) - busbw).abs() < 0.006, "{primitive}");
        }
    }

    #[test]
    fn a_time_that_was_not_measured_gives_no_bandwidth() {
        for us in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(algbw_gbs(1 << 30, us), 0.0);
            assert_eq!(busbw_gbs(1 << 30, 1.75, us), 0.0);
        }
    }
}
