//! 8-bit floats: every result is looked up.

use std::sync::OnceLock;

use crate::case::{DType, FloatFormat, Kind, Op};

/// The results for all pairs of codes, at `256 * a + b`.
pub(super) type Table = [u8; 1 << 16];

/// The formats' parts, as the dtypes have them.
const E4M3: FloatFormat = parts(DType::F8e4m3);
const E5M2: FloatFormat = parts(DType::F8e5m2);

const fn parts(dtype: DType) -> FloatFormat {
    match dtype.kind() {
        Kind::Float(format) => format,
        // evaluated at compile time, for the two constants above only
        _ => panic!("not a float"),
    }
}

/// The two formats.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    E4m3,
    E5m2,
}

/// One table for each format and each of sum, prod, min and max, made when it is first asked for.
static TABLES: [[OnceLock<Box<Table>>; 4]; 2] = [const { [const { OnceLock::new() }; 4] }; 2];

pub(super) fn table(op: Op, format: Format) -> &'static Table {
    let [e4m3, e5m2] = &TABLES;
    let ([sum, prod, min, max], format) = match format {
        Format::E4m3 => (e4m3, E4M3),
        Format::E5m2 => (e5m2, E5M2),
    };
    let table = match op {
        Op::Sum | Op::Avg | Op::Mulsum => sum,
        Op::Prod => prod,
        Op::Min => min,
        Op::Max => max,
    };
    table.get_or_init(|| {
        // Sums and products of two such values are exact in a double, so they are rounded once.
        let mut table = Box::new([0; 1 << 16]);
        for (index, result) in table.iter_mut().enumerate() {
            let a = format.decode(index as u64 >> 8, 8);
            let b = format.decode(index as u64 & 0xff, 8);
            let value = match op {
                Op::Sum | Op::Avg | Op::Mulsum => a + b,
                Op::Prod => a * b,
                Op::Min => a.min(b),
                Op::Max => a.max(b),
            };
            *result = format.encode(value, 8) as u8;
        }
        table
    })
}

/// The product of every code and a factor, rounded once.
pub(super) fn products(format: &FloatFormat, factor: f64) -> Box<[u8; 256]> {
    let mut products = Box::new([0; 256]);
    for (code, product) in products.iter_mut().enumerate() {
        *product = format.encode(format.decode(code as u64, 8) * factor, 8) as u8;
    }
    products
}

/// 1/n in the format if it is as near there as the precision promises, which subnormal numbers are not; else in f32.
pub(super) fn inverse(format: &FloatFormat, ranks: u32) -> f64 {
    let n = f64::from(ranks.max(1));
    let rounded = format.decode(format.encode(1.0 / n, 8), 8);
    let good = (rounded * n - 1.0).abs() <= 2f64.powi(-(format.precision() as i32));
    if good { rounded } else { f64::from((1.0 / n) as f32) }
}

fn lookup(table: &Table, a: u8, b: u8) -> u8 {
    table[usize::from(a) << 8 | usize::from(b)]
}

pub(super) fn combine(table: &Table, to: &mut [u8], a: &[u8], b: &[u8]) {
    to.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = lookup(table, *a, *b));
}

pub(super) fn accumulate(table: &Table, acc: &mut [u8], b: &[u8]) {
    acc.iter_mut().zip(b).for_each(|(acc, b)| *acc = lookup(table, *acc, *b));
}
