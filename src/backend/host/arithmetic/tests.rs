//! The loops against plain arithmetic, one element at a time.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::case::{Kind, Primitive};
use crate::oracle::{Data, Plan};

/// One element's result, by the widest arithmetic there is.
fn reference(op: Op, dtype: DType, a: u64, b: u64) -> u64 {
    let width = 8 * dtype.size() as u32;
    match dtype.kind() {
        Kind::Float(format) => {
            let (x, y) = (format.decode(a, width), format.decode(b, width));
            let wide = match op {
                Op::Prod => x * y,
                Op::Min => x.min(y),
                Op::Max => x.max(y),
                _ => x + y,
            };
            // In f32 a double's sum can be rounded, but to the same f32: 53 bits are more than twice 24 and 2.
            format.encode(wide, width)
        }
        kind => {
            let value = |bits: u64| match kind {
                Kind::Signed => i128::from((bits << (64 - width)) as i64 >> (64 - width)),
                _ => i128::from(bits),
            };
            let (x, y) = (value(a), value(b));
            let wide = match op {
                Op::Prod => x.wrapping_mul(y),
                Op::Min => x.min(y),
                Op::Max => x.max(y),
                _ => x + y,
            };
            wide as u64 & dtype.mask()
        }
    }
}

fn bytes(dtype: DType, elements: &[u64]) -> Vec<u8> {
    elements.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(dtype.size() as usize)).collect()
}

fn elements(dtype: DType, bytes: &[u8]) -> Vec<u64> {
    let read = |raw: &[u8]| {
        let mut word = [0; 8];
        word[..raw.len()].copy_from_slice(raw);
        u64::from_le_bytes(word)
    };
    bytes.chunks(dtype.size() as usize).map(read).collect()
}

fn is_nan(dtype: DType, bits: u64) -> bool {
    dtype.float().is_some_and(|format| format.decode(bits, 8 * dtype.size() as u32).is_nan())
}

