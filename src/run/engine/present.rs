//! The present team: made when a case asks for another communicator, ended, and what follows where it cannot be ended.

use super::Session;
use crate::backend::Making;
use crate::case::Case;
use crate::fleet::deadline;
use crate::fleet::inquest::Witness;
use crate::fleet::processes::Crew;
use crate::fleet::team::{NoTeam, Team, Workers};
use crate::run::plan::LayoutChoice;
use crate::run::result::CaseResult;

/// Told with the case that has left threads behind.
const STUCK: &str = "\nrecovery: threads are stuck in the library and cannot be killed. Each rank of the cases that follow is a process of \
                     its own, beside what this process still holds of the GPUs";

impl Session {
    /// The ranks' logs, as long as their team is there.
    pub(super) fn witnesses(&mut self) -> Vec<Witness> {
        self.team.as_mut().map(|(_, team)| team.witnesses()).unwrap_or_default()
    }

    /// A team whose communicator is made so.
    pub(super) fn assure_team(&mut self, making: &Making) -> Result<(), NoTeam> {
        if self.team.as_ref().is_some_and(|(made, _)| made == making) {
            return Ok(());
        }
        self.dismiss(); // its memory is needed
        let alike: Vec<Case> = self.plan.cases.iter().filter(|c| Making::of(c) == *making).cloned().collect();
        let limit = deadline::making(self.environment.ranks);
        let team: Box<dyn Workers> = match self.layout() {
            LayoutChoice::Threads => Box::new(Team::start(&self.backend, alike, making, limit, &self.interrupt)?),
            LayoutChoice::Processes => Box::new(Crew::start(&self.backend, alike, making, limit, &self.interrupt)?),
        };
        self.paths.follow(&team.processes());
        self.team = Some((*making, team));
        (self.fresh, self.harmed, self.late) = (true, false, 0);
        Ok(())
    }

    /// Ends the team, so that the next case gets another. Threads that a deliberate fault holds up are not the library's.
    pub(super) fn dismiss(&mut self) {
        if let Some((making, team)) = self.team.take()
            && !team.dismiss()
            && !self.harmed
        {
            self.forsake(&making);
        }
    }

    /// The same, after a case that has made the team useless: if threads stay behind, it says so.
    pub(super) fn replace(&mut self, result: &mut CaseResult) {
        let before = self.stuck;
        self.dismiss();
        if self.stuck && !before {
            result.message.push_str(STUCK);
        }
    }

    /// Has ranks be processes from now on, if they can be, as those can be killed: what else is done in a process whose library is
    /// stuck may never end. What was seen of threads says nothing of them.
    pub(super) fn forsake(&mut self, making: &Making) {
        if self.layout() == LayoutChoice::Threads && self.backend.recipe(making).is_ok() {
            self.stuck = true;
            self.seen = deadline::Seen::default();
        }
    }

    /// What ranks are.
    pub(super) fn layout(&self) -> LayoutChoice {
        if self.stuck { LayoutChoice::Processes } else { self.plan.layout }
    }
}
