//! reset: the connections between two ranks are reset, as by a firewall or a network card that starts anew. Both are told.

use super::super::Detector;
use super::Break;
use crate::backend::Harm;

pub static RESET: Break = Break {
    name: "reset",
    deed: "resets its connections with the rank before it, before launch 6",
    harm: Harm::Reset,
    by: &[Detector::Error],
};
