//! What decides whether cases can share a communicator.

use serde::{Deserialize, Serialize};

use crate::case::{Case, Variant};

/// How a communicator is made. Cases with the same making share one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Making {
    /// `ncclConfig_t::CTAPolicy`.
    pub cta_policy: Option<u32>,
    /// Ranks take the devices in another order than the bus.
    pub permuted: bool,
    /// It is split off one that holds the same ranks.
    pub split: bool,
    /// It is nonblocking.
    pub nonblocking: bool,
    /// Its ranks exchange bytes over connections, whatever they do else: for faults that strike those.
    pub connected: bool,
}

impl Making {
    /// What the case's variants ask for.
    pub fn of(case: &Case) -> Making {
        let has = |variant| case.variants.contains(&variant);
        Making {
            cta_policy: case
                .variants
                .iter()
                .find_map(|v| if let Variant::Cta(policy) = v { Some(*policy) } else { None }),
            permuted: has(Variant::Permuted),
            split: has(Variant::Split),
            nonblocking: has(Variant::Nonblocking),
            connected: case.fault().is_some_and(|kind| kind.fault().needs().connections.is_some()),
        }
    }
}
