//! Drills: what a case's variants add to the one plain launch that every placement opens with.
//!
//! | variant                   | drill                                                            | timed    |
//! |---------------------------|------------------------------------------------------------------|----------|
//! | none, sync, agg, aggmixed | none: how a launch is made up and waited for is the pass's       | launches |
//! | graph                     | [`graph`]: one launch captured, replayed with other data         | replays  |
//! | pipeline                  | [`pipeline`]: many rounds queued without waiting                 | launches |
//! | pipeline, graph           | [`pipeline`]: the same rounds captured together and replayed     | launches |

mod attribution;
mod graph;
mod pipeline;

use super::found::Found;
use super::part::Inputs;
use super::pass::Pass;
use super::timing::Trigger;
use crate::backend::RankError;
use crate::case::Variant;

/// What a drill leaves behind.
pub struct Drilled {
    /// The inputs of its last launch, which are what the buffers hold.
    pub inputs: Inputs,
    /// What its checks found, lane by lane.
    pub found: Vec<Found>,
    /// How launches are to be timed from here on.
    pub trigger: Trigger,
}

/// A way of launching.
pub type Drill = fn(&mut Pass<'_>) -> Result<Drilled, RankError>;

/// The drill that the case's variants ask for, if any.
pub fn of(pass: &Pass<'_>) -> Option<Drill> {
    // a pipeline exists for its checks: the time of its collective is that of any launch
    if pass.has(Variant::Pipeline) {
        return pass.request.check.then_some(pipeline::drill);
    }
    pass.has(Variant::Graph).then_some(graph::drill)
}
