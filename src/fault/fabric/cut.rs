//! cut: a cable is pulled. Nothing passes between two ranks any more, and neither is told: both go on believing in it.

use super::super::Detector;
use super::Break;
use crate::backend::Harm;

pub static CUT: Break = Break {
    name: "cut",
    deed: "drops all that passes between it and the rank before it, from launch 6 on",
    harm: Harm::Cut,
    // where the network says something before the deadline, that counts as well
    by: &[Detector::Deadline, Detector::Error],
};
