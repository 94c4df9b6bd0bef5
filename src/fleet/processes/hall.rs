//! Where a gate stands: memory without a name that all workers around it share, whoever has started them.
//!
//! Each agent makes one for the whole run and says where it is. Of agents whose workers see each other's memory, those of the
//! first are used. A path leads there through `/proc`, and may lead elsewhere where that shows other processes: a number in the
//! memory tells. Who cannot get there says so, and nobody meets at any gate then.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::card::Card;
use super::squad;

/// Bytes that all who meet there have mapped, behind which each has a slot.
pub const BYTES: u64 = 4096;

/// Where its number is.
pub const KEY: usize = 32;

/// Memory for a gate, which lasts as long as anybody has it open.
pub struct Hall {
    memory: OwnedFd,
    key: u64,
}

/// How to get there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The memory.
    pub path: PathBuf,
    /// Its number.
    pub key: u64,
}

/// A worker's place there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// Where.
    pub site: Site,
    /// Workers that meet there.
    pub size: u32,
    /// Which of the slots is its own.
    pub slot: u32,
}

impl Hall {
    /// One more.
    pub fn new() -> io::Result<Hall> {
        let (memory, key) = (File::from(squad::shared("gate", BYTES)?), rand::random());
        memory.write_all_at(&u64::to_ne_bytes(key), KEY as u64)?;
        Ok(Hall { memory: memory.into(), key })
    }

    /// For processes that another one has started.
    pub fn site(&self) -> Site {
        Site { path: squad::lent(&self.memory), key: self.key }
    }

    /// For processes that this one starts.
    pub fn inherited(&self) -> Site {
        Site { path: squad::inherited(&self.memory), key: self.key }
    }
}

impl Site {
    /// Its memory, if it is there.
    pub fn open(&self) -> Option<File> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path).ok()?;
        let mut key = [0; 8];
        file.read_exact_at(&mut key, KEY as u64).ok()?;
        (u64::from_ne_bytes(key) == self.key).then_some(file)
    }
}

/// The first place of each agent's workers, whose numbers are given beside the agents' cards.
pub fn spots(agents: &[(&Card, u32)]) -> Vec<Option<Spot>> {
    let mut halls: BTreeMap<&str, (Option<&Site>, u32)> = BTreeMap::new();
    let mut slots = Vec::new();
    for (card, workers) in agents {
        let (_, size) = halls.entry(&card.memory).or_insert((card.gate.as_ref(), 0));
        slots.push(*size);
        *size = size.saturating_add(*workers);
    }
    let spot = |((card, _), slot): (&(&Card, u32), u32)| {
        let (site, size) = halls.get(card.memory.as_str())?;
        Some(Spot { site: (*site)?.clone(), size: *size, slot })
    };
    agents.iter().zip(slots).map(spot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::launcher::Unit;

    fn card(index: u32, memory: &str, gate: Option<Site>) -> Card {
        let text = |text: &str| text.to_owned();
        Card {
            unit: Unit::Node,
            index,
            of: 4,
            local_rank: None,
            workers: None,
            host: text("host"),
            machine: text("machine"),
            memory: text(memory),
            network: text("network"),
            gate,
            gpus: Vec::new(),
        }
    }

    #[test]
    fn agents_of_one_memory_share_the_gate_of_the_first_and_have_slots_of_their_own() {
        let site = |key| Site { path: format!("/proc/{key}/fd/3").into(), key };
        let cards =
            [card(0, "a", Some(site(10))), card(1, "b", None), card(2, "a", Some(site(12))), card(3, "b", None)];
        let agents: Vec<(&Card, u32)> = cards.iter().zip([2, 1, 3, 1]).collect();
        let spot = |slot| Some(Spot { site: site(10), size: 5, slot });
        assert_eq!(spots(&agents), [spot(0), None, spot(2), None]);
    }

    #[test]
    fn who_finds_other_memory_than_was_meant_or_none_is_not_there() {
        let (hall, other) = (Hall::new().unwrap(), Hall::new().unwrap());
        assert!(hall.site().open().is_some() && hall.inherited().open().is_some());
        let elsewhere = Site { path: other.site().path, ..hall.site() };
        let empty = tempfile::NamedTempFile::new().unwrap();
        for path in [elsewhere.path, "/proc/self/fd/987654".into(), empty.path().into()] {
            assert!(Site { path, ..hall.site() }.open().is_none());
        }
    }

    #[test]
    fn the_memory_is_there_as_long_as_one_has_it_and_has_no_name() {
        let hall = Hall::new().unwrap();
        let site = hall.site();
        let held = site.open().unwrap();
        drop(hall);
        assert!(site.open().is_none());
        assert_eq!(held.metadata().unwrap().len(), BYTES);
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&held.metadata().unwrap()), 0);
    }
}
