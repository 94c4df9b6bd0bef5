//! What a launcher's process says of itself, and which ranks it gets.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{getgid, getuid};
use serde::{Deserialize, Serialize};

use super::hall::Site;
use crate::fleet::launcher::{Placement, Unit};
use crate::trace::text;

/// A process that a launcher has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// What its numbers count.
    pub unit: Unit,
    /// Its rank or node.
    pub index: u32,
    /// Ranks or nodes that it knows of.
    pub of: u32,
    /// Its number among the ranks of its host, where the launcher says so.
    pub local_rank: Option<u32>,
    /// Ranks that a node is to run, where the launcher says so.
    pub workers: Option<u32>,
    /// Its host, for people.
    pub host: String,
    /// Its machine: the same for all containers of one kernel.
    pub machine: String,
    /// Where processes see each other's memory: the same machine, process numbers, user and realm of users.
    pub memory: String,
    /// Where processes have the same addresses, the loopback device's among them.
    pub network: String,
    /// Where its workers and those of others with the same memory can meet.
    pub gate: Option<Site>,
    /// PCI bus ids of the GPUs that it sees, in the order of their numbers.
    pub gpus: Vec<String>,
}

impl Card {
    /// This process, in its place, without a gate.
    pub fn new(placement: &Placement, host: &str, gpus: Vec<String>) -> Card {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // without it, hosts are told apart by their names
        let machine = if boot.trim().is_empty() { host.to_owned() } else { boot.trim().to_owned() };
        let namespace = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        let [processes, users, network] = ["pid", "user", "net"].map(namespace);
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        Card {
            unit: placement.unit,
            index: placement.index,
            of: placement.of,
            local_rank: placement.local_rank,
            workers: placement.local_world.filter(|_| placement.unit == Unit::Node),
            host: host.to_owned(),
            memory: format!("{machine} {} {} {user}:{group}", processes.display(), users.display()),
            network: format!("{machine} {}", network.display()),
            machine,
            gate: None,
            gpus,
        }
    }

    /// `rank 3 of 8`.
    pub fn name(&self) -> String {
        format!("{} {} of {}", self.unit, self.index, self.of)
    }
}

/// Where a rank runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The agent that starts it.
    pub agent: u32,
    /// The number of its GPU among those that the agent sees.
    pub gpu: u32,
}

/// What is asked of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Ranks, where the command line says how many.
    pub ranks: Option<u32>,
    /// Each needs a GPU.
    pub gpus: bool,
    /// All need the same memory.
    pub memory: bool,
    /// Ranks that share one GPU.
    pub per_gpu: u32,
}

/// Gives ranks to agents, in the order of their numbers; or says in one line why they cannot be what is wanted.
pub fn seat(cards: &[Card], wanted: &Wanted) -> Result<Vec<Seat>, String> {
    let per_gpu = wanted.per_gpu.max(1);
    let mut seats = Vec::new();
    let mut numbered: BTreeMap<&str, u32> = BTreeMap::new();
    for card in cards {
        let before = numbered.entry(&card.machine).or_default();
        for worker in 0..workers(card, wanted) {
            let rank = seats.len();
            let local = match card.unit {
                Unit::Rank => card.local_rank.unwrap_or(*before),
                Unit::Node => worker,
            };
            *before += 1;
            let gpu =
                if wanted.gpus { gpu(card, local / per_gpu).map_err(|why| format!("rank {rank} {why}"))? } else { 0 };
            seats.push(Seat { agent: card.index, gpu });
        }
    }
    let ranks = seats.len() as u32;
    if let Some(asked) = wanted.ranks.filter(|asked| *asked != ranks) {
        let nodes: Vec<String> = cards.iter().map(|card| workers(card, wanted).to_string()).collect();
        return Err(format!("--ranks {asked}, but the nodes have {}: leave --ranks out", nodes.join(" + ")));
    }
    if wanted.gpus {
        nobody_shares(cards, &seats, per_gpu)?
    }
    if wanted.memory {
        all_together(cards)?
    }
    Ok(seats)
}

fn workers(card: &Card, wanted: &Wanted) -> u32 {
    let spread = |ranks: u32| ranks / card.of.max(1) + u32::from(card.index < ranks % card.of.max(1));
    match card.unit {
        Unit::Rank => 1,
        Unit::Node => card.workers.or(wanted.ranks.map(spread)).unwrap_or(match wanted.gpus {
            true => (card.gpus.len() as u32).saturating_mul(wanted.per_gpu.max(1)),
            false => 1,
        }),
    }
}

/// The rank's GPU: by its number on the host, or the only one that its process is given.
fn gpu(card: &Card, number: u32) -> Result<u32, String> {
    let host = &card.host;
    match card.gpus.len() {
        0 => Err(format!("on {host} sees no GPU: give it one, or --backend host for all")),
        1 if card.unit == Unit::Rank => Ok(0),
        visible if (number as usize) < visible => Ok(number),
        visible => {
            Err(format!("on {host} has no GPU: it is the host's number {number} from 0, and {visible} are visible"))
        }
    }
}

/// Ranks on the same GPU by accident would be slow, or hang.
fn nobody_shares(cards: &[Card], seats: &[Seat], per_gpu: u32) -> Result<(), String> {
    let mut users: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
    for (rank, seat) in (0..).zip(seats) {
        let card = cards.iter().find(|card| card.index == seat.agent);
        if let Some((card, bus)) = card.and_then(|card| Some((card, card.gpus.get(seat.gpu as usize)?))) {
            users.entry((&card.machine, bus)).or_default().push(rank);
        }
    }
    match users.iter().find(|(_, ranks)| ranks.len() > per_gpu as usize) {
        None => Ok(()),
        Some(((_, bus), ranks)) => Err(format!(
            "{} have the same GPU, {bus}: give each its own, or --ranks-per-gpu {} to all",
            text::ranks(ranks),
            ranks.len()
        )),
    }
}

