//! Figures of all launches, sorted into curves.

use std::collections::{BTreeMap, BTreeSet};

use super::{Launch, Rule};
use crate::case::{DType, Op, Primitive, Variant};
use crate::run::result::{CaseResult, PlacementResult};

/// What one range is made for: a primitive, and of reductions the op and the dtype.
///
/// Where nothing is computed, bytes are bytes: all dtypes are one curve.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    pub primitive: Primitive,
    pub op: Option<Op>,
    pub dtype: Option<DType>,
    /// In rising order.
    pub sizes: Vec<Size>,
}

/// All figures of one curve at one size.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Size {
    pub bytes: u64,
    /// A series is one case and one placement: a figure for each launch. Each series must fit in the range.
    pub series: Vec<Vec<Figure>>,
}

/// What one launch measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure {
    pub us: f64,
    pub gbs: f64,
}

type CurveName = (Primitive, Option<Op>, Option<DType>);
type SeriesName = (String, bool);
type Series = BTreeMap<SeriesName, BTreeMap<usize, Figure>>;

/// The curves, and the cases that too few launches timed.
pub(super) fn curves(launches: &[Launch], rule: Rule) -> (Vec<Curve>, BTreeSet<String>) {
    let mut found: BTreeMap<CurveName, BTreeMap<u64, Series>> = BTreeMap::new();
    for (launch, results) in launches.iter().map(|l| &l.results).enumerate() {
        for case in results.cases.iter().filter(|case| is_judged(case)) {
            let dtype = Some(case.dtype).filter(|_| case.primitive.unit().reduces());
            let sizes = found.entry((case.primitive, case.op, dtype)).or_default();
            for placement in &case.placements {
                let series = sizes.entry(case.bytes).or_default().entry((case.name.clone(), placement.in_place));
                series.or_default().extend(figure(placement).map(|figure| (launch, figure)));
            }
        }
    }
    let mut left_out = BTreeSet::new();
    let mut curves = Vec::new();
    for ((primitive, op, dtype), sizes) in found {
        let sizes = sizes.into_iter().map(|(bytes, series)| {
            let series = known_well(series, rule, &mut left_out);
            Size { bytes, series }
        });
        let sizes = merged(sizes.filter(|size| !size.series.is_empty()));
        if !sizes.is_empty() {
            curves.push(Curve { primitive, op, dtype, sizes });
        }
    }
    (curves, left_out)
}

/// Dtypes round one size down to blocks differently. Sizes within 1 % of each other are one, named by the largest.
fn merged(sizes: impl Iterator<Item = Size>) -> Vec<Size> {
    let mut merged: Vec<Size> = Vec::new();
    for size in sizes {
        match merged.last_mut() {
            Some(last) if size.bytes - size.bytes / 100 <= last.bytes => {
                last.bytes = size.bytes;
                last.series.extend(size.series);
            }
            _ => merged.push(size),
        }
    }
    merged
}

fn known_well(series: Series, rule: Rule, left_out: &mut BTreeSet<String>) -> Vec<Vec<Figure>> {
    let mut kept = Vec::new();
    for ((case, _), figures) in series {
        if figures.len() >= rule.min_launches {
            kept.push(figures.into_values().collect());
        } else {
            left_out.insert(case);
        }
    }
    kept
}

/// Whether references judge such a case at all: a root moves the same bytes, any other variant may be slower by right.
fn is_judged(case: &CaseResult) -> bool {
    case.variants.iter().all(|v| matches!(v, Variant::Root(_)))
}

fn figure(placement: &PlacementResult) -> Option<Figure> {
    let measured = |figure: f64| figure.is_finite() && figure > 0.0;
    let PlacementResult { mean_us: us, busbw_gbs: gbs, .. } = *placement;
    (measured(us) && measured(gbs)).then_some(Figure { us, gbs })
}
