//! throttled: what a rank sends passes at a lower rate, as over a link that came up slow: the larger, the more it loses.

use super::super::{Connections, End};
use super::Slowed;
use crate::backend::Harm;

pub static THROTTLED: Slowed = Slowed {
    name: "throttled",
    deed: "sends to the next rank at a limited rate",
    connections: Connections::Any,
    // so many bytes are to take so long
    harm: |delay_us, bytes| {
        let rate = bytes as f64 * 1e6 / f64::from(delay_us.max(1));
        Harm::Throttle((rate as u64).max(1))
    },
    lifted: Harm::Throttle(0),
    moves: End::Large,
};
