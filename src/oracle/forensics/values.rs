//! Faults that show in the value alone: never written, zero, a flipped bit, stale, rounded.

use super::candidate::Candidate;
use super::clue::{Clue, Scene};
use super::fault::Fault;
use crate::backend::GUARD_BYTE;
use crate::case::{DType, FloatFormat};
use crate::oracle::Method;

/// Earlier runs whose results are looked for.
pub(super) const EPOCHS: u64 = 4;

/// Every such fault.
pub(super) fn candidates(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let mut found = plain(scene, clues);
    found.extend(flips(scene, clues));
    if let Some(format) = scene.plan.dtype().float() {
        found.extend(narrowed(scene, clues, &format));
    }
    found.extend(stale(scene, clues));
    found
}

/// What holds of a value whatever data the plan makes: never written, zero, no number, from outside a buffer.
pub(super) fn plain(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let p = scene.plan.params();
    let width = f64::from(8 * p.width);
    // the poison of negative zero is a NaN, which a library may also have written
    let written = |clue: &Clue| p.method == Method::Table && scene.plan.is_nan(clue.actual);
    let unwritten = |clue: &Clue| clue.actual == !clue.expected & p.mask && !written(clue);
    let mut found = vec![
        Candidate::new(Fault::Unwritten, clues, width, 1.0, unwritten),
        Candidate::new(Fault::Zero, clues, width, 1.0, |clue| clue.actual == 0),
    ];
    let guard = (u64::from(GUARD_BYTE) * 0x0101_0101_0101_0101) & p.mask;
    found.push(Candidate::new(Fault::Guard, clues, width, 1.0, |clue| clue.actual == guard));
    if let Some(format) = scene.plan.dtype().float() {
        let codes = p.sign - 1 - format.max_finite;
        let bits = width - 1.0 - (codes as f64).log2();
        found.push(Candidate::new(Fault::NotANumber, clues, bits, 1.0, |clue| scene.plan.is_nan(clue.actual)));
    }
    found
}

/// Results of earlier runs.
fn stale(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let plan = scene.plan;
    let mut found = Vec::new();
    for epochs in 1..=EPOCHS {
        if let Some(earlier) = plan.before(epochs) {
            let stale = |clue: &Clue| plan.accepts(clue.actual, clue.value(&earlier, clue.element()));
            found.push(Candidate::new(Fault::Stale(epochs), clues, bits_of_values(scene), EPOCHS as f64, stale));
        }
    }
    found
}

/// How unlikely it is, in bits, that two expected values are equal.
pub(super) fn bits_of_values(scene: &Scene<'_>) -> f64 {
    let p = scene.plan.params();
    let values = match p.method {
        Method::Copy => 8 * p.width,
        _ => (p.target_and & p.mask).count_ones(),
    };
    f64::from(values) - f64::from(2 * p.tolerance + 1).log2()
}

/// One bit flipped: the same one in all that were flipped, or any.
fn flips(scene: &Scene<'_>, clues: &[Clue]) -> Vec<Candidate> {
    let p = scene.plan.params();
    let tolerance = u64::from(p.tolerance);
    // what was flipped may have been off by the tolerance already
    let flipped = |clue: &Clue| {
        (0..=2 * tolerance)
            .map(|off| clue.actual ^ (clue.expected.wrapping_add(off).wrapping_sub(tolerance) & p.mask))
            .find(|differ| differ.is_power_of_two())
    };
    let width = f64::from(8 * p.width);
    let choices = width * (2.0 * tolerance as f64 + 1.0);
    let any = Candidate::new(Fault::BitFlipped(None), clues, width - choices.log2(), 1.0, |c| flipped(c).is_some());
    let first = clues.iter().find_map(flipped);
    let same = first.map(|bit| {
        let fault = Fault::BitFlipped(Some(bit.trailing_zeros()));
        Candidate::new(fault, clues, width - (2.0 * tolerance as f64 + 1.0).log2(), width, |c| flipped(c) == Some(bit))
    });
    // where all flips are of one bit, that says more
    match same {
        Some(same) if same.explains == any.explains => vec![same],
        Some(same) => vec![same, any],
        None => Vec::new(),
    }
}

/// Values of a narrower type, near to what is expected.
fn narrowed(scene: &Scene<'_>, clues: &[Clue], format: &FloatFormat) -> Vec<Candidate> {
    let p = scene.plan.params();
    let narrower = [DType::Float, DType::Half, DType::Bfloat16].into_iter();
    let candidate = |to: DType| {
        let narrow = to.float().filter(|narrow| narrow.precision() < format.precision())?;
        let lost = format.precision() - narrow.precision();
        let width = 8 * to.size() as u32;
        // each of the additions may round
        let error = f64::from(p.ranks) * 2f64.powi(-(narrow.precision() as i32));
        let fits = |clue: &Clue| {
            let actual = format.decode(clue.actual, 8 * p.width);
            let expected = format.decode(clue.expected, 8 * p.width);
            narrow.decode(narrow.encode(actual, width), width) == actual
                && (actual - expected).abs() <= error.min(0.25) * expected.abs()
        };
        Some(Candidate::new(Fault::Narrowed(to), clues, f64::from(lost), 3.0, fits))
    };
    narrower.filter_map(candidate).collect()
}
