//! A backend whose ranks are started by agents.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::Post;
use super::card::{self, Card, Seat};
use crate::backend::{Backend, Environment, Making, Opening, Recipe, Station, Unavailable};
use crate::case::Case;

/// What rank 0's process knows of the backend, and where all ranks are.
pub struct Launched {
    here: Arc<dyn Backend>,
    post: Arc<Post>,
    /// Ranks are on several hosts, as far as their network is concerned.
    apart: bool,
    environment: Environment,
}

impl Launched {
    /// `here` is the backend as rank 0's process sees it.
    pub fn new(here: Arc<dyn Backend>, post: Arc<Post>, cards: &[Card], seats: &[Seat]) -> Launched {
        let mut machines: Vec<&str> = cards.iter().map(|card| card.machine.as_str()).collect();
        machines.sort_unstable();
        machines.dedup();
        let own = here.environment();
        let device = |(rank, seat): (u32, &Seat)| {
            let card = cards.iter().find(|card| card.index == seat.agent);
            let host = card.map(|card| card.host.as_str()).unwrap_or_default();
            match card.and_then(|card| card.gpus.get(seat.gpu as usize)).filter(|_| own.backend == "nccl") {
                Some(bus) => format!("{} {bus} on {host}", seat.gpu),
                None => format!("rank {rank} on {host}"),
            }
        };
        let environment = Environment {
            ranks: seats.len() as u32,
            nodes: machines.len() as u32,
            devices: (0..).zip(seats).map(device).collect(),
            ..own.clone()
        };
        Launched { here, post, apart: card::on_several_networks(cards), environment }
    }
}

impl Backend for Launched {
    fn environment(&self) -> Environment {
        self.environment.clone()
    }

    fn memory_per_rank(&self) -> Option<u64> {
        self.here.memory_per_rank()
    }

    fn open(&self, _cases: &[Case], _making: &Making) -> Result<Vec<Box<dyn Station>>, Opening> {
        Err(Unavailable("ranks that a launcher has started are no threads of this process".to_owned()).into())
    }

    fn recipe(&self, making: &Making) -> Result<Recipe, Opening> {
        if making.permuted {
            let why = "permuted devices: under a launcher each rank has the GPU that it was started with";
            return Err(Opening::Unsupported(why.to_owned()));
        }
        Ok(match self.here.recipe(making)? {
            // each on its own host: the coordinator sees which that is
            Recipe::HostTcp { .. } if self.apart => Recipe::HostTcp { ip: Ipv4Addr::UNSPECIFIED.into() },
            recipe => recipe,
        })
    }

    fn agents(&self) -> Option<Arc<Post>> {
        Some(self.post.clone())
    }
}