/// Whether the loopback device does not connect all of them.
pub fn on_several_networks(cards: &[Card]) -> bool {
    cards.first().is_some_and(|first| cards.iter().any(|card| card.network != first.network))
}

/// Whether not all of them see each other's memory.
fn apart(cards: &[Card]) -> bool {
    cards.first().is_some_and(|first| cards.iter().any(|card| card.memory != first.memory))
}

/// Ranks of the host backend share memory, unless they have connections.
fn all_together(cards: &[Card]) -> Result<(), String> {
    if !apart(cards) {
        return Ok(());
    }
    let mut places: BTreeMap<&str, (&str, Vec<u32>)> = BTreeMap::new();
    for card in cards {
        places.entry(&card.memory).or_insert((&card.host, Vec::new())).1.push(card.index);
    }
    let unit = cards.first().map_or(Unit::Rank, |card| card.unit);
    let list = places.values().map(|(host, who)| match unit {
        Unit::Rank => format!("{host} ({})", text::ranks(who)),
        Unit::Node => (*host).to_owned(),
    });
    let list: Vec<String> = list.collect();
    Err(format!(
        "ranks of the host backend share memory, and these are on several hosts, in several containers or of several users: {}: \
         run them on one, with --host-transport tcp, or with --backend nccl",
        list.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: Wanted = Wanted { ranks: None, gpus: true, memory: false, per_gpu: 1 };
    const HOST: Wanted = Wanted { gpus: false, memory: true, ..GPUS };

    fn card(unit: Unit, index: u32, of: u32, host: &str, gpus: usize) -> Card {
        let name = host.to_owned();
        Card {
            unit,
            index,
            of,
            local_rank: None,
            workers: None,
            host: name.clone(),
            machine: name.clone(),
            memory: name.clone(),
            network: name,
            gate: None,
            gpus: (0..gpus).map(|gpu| format!("{gpu}:00.0")).collect(),
        }
    }

    fn gpus(seats: &[Seat]) -> Vec<u32> {
        seats.iter().map(|seat| seat.gpu).collect()
    }

    #[test]
    fn nodes_of_seven_and_eight_gpus_are_fifteen_ranks() {
        let cards = [card(Unit::Node, 0, 2, "a", 7), card(Unit::Node, 1, 2, "b", 8)];
        let seats = seat(&cards, &GPUS).unwrap();
        assert_eq!(gpus(&seats), [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(seats.iter().filter(|seat| seat.agent == 1).count(), 8);
        let few = Wanted { ranks: Some(3), ..HOST };
        let one = [card(Unit::Node, 0, 2, "a", 0), card(Unit::Node, 1, 2, "a", 0)];
        assert_eq!(seat(&one, &few).unwrap().iter().map(|seat| seat.agent).collect::<Vec<_>>(), [0, 0, 1]);
        let said = one.map(|card| Card { workers: Some(2), ..card });
        assert_eq!(seat(&said, &few), Err("--ranks 3, but the nodes have 2 + 2: leave --ranks out".to_owned()));
    }

    #[test]
    fn a_rank_takes_the_gpu_of_its_number_on_the_host_or_its_only_one() {
        let all =
            |host: &'static str, ranks: std::ops::Range<u32>| ranks.map(move |r| card(Unit::Rank, r, 15, host, 8));
        let uneven: Vec<Card> = all("a", 0..7).chain(all("b", 7..15)).collect();
        assert_eq!(gpus(&seat(&uneven, &GPUS).unwrap()), [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7]);
        let dealt = [0, 1].map(|r| Card { local_rank: Some(1 - r), ..card(Unit::Rank, r, 2, "a", 2) });
        assert_eq!(gpus(&seat(&dealt, &GPUS).unwrap()), [1, 0]);
        let bound = [0, 1].map(|r| Card { gpus: vec![format!("{r}:00.0")], ..card(Unit::Rank, r, 2, "a", 1) });
        assert_eq!(gpus(&seat(&bound, &GPUS).unwrap()), [0, 0]);
    }

    #[test]
    fn two_ranks_on_one_gpu_or_none_are_named() {
        let bound = [0, 1].map(|r| card(Unit::Rank, r, 2, "a", 1));
        let why = seat(&bound, &GPUS).unwrap_err();
        assert!(why.contains("ranks 0, 1 have the same GPU, 0:00.0") && why.contains("--ranks-per-gpu 2"), "{why}");
        assert!(seat(&bound, &Wanted { per_gpu: 2, ..GPUS }).is_ok());
        let many = [0, 1, 2].map(|r| card(Unit::Rank, r, 3, "a", 2));
        assert!(seat(&many, &GPUS).unwrap_err().starts_with("rank 2 on a has no GPU"));
        let none = [card(Unit::Rank, 0, 2, "a", 1), card(Unit::Rank, 1, 2, "b", 0)];
        assert!(seat(&none, &GPUS).unwrap_err().starts_with("rank 1 on b sees no GPU"));
    }

    #[test]
    fn the_host_backend_stays_on_one_host_unless_it_has_connections() {
        let cards = [card(Unit::Rank, 0, 2, "a", 0), card(Unit::Rank, 1, 2, "b", 0)];
        let why = seat(&cards, &HOST).unwrap_err();
        assert!(why.contains("a (rank 0), b (rank 1)") && why.contains("--host-transport tcp"), "{why}");
        assert_eq!(seat(&cards, &Wanted { memory: false, ..HOST }).map(|seats| seats.len()), Ok(2));
    }
}
