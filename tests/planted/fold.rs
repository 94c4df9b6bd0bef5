//! Reductions without any cleverness. The library's own tests of explanations share this file, by its path.

use super::{Kind, Op, Plan};

/// A reduction by plain folding in a wide type: `times` is how often each rank counts.
pub fn fold(plan: &Plan, op: Op, index: u64, times: impl Fn(u32) -> u32) -> u64 {
    let dtype = plan.dtype();
    let width = 8 * dtype.size() as u32;
    let ranks = plan.params().ranks;
    let counted = (0..ranks).flat_map(|rank| (0..times(rank)).map(move |_| rank));
    match dtype.kind() {
        Kind::Float(format) => {
            let scale = |rank| if op == Op::Mulsum { format.decode(plan.scalar(rank), width) } else { 1.0 };
            let values = counted.map(|rank| format.decode(plan.input(rank, index), width) * scale(rank));
            let result = match op {
                Op::Prod => values.product(),
                Op::Min => values.fold(f64::INFINITY, f64::min),
                Op::Max => values.fold(f64::NEG_INFINITY, f64::max),
                Op::Avg => values.sum::<f64>() / f64::from(ranks),
                Op::Sum | Op::Mulsum => values.sum(),
            };
            format.encode(result, width)
        }
        kind => {
            let value = |bits: u64| match kind {
                Kind::Signed => i128::from((bits << (64 - width)) as i64 >> (64 - width)),
                _ => i128::from(bits),
            };
            let scale = |rank| if op == Op::Mulsum { value(plan.scalar(rank)) } else { 1 };
            let values = counted.map(|rank| value(plan.input(rank, index)).wrapping_mul(scale(rank)));
            let result = match op {
                Op::Prod => values.fold(1, i128::wrapping_mul),
                Op::Min => values.min().unwrap_or(0),
                Op::Max => values.max().unwrap_or(0),
                Op::Avg => values.sum::<i128>() / i128::from(ranks),
                Op::Sum | Op::Mulsum => values.fold(0, i128::wrapping_add),
            };
            result as u64 & dtype.mask()
        }
    }
}
