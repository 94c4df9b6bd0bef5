//! Ranks that make different calls: the wrong argument, the wrong call, one too few, or in another order.
//!
//! Most happen in launch [`super::STEP`], among launches that nobody waits for in between. What the ranks called before
//! tells which of two is wrong. Calls grow from launch to launch where one must be told from the next.

pub(super) mod count;
pub(super) mod count_even;
pub(super) mod crossed;
pub(super) mod dtype;
pub(super) mod kind;
pub(super) mod nranks;
pub(super) mod op;
pub(super) mod order;
pub(super) mod peer;
pub(super) mod root;
pub(super) mod size;
pub(super) mod unpaired;
pub(super) mod unpaired_small;

use super::armed::{Injector, Rank};
use super::{Called, Detector, Expectation, Who, calls};
use crate::backend::{Call, RankError, Twist};
use crate::case::{Case, Op, Primitive};
use crate::trace::Class;

/// A call that hangs, or ends with wrong results: either way the calls differ.
const fn either(classes: &'static [Class]) -> Expectation {
    Expectation { by: &[Detector::Deadline, Detector::Alignment], called: Called::Class(classes), who: Who::Culprit }
}

/// A call that hangs.
const fn hangs(classes: &'static [Class]) -> Expectation {
    Expectation { by: &[Detector::Deadline], called: Called::Class(classes), who: Who::Culprit }
}

/// The culprit makes another call of one launch.
struct Other {
    step: u32,
    change: fn(&Case, &Rank<'_>) -> Case,
}

impl Injector for Other {
    fn launch(&mut self, rank: &mut Rank<'_>, all: &[Call<'_>]) -> Result<(), RankError> {
        if !rank.acts_in(self.step) {
            return rank.station.launch(all);
        }
        let cases = calls::recast(all, |case| (self.change)(case, rank));
        rank.armed();
        rank.station.launch(&calls::with(all, &cases))
    }
}

/// Right calls in a row, before the wrong one.
const BEFORE: u32 = 4;

/// In the first launch, which is checked, several calls in a row, of which the culprit makes the last otherwise.
struct Repeated {
    change: fn(&Case) -> Case,
}

impl Injector for Repeated {
    fn launch(&mut self, rank: &mut Rank<'_>, all: &[Call<'_>]) -> Result<(), RankError> {
        if rank.step > 1 {
            return rank.station.launch(all);
        }
        (0..BEFORE).try_for_each(|_| rank.station.launch(all))?;
        if !rank.culprit() {
            return rank.station.launch(all);
        }
        let cases = calls::recast(all, self.change);
        rank.armed();
        rank.station.launch(&calls::with(all, &cases))
    }
}

/// The culprit leaves one launch out.
struct Skip {
    step: u32,
}

impl Injector for Skip {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if !rank.acts_in(self.step) {
            return rank.station.launch(calls);
        }
        rank.armed();
        Ok(())
    }
}

/// The culprit makes one launch with a twist, which may be known only when it is made.
struct Twisted {
    step: u32,
    twist: fn(&Rank<'_>) -> Twist,
}

impl Injector for Twisted {
    fn launch(&mut self, rank: &mut Rank<'_>, calls: &[Call<'_>]) -> Result<(), RankError> {
        if !rank.acts_in(self.step) {
            return rank.station.launch(calls);
        }
        let twist = Some((self.twist)(rank));
        let twisted: Vec<Call<'_>> = calls.iter().map(|call| Call { twist, ..call.clone() }).collect();
        rank.armed();
        rank.station.launch(&twisted)
    }
}

fn only(what: Primitive, primitive: Primitive, why: &'static str) -> Option<&'static str> {
    (primitive != what).then_some(why)
}

/// An op that gives other results.
fn another(op: Option<Op>) -> Option<Op> {
    op.map(|op| if op == Op::Max { Op::Sum } else { Op::Max })
}