/// Any bits at all: NaN, infinities and subnormals too. Odd counts and odd addresses.
#[test]
fn every_op_and_dtype_rounds_and_wraps_as_defined() {
    let mut rng = StdRng::seed_from_u64(7);
    for dtype in DType::ALL {
        let a: Vec<u64> = (0..3001).map(|_| rng.random::<u64>() & dtype.mask()).collect();
        // half of the partners are near, so that sums cancel and ties occur
        let near = |x: &u64| {
            (x ^ rng.random_range(0..64) ^ (rng.random::<u64>() & 1) << (8 * dtype.size() - 1)) & dtype.mask()
        };
        let mut b: Vec<u64> = a.iter().map(near).collect();
        b.iter_mut().step_by(2).for_each(|x| *x = rng.random::<u64>() & dtype.mask());
        let (raw_a, raw_b) = (bytes(dtype, &a), bytes(dtype, &b));
        for op in [Op::Sum, Op::Prod, Op::Min, Op::Max] {
            let reduction = Reduction::new(op, dtype, 4, 0);
            let mut combined = vec![0; raw_a.len() + 1];
            let mut shifted = vec![0; raw_a.len() + 1];
            shifted[1..].copy_from_slice(&raw_b);
            reduction.combine(&mut combined[1..], &raw_a, &shifted[1..]);
            let mut accumulated = raw_a.clone();
            reduction.accumulate(&mut accumulated, &raw_b);
            let results = elements(dtype, &combined[1..]).into_iter().zip(elements(dtype, &accumulated));
            for ((x, y), (first, second)) in a.iter().zip(&b).zip(results) {
                let expected = reference(op, dtype, *x, *y);
                for actual in [first, second] {
                    let zeros = [x, y].iter().all(|bits| **bits << (65 - 8 * dtype.size()) == 0);
                    assert!(
                        actual == expected
                            || (is_nan(dtype, actual) && is_nan(dtype, expected))
                            || (zeros && matches!(op, Op::Min | Op::Max)),
                        "{op} {dtype}: {x:#x} and {y:#x} give {actual:#x}, not {expected:#x}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_number_wins_over_a_nan_in_min_and_max() {
    for dtype in DType::ALL {
        let Some(format) = dtype.float() else { continue };
        let width = 8 * dtype.size() as u32;
        let (nan, two) = (format.encode(f64::NAN, width), format.encode(2.0, width));
        for op in [Op::Min, Op::Max] {
            let mut acc = bytes(dtype, &[nan, two, nan]);
            Reduction::new(op, dtype, 2, 0).accumulate(&mut acc, &bytes(dtype, &[two, nan, nan]));
            let got = elements(dtype, &acc);
            assert_eq!(got[..2], [two, two], "{op} {dtype}");
            assert!(is_nan(dtype, got[2]));
        }
    }
}

#[test]
fn every_16_bit_code_scales_and_rounds_to_nearest_even() {
    for dtype in [DType::Half, DType::Bfloat16, DType::F8e4m3, DType::F8e5m2] {
        let format = dtype.float().unwrap();
        let width = 8 * dtype.size() as u32;
        let codes: Vec<u64> = (0..1u64 << width).collect();
        for factor in [1.0 / 3.0, 1.5, 2.0, 0.015625] {
            let scalar = format.encode(factor, width);
            let reduction = Reduction::new(Op::Mulsum, dtype, 3, scalar);
            let own = bytes(dtype, &codes);
            let (mut to, mut acc) = (vec![0; own.len()], own.clone());
            reduction.scale(&mut to, &own);
            reduction.scale_in_place(&mut acc);
            assert_eq!(to, acc);
            for (code, actual) in codes.iter().zip(elements(dtype, &to)) {
                let expected = format.encode(format.decode(*code, width) * format.decode(scalar, width), width);
                assert!(
                    actual == expected || (is_nan(dtype, actual) && is_nan(dtype, expected)),
                    "{dtype} {code:#x} times {factor}: {actual:#x}, not {expected:#x}"
                );
            }
        }
    }
}

#[test]
fn averages_of_integers_divide_the_wrapped_sum_towards_zero() {
    for (dtype, sum, ranks, quotient) in [
        (DType::Int8, -7i64 as u64, 2, -3i64 as u64),
        (DType::Int8, 127, 3, 42),
        (DType::Uint8, 255, 4, 63),
        (DType::Uint8, 200, 1000, 0),
        (DType::Int32, -10i64 as u64, 3, -3i64 as u64),
        (DType::Uint32, u64::from(u32::MAX), 2, u64::from(u32::MAX / 2)),
        (DType::Int64, i64::MIN as u64, 3, (i64::MIN / 3) as u64),
        (DType::Uint64, u64::MAX, 7, u64::MAX / 7),
    ] {
        let reduction = Reduction::new(Op::Avg, dtype, ranks, 0);
        let mut acc = bytes(dtype, &[sum & dtype.mask()]);
        reduction.scale_in_place(&mut acc);
        reduction.finish(&mut acc);
        assert_eq!(elements(dtype, &acc), [quotient & dtype.mask()], "{dtype} {sum} / {ranks}");
    }
}

#[test]
fn averages_of_floats_scale_by_the_rounded_inverse_and_divide_no_more() {
    let reduction = Reduction::new(Op::Avg, DType::Float, 3, 0);
    let mut acc = bytes(DType::Float, &[u64::from(9f32.to_bits())]);
    reduction.scale_in_place(&mut acc);
    assert_eq!(elements(DType::Float, &acc), [u64::from((9f32 * (1.0 / 3.0f32)).to_bits())]);
    let before = acc.clone();
    reduction.finish(&mut acc);
    assert_eq!(acc, before);
    // 1/110 is subnormal in e4m3, and far from there
    let format = DType::F8e4m3.float().unwrap();
    assert_eq!(float8::inverse(&format, 64), 1.0 / 64.0);
    assert_eq!(float8::inverse(&format, 110), f64::from((1.0 / 110.0) as f32));
}

/// The ring starts at any rank; the tree groups ranks otherwise.
#[test]
fn the_oracle_accepts_every_op_dtype_and_number_of_ranks_in_any_grouping() {
    const COUNT: u64 = 97;
    for (op, dtype) in Op::ALL.into_iter().flat_map(|op| DType::ALL.map(|dtype| (op, dtype))) {
        let plain = (1..=9).chain([16, 31, 64, 65, 90, 110, 128, 255]).map(|ranks| (Data::Plain, ranks));
        let others = [Data::Special, Data::OddScalars].into_iter().flat_map(|data| [1, 2, 3, 8, 31].map(|n| (data, n)));
        for (data, ranks) in plain.chain(others) {
            let plan = Plan::with(data, 3, Primitive::AllReduce, Some(op), dtype, ranks, 1);
            let inputs: Vec<(Reduction, Vec<u8>)> = (0..ranks)
                .map(|rank| {
                    let input: Vec<u64> = (0..COUNT).map(|i| plan.input(rank, i)).collect();
                    (Reduction::new(op, dtype, ranks, plan.scalar(rank)), bytes(dtype, &input))
                })
                .collect();
            for shift in [0, ranks as usize / 2] {
                for halves in [false, true] {
                    let mut order = inputs.clone();
                    order.rotate_left(shift);
                    let (left, right) = order.split_at(if halves { order.len() / 2 } else { 0 });
                    let sums: Vec<Vec<u8>> =
                        [left, right].into_iter().filter(|part| !part.is_empty()).map(partial).collect();
                    let (reduction, _) = &order[0];
                    let mut result = sums[0].clone();
                    sums[1..].iter().for_each(|sum| reduction.accumulate(&mut result, sum));
                    reduction.finish(&mut result);
                    for (i, actual) in (0..).zip(elements(dtype, &result)) {
                        let expected = plan.reduced(i);
                        assert!(
                            plan.accepts(actual, expected),
                            "{op} {dtype}, {ranks} ranks, element {i}: {actual:#x}, not {expected:#x}"
                        );
                    }
                }
            }
        }
    }
}

fn partial(ranks: &[(Reduction, Vec<u8>)]) -> Vec<u8> {
    let mut acc = vec![0; ranks[0].1.len()];
    for (k, (reduction, input)) in ranks.iter().enumerate() {
        let before = acc.clone();
        if k == 0 {
            reduction.scale(&mut acc, input);
        } else {
            reduction.combine(&mut acc, input, &before);
        }
    }
    acc
}
