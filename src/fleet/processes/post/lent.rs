//! Workers that agents lend.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::card::Card;
use super::super::errand::{Errand, Task};
use super::super::staff::{self, Staff};
use super::super::{door, squad, wire};
use super::{LOOK, Post, State, Team};
use crate::backend::{Recipe, Unavailable};
use crate::fleet::log::Log;
use crate::trace::Liveness;

/// How long agents may take to say how their workers are.
const TESTIMONY: Duration = Duration::from_secs(3);

/// Workers of agents.
pub struct Lent {
    post: Arc<Post>,
    /// Mapped by workers of this host.
    _channels: OwnedFd,
}

impl Lent {
    /// Lets each agent start its own.
    pub fn start(post: &Arc<Post>, recipe: Recipe, ranks_per_gpu: u32) -> Result<Lent, Unavailable> {
        let channels = staff::channels(&recipe)?;
        let mut state = post.lock();
        let State { agents, seats, teams, team } = &mut *state;
        if let Some(gone) = agents.values().find(|agent| agent.gone) {
            let Card { host, .. } = &gone.card;
            let why = format!("the process of {} on {host} is gone", gone.card.name());
            return Err(Unavailable(why));
        }
        *teams += 1;
        let token = door::token();
        *team = Some(Team {
            number: *teams,
            token: token.clone(),
            here: BTreeMap::new(),
            process: None,
            states: vec![Liveness::Alive; seats.len()],
            logs: vec![None; seats.len()],
            question: 0,
            testified: Vec::new(),
            trouble: None,
        });
        for (index, agent) in agents.iter_mut() {
            let own = (0..).zip(&*seats).filter(|(_, seat)| seat.agent == *index);
            let task = Task {
                team: *teams,
                token: token.clone(),
                ranks: seats.len() as u32,
                own: own.map(|(rank, seat)| (rank, seat.gpu)).collect(),
                ranks_per_gpu,
                recipe: recipe.clone(),
                channels: squad::lent(&channels),
            };
            // who cannot be told is lost, which its reader finds out
            let _ = wire::send(&mut agent.stream, &Errand::Start(Box::new(task)));
        }
        drop(state);
        Ok(Lent { post: post.clone(), _channels: channels })
    }
}

impl Staff for Lent {
    fn admit(&mut self) -> Result<Option<Vec<TcpStream>>, Unavailable> {
        let mut state = self.post.lock();
        let ranks = state.seats.len();
        let Some(team) = &mut state.team else { return Err(Unavailable("the run is over".to_owned())) };
        if let Some(trouble) = &team.trouble {
            return Err(Unavailable(trouble.clone()));
        }
        if team.here.len() < ranks {
            return Ok(None);
        }
        team.here
            .values()
            .map(TcpStream::try_clone)
            .collect::<Result<_, _>>()
            .map(Some)
            .map_err(|e| Unavailable(format!("workers cannot be heard: {e}")))
    }

    fn here(&self) -> Vec<u32> {
        self.post.lock().team.iter().flat_map(|team| team.here.keys().copied()).collect()
    }

    /// Rank 0's: it is a child of this process.
    fn processes(&self) -> Vec<u32> {
        self.post.lock().team.iter().filter_map(|team| team.process).collect()
    }

    /// The one that agents of other hosts have used.
    fn outside(&self) -> Option<IpAddr> {
        let state = self.post.lock();
        let used = state.agents.values().filter_map(|agent| Some(agent.stream.local_addr().ok()?.ip()));
        used.map(|ip| ip.to_canonical()).find(|ip| !ip.is_loopback())
    }

    fn states(&mut self) -> Vec<Liveness> {
        self.post.lock().team.as_ref().map(|team| team.states.clone()).unwrap_or_default()
    }

    /// Agents that do not answer leave those of their ranks out.
    fn logs(&mut self) -> Vec<Option<Log>> {
        let end = Instant::now() + TESTIMONY;
        let mut state = self.post.lock();
        let State { agents, team, .. } = &mut *state;
        if let Some(team) = team {
            team.question += 1;
            team.testified.clear();
            team.logs.iter_mut().for_each(|log| *log = None);
            for agent in agents.values_mut() {
                let _ = wire::send(&mut agent.stream, &Errand::Testify(team.question));
            }
        }
        drop(state);
        loop {
            let state = self.post.lock();
            let Some(team) = &state.team else { return Vec::new() };
            let all = state.agents.iter().all(|(index, agent)| agent.gone || team.testified.contains(index));
            if all || Instant::now() >= end {
                return team.logs.clone();
            }
            drop(state);
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut state = self.post.lock();
        // closes the workers' connections, as far as the crew has let go of them
        state.team = None;
        for agent in state.agents.values_mut() {
            let _ = wire::send(&mut agent.stream, &Errand::Dismiss);
        }
    }
}
