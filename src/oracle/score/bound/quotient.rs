//! Integer averages: what moves a quotient.
//!
//! With `n` ranks and a sum `S`, the result is `S / n`, rounded to zero. A share that is lost or doubled is sure to show
//! only if it is `n` or more. Smaller ones show at one end of the sums with one quotient: a loss at the lower, a doubling
//! at the upper. For 8-bit types, where that matters, the recipe's own distribution is added up here, share by share.

use super::{Bound, Other, Reason, everywhere, targets};
use crate::oracle::{Params, deviation};

/// What the recipe makes of one quotient of an 8-bit type, at one end of its sums.
struct Element {
    /// How often.
    weight: f64,
    quotient: i64,
    sum: i64,
    /// By how much the shares of a pair differ from the quotient, away from zero and towards it; each as often. Where it is
    /// empty, all shares are ones.
    apart: Vec<i64>,
}

impl Element {
    /// What the two of a pair hold.
    fn shares(&self, apart: i64) -> [i64; 2] {
        // away from zero first; from zero, up first
        let first = if self.quotient < 0 { self.quotient - apart } else { self.quotient + apart };
        [first, 2 * self.quotient - first]
    }
}

/// All elements that there can be, by quotient and end.
fn elements(p: &Params) -> Vec<Element> {
    let n = i64::from(p.ranks);
    let count = targets(p) as u64;
    let mut elements = Vec::new();
    for k in 0..count {
        let target = (k.wrapping_add(p.target_add & p.mask) ^ p.target_xor) & p.mask;
        let signed = p.sign_flip != 0;
        let negative = target & p.sign_flip != 0;
        let size = if negative { target.wrapping_neg() & p.mask } else { target };
        let ones = size == 0 && p.pair_range == 0;
        let (least, range) = deviation(p, size);
        let apart = |k: u64| if least + k == size && size > 1 { 0 } else { (least + k) as i64 };
        for coin in [false, true] {
            let rest = if size == 0 || (coin && size <= p.base) { n - 1 } else { 0 };
            let below = negative || (size == 0 && coin && signed);
            let size_sum = n * size as i64 + rest;
            elements.push(Element {
                weight: 0.5 / count as f64,
                quotient: if negative { -(size as i64) } else { size as i64 },
                sum: if below { -size_sum } else { size_sum },
                apart: if ones { Vec::new() } else { (0..range).map(apart).collect() },
            });
        }
    }
    elements
}

/// Whether another sum gives another quotient, also after wrapping in 8 bits.
fn shows(p: &Params, element: &Element, sum: i64) -> bool {
    let n = i64::from(p.ranks);
    let wrapped = if p.sign_flip != 0 { i64::from(sum as i8) } else { i64::from(sum as u8) };
    sum / n != element.quotient && wrapped / n != element.quotient
}

pub(super) fn lost_or_doubled(p: &Params, missing: bool) -> Bound {
    let n = u64::from(p.ranks);
    let signed = p.sign_flip != 0;
    let every_share_is_large = if signed { p.pair_range / 3 >= n } else { p.target_add & p.mask >= n };
    if p.width > 1 || every_share_is_large {
        // an odd rank out holds the quotient itself, which is small in some elements
        let small = if signed { 2.0 * n as f64 / targets(p) } else { 0.0 };
        let odd = f64::from(p.ranks % 2);
        return everywhere(1.0 - odd * small.min(1.0) / n as f64, Reason::Quotient);
    }
    let mut seen = 0.0;
    for (element, shares, weight) in pairs(&elements(p)) {
        for share in shares {
            let sum = if missing { element.sum - share } else { element.sum + share };
            seen += if shows(p, element, sum) { element.weight * weight / 2.0 } else { 0.0 };
        }
    }
    // Of shares below n / 2, only a loss or only a doubling can be seen.
    let largest = if signed { p.mask >> 1 } else { p.mask };
    let large = (if signed { 2 } else { 1 } * (largest / n.div_ceil(2))).min(n) as f64 / n as f64;
    let theory = (large + (1.0 - large) / 2.0).max(seen);
    // one position of all holds the rest, and may do otherwise
    Bound { theory, chosen: (seen - 1.0 / n as f64).max(0.0), block: 1.0, reason: Reason::Quotient }
}

