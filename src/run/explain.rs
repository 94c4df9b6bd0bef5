//! From one rank's wrong elements to what they are.

use crate::backend::Placement;
use crate::case::Case;
use crate::case::primitive::Segment;
use crate::fleet::protocol::{Measured, Request};
use crate::oracle::Plan;
use crate::oracle::forensics::{self, Explanation, Scene};

/// What the oracle makes of the wrong elements of a rank's output; empty where it has nothing to compare with.
pub fn explain(request: &Request, rank: u32, measured: &Measured) -> String {
    explanation(request, rank, measured).map(|explanation| explanation.to_string()).unwrap_or_default()
}

/// The same as data; `None` where it has nothing to compare with.
pub fn explanation(request: &Request, rank: u32, measured: &Measured) -> Option<Explanation> {
    let (verdict, epoch) = (measured.output.as_ref()?, measured.occasion.epoch?);
    // in a group of several dtypes, the call's own
    let case = Case { dtype: measured.occasion.dtype, ..request.case.clone() };
    let plan = Plan::of(&case, request.seed, request.ranks, epoch);
    let scene = Scene { plan: &plan, segments: &segments(&case, request.ranks, rank, measured.placement), rank };
    forensics::explain(&scene, verdict)
}

/// What the rank should have received, counted from the start of its receive buffer.
fn segments(case: &Case, ranks: u32, rank: u32, placement: Placement) -> Vec<Segment> {
    let (unit, w) = (case.primitive.unit(), case.workload(ranks));
    let offset = match placement {
        Placement::OutOfPlace => 0,
        Placement::InPlace => unit.in_place(&w, rank).map_or(0, |place| place.recv),
    };
    unit.expected(&w, rank).into_iter().map(|s| Segment { start: s.start + offset, ..s }).collect()
}
