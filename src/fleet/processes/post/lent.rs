//! Workers that agents lend.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::card::{Card, Seat};
use super::super::errand::{Errand, Task};
use super::super::silence::{SETTLING, SILENCE};
use super::super::staff::{self, Staff};
use super::super::wire::{self, ToAll};
use super::super::{door, hall, squad};
use super::cut_off::cut_off;
use super::{Agent, LOOK, Post, State, Team};
use crate::backend::{Recipe, Unavailable};
use crate::fleet::log::Log;
use crate::trace::Liveness;

/// How long agents may take to say how their workers are: longer than until it is known that their host does not answer.
const TESTIMONY: Duration = Duration::from_secs(2).saturating_add(SILENCE).saturating_add(SETTLING);

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
        let State { agents, seats, teams, team, .. } = &mut *state;
        if let Some(why) = cut_off(agents, seats) {
            return Err(Unavailable(why));
        }
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
            silent: false,
            logs: vec![None; seats.len()],
            question: 0,
            testified: Vec::new(),
            trouble: None,
        });
        let mut own: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for (rank, seat) in (0..).zip(&*seats) {
            own.entry(seat.agent).or_default().push((rank, seat.gpu));
        }
        let workers = |index: &u32| own.get(index).map_or(0, |own| own.len() as u32);
        let spots: Vec<_> = agents.iter().map(|(index, agent)| (&agent.card, workers(index))).collect();
        let spots = hall::spots(&spots);
        for ((index, agent), gate) in agents.iter_mut().zip(spots) {
            let task = Task {
                team: *teams,
                token: token.clone(),
                ranks: seats.len() as u32,
                own: own.remove(index).unwrap_or_default(),
                ranks_per_gpu,
                recipe: recipe.clone(),
                channels: squad::lent(&channels),
                gate,
            };
            agent.ask(&Errand::Start(Box::new(task)));
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
        Ok(team.here.values_mut().map(Option::take).collect())
    }

    fn tell(&mut self, what: ToAll) {
        let mut state = self.post.lock();
        let State { agents, team: Some(team), .. } = &mut *state else { return };
        // as for one's own
        if let Ok(frame) = wire::frame(&Errand::Tell { team: team.number, what }) {
            agents.values_mut().for_each(|agent| agent.tell(&frame));
        }
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

    fn hosts(&self) -> Vec<String> {
        let state = self.post.lock();
        let host = |seat: &Seat| state.agents.get(&seat.agent).map(|agent| agent.card.host.clone()).unwrap_or_default();
        let hosts: Vec<String> = state.seats.iter().map(host).collect();
        let several = hosts.iter().any(|host| Some(host) != hosts.first());
        if several { hosts } else { Vec::new() }
    }

    fn silent(&self) -> bool {
        self.post.lock().team.as_ref().is_some_and(|team| team.silent)
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
                agent.ask(&Errand::Testify(team.question));
            }
        }
        drop(state);
        loop {
            let state = self.post.lock();
            let Some(team) = &state.team else { return Vec::new() };
            let settled = state.settling.is_none();
            let heard =
                |index, agent: &Agent| team.testified.contains(index) || (agent.gone && (settled || !agent.silent));
            let all = state.agents.iter().all(|(index, agent)| heard(index, agent));
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
        for agent in state.agents.values_mut().filter(|agent| !agent.gone) {
            agent.ask(&Errand::Dismiss);
        }
    }
}