/// How often a share that is replaced by another one shows: by one of another element, or by a neighbour's.
pub(super) fn replaced(p: &Params, other: Other) -> f64 {
    let n = f64::from(p.ranks);
    if p.width > 1 {
        // wider types hardly ever hold shares so near to each other
        let values = 2f64.powi(8 * p.width as i32 - 1);
        return 1.0 - (2.0 * n * n / values).min(1.0) / 2.0;
    }
    let elements = elements(p);
    match other {
        Other::Rank => by_neighbours(p, &elements),
        // an odd step leads from a first of a pair to a second
        Other::Element(turn) if turn % 2 == 1 && p.ranks.is_multiple_of(2) => by_another(p, &elements, [1, 0]),
        _ => by_another(p, &elements, [0, 1]),
    }
}

/// By the share of another element, which the first and the second of a pair take from a first or a second.
fn by_another(p: &Params, elements: &[Element], from: [usize; 2]) -> f64 {
    // how often the first and the second of a pair hold a value below, from -128 to 255
    let mut below = [[0.0; 386]; 2];
    for (element, shares, weight) in pairs(elements) {
        for (share, below) in shares.into_iter().zip(&mut below) {
            if let Some(slot) = below.get_mut((share + 129) as usize) {
                *slot += element.weight * weight;
            }
        }
    }
    for below in &mut below {
        for at in 1..below.len() {
            below[at] += below[at - 1];
        }
    }
    let n = i64::from(p.ranks);
    let mut hidden = 0.0;
    for (element, shares, weight) in pairs(elements) {
        // sums of the same quotient, as they are and after wrapping
        let (least, most) = match element.quotient {
            0 if p.sign_flip == 0 => (0, n - 1),
            0 => (1 - n, n - 1),
            quotient if quotient > 0 => (n * quotient, n * quotient + n - 1),
            quotient => (n * quotient - n + 1, n * quotient),
        };
        for (share, from) in shares.into_iter().zip(from) {
            for wrap in [-256, 0, 256] {
                let rest = element.sum - share;
                let slot = |value: i64| (value + wrap - rest + 128).clamp(0, 385) as usize;
                let held = below[from][slot(most + 1)] - below[from][slot(least)];
                hidden += element.weight * weight / 2.0 * held;
            }
        }
    }
    1.0 - hidden
}

/// Each of a pair by the next rank's: the first by the second, the second by the next pair's first.
fn by_neighbours(p: &Params, elements: &[Element]) -> f64 {
    let mut seen = 0.0;
    let mut far = 0.0;
    for (element, [first, second], weight) in pairs(elements) {
        let weight = element.weight * weight;
        let within = shows(p, element, element.sum - first + second);
        let next = element.apart.iter().map(|apart| element.shares(*apart)[0]);
        let across = next.filter(|next| shows(p, element, element.sum - second + next)).count();
        let across = across as f64 / element.apart.len().max(1) as f64;
        seen += weight * (f64::from(u8::from(within)) + across) / 2.0;
        far += if first.abs_diff(element.quotient) >= u64::from(p.ranks) { weight } else { 0.0 };
    }
    if p.ranks.is_multiple_of(2) {
        return seen;
    }
    // The one without a pair holds the rest as well. Where it takes its neighbour's, the rest goes with it, so that only
    // n or more shows; where it is taken, one end shows all.
    seen + (0.25 + 0.75 * far - seen) * 2.0 / f64::from(p.ranks)
}

/// What pairs hold, with how often they do in their element.
fn pairs(elements: &[Element]) -> impl Iterator<Item = (&Element, [i64; 2], f64)> {
    elements.iter().flat_map(|element| {
        let ones = if element.sum < 0 { [-1, -1] } else { [1, 1] };
        let all_ones = element.apart.is_empty().then_some((element, ones, 1.0));
        let weight = 1.0 / element.apart.len().max(1) as f64;
        all_ones.into_iter().chain(element.apart.iter().map(move |apart| (element, element.shares(*apart), weight)))
    })
}
