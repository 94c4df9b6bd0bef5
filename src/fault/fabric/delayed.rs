//! delayed: what a rank sends takes longer on its way, as on a detour: the more messages, the more it loses.

use super::super::{Connections, End};
use super::Slowed;
use crate::backend::Harm;

pub static DELAYED: Slowed = Slowed {
    name: "delayed",
    deed: "has what it sends to the next rank held back for the same time at every size",
    connections: Connections::Own,
    harm: |delay_us, _| Harm::Delay(delay_us),
    lifted: Harm::Delay(0),
    moves: End::Small,
};
