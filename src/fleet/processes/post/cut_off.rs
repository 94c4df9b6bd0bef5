//! Which hosts are silent, for people.

use std::collections::BTreeMap;

use super::super::card::Seat;
use super::super::silence::SILENCE;
use super::Agent;
use super::absent::listed;
use crate::trace::text;

/// `no word from host b (ranks 2, 3) for 5 s`, if any is silent.
pub(super) fn cut_off(agents: &BTreeMap<u32, Agent>, seats: &[Seat]) -> Option<String> {
    let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (rank, seat) in (0..).zip(seats) {
        if let Some(agent) = agents.get(&seat.agent).filter(|agent| agent.silent) {
            hosts.entry(&agent.card.host).or_default().push(rank);
        }
    }
    let named: Vec<String> =
        hosts.iter().map(|(host, ranks)| format!("host {host} ({})", text::ranks(ranks))).collect();
    (!named.is_empty()).then(|| format!("no word from {} for {} s", listed(&named), SILENCE.as_secs()))
}
