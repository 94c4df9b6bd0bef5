//! One placement of one case on one station, and the steps that all ways of launching it share.

use super::found::Found;
use super::occasion::{Launch, Occasion};
use super::part::{self, Inputs, Part};
use super::protocol::{Request, Tamper};
use super::staging::{Piece, What};
use super::worker::Meeting;
use crate::backend::{Content, Placement, RankError, Station, Verdict};
use crate::case::Variant;
use crate::oracle::fingerprint;

/// One placement of one case on one station.
pub struct Pass<'a> {
    /// The ranks.
    pub station: &'a mut dyn Station,
    meeting: &'a dyn Meeting,
    /// What is asked for.
    pub request: &'a Request,
    /// Which placement.
    pub placement: Placement,
    /// The calls of a launch.
    pub parts: Vec<Part>,
}

impl<'a> Pass<'a> {
    /// The pass; `None` where the primitive has no such placement.
    pub fn new(
        station: &'a mut dyn Station,
        meeting: &'a dyn Meeting,
        request: &'a Request,
        placement: Placement,
    ) -> Option<Pass<'a>> {
        let parts = part::parts(&request.case, request.ranks, station.ranks(), placement)?;
        Some(Pass { station, meeting, request, placement, parts })
    }

    /// Whether the case has the variant.
    pub fn has(&self, variant: Variant) -> bool {
        self.request.case.variants.contains(&variant)
    }

    /// Ranks held.
    pub fn lanes(&self) -> usize {
        self.station.ranks().len()
    }

    /// Inputs that no other launch of the run has. Launches count from 0 in each placement.
    pub fn inputs(&self, launch: u32) -> Inputs {
        let epoch = u64::from(launch) * self.parts.len() as u64;
        Inputs::new(&self.parts, self.request.seed, self.request.first_epoch(self.placement) + epoch)
    }

    /// Makes the buffers.
    pub fn prepare(&mut self) -> Result<(), RankError> {
        self.station.prepare(&part::need(&self.parts))
    }

    /// Queues poison where the output will be.
    pub fn poison(&mut self, inputs: &Inputs) -> Result<(), RankError> {
        if self.request.check {
            for (part, oracle) in inputs.of(&self.parts) {
                for (lane, staging) in part.stagings.iter().enumerate() {
                    for piece in &staging.poison {
                        self.station.poison(lane, &oracle.region(part, piece))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Queues the producers of what the collective reads; with `early`, such that what follows may begin before they end.
    pub fn produce(&mut self, inputs: &Inputs, early: bool) -> Result<(), RankError> {
        if !self.request.check {
            return Ok(());
        }
        // data last, so that the collective follows the kernel that it depends on
        for data in [false, true] {
            for (part, oracle) in inputs.of(&self.parts) {
                for (lane, staging) in part.stagings.iter().enumerate() {
                    let pieces = staging.before.iter().filter(|piece| matches!(piece.what, What::Data(_)) == data);
                    for piece in pieces {
                        let region = oracle.region(part, piece);
                        if early && data {
                            self.station.fill_early(lane, &region)?;
                        } else {
                            self.station.fill(lane, &region)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits, and checks that the inputs are what was written, lane by lane; `None` where there is nothing to check.
    pub fn inspect(&mut self, inputs: &Inputs) -> Result<Vec<Option<Verdict>>, RankError> {
        let mut all: Vec<Option<Verdict>> = vec![None; self.lanes()];
        if !self.request.check {
            return Ok(all);
        }
        for (part, oracle) in inputs.of(&self.parts) {
            for (lane, (so_far, staging)) in all.iter_mut().zip(&part.stagings).enumerate() {
                let data: Vec<&Piece> = staging.before.iter().filter(|p| matches!(p.what, What::Data(_))).collect();
                if data.is_empty() || so_far.as_ref().is_some_and(|verdict| verdict.wrong > 0) {
                    continue;
                }
                data.iter().try_for_each(|piece| self.station.check(lane, &oracle.region(part, piece)))?;
                *so_far = Some(self.station.verdict(lane, part.case.dtype)?);
            }
        }
        Ok(all)
    }

    /// Queues the collectives of one launch.
    pub fn launch(&mut self, inputs: &Inputs) -> Result<(), RankError> {
        self.station.launch(&part::launch(&self.parts, inputs, self.placement))
    }

    /// Records what `queue` queues, in place of carrying it out.
    pub fn capture(&mut self, queue: impl FnOnce(&mut Self) -> Result<(), RankError>) -> Result<(), RankError> {
        self.station.begin_capture()?;
        let queued = queue(self);
        // a recording that is left open would swallow all that follows
        let ended = self.station.end_capture();
        queued.and(ended)
    }

    /// Waits, and checks what a launch with these inputs leaves behind: outputs, survivors and guard zones of all lanes.
    pub fn collect(&mut self, inputs: &Inputs, launch: &Launch) -> Result<Vec<Found>, RankError> {
        let calls = self.parts.len() as u32;
        let mut all: Vec<Option<Found>> = vec![None; self.lanes()];
        for ((part, oracle), number) in inputs.of(&self.parts).zip(1u32..) {
            let occasion = Occasion {
                launch: launch.clone(),
                call: (calls > 1).then_some((number, calls)),
                dtype: part.case.dtype,
                epoch: Some(oracle.epoch),
            };
            for (lane, (so_far, staging)) in all.iter_mut().zip(&part.stagings).enumerate() {
                let mut found = Found::nothing(occasion.clone());
                if self.request.check {
                    let mut check = |pieces: &[Piece]| {
                        if pieces.is_empty() {
                            return Ok(None);
                        }
                        pieces.iter().try_for_each(|p| self.station.check(lane, &oracle.region(part, p)))?;
                        self.station.verdict(lane, part.case.dtype).map(Some)
                    };
                    found.output = check(&staging.output)?;
                    found.input = check(&staging.survives)?;
                }
                *so_far = Some(match so_far.take() {
                    Some(earlier) => earlier.then(found),
                    None => found,
                });
            }
        }
        let mut all: Vec<Found> = all.into_iter().flatten().collect();
        if self.request.check {
            for (lane, found) in all.iter_mut().enumerate() {
                found.add_guard(self.station.guards(lane)?);
            }
        }
        Ok(all)
    }

    /// Waits, and takes the fingerprints of outputs that are not known bit for bit, lane by lane.
    pub fn fingerprints(&mut self, inputs: &Inputs) -> Result<Vec<Option<u64>>, RankError> {
        let mut all = vec![None; self.lanes()];
        if !self.request.check {
            return Ok(all);
        }
        for (part, oracle) in inputs.of(&self.parts).filter(|(_, oracle)| !oracle.data.is_exact()) {
            for (lane, (so_far, staging)) in all.iter_mut().zip(&part.stagings).enumerate() {
                for piece in staging.output.iter().filter(|p| matches!(p.what, What::Data(Content::Reduced { .. }))) {
                    let print = self.station.fingerprint(lane, &oracle.region(part, piece))?;
                    *so_far = Some(fingerprint::join(so_far.unwrap_or(0), print));
                }
            }
        }
        Ok(all)
    }

    /// Does the damage that the request asks for, to the first part.
    pub fn tamper(&mut self) -> Result<(), RankError> {
        let Some(Tamper { rank, index, bit }) = self.request.tamper else { return Ok(()) };
        let Some(lane) = self.station.ranks().iter().position(|&r| r == rank) else { return Ok(()) };
        let Some(part) = self.parts.first() else { return Ok(()) };
        let Some(staging) = part.stagings.get(lane).filter(|s| s.outputs() > 0) else { return Ok(()) };
        let dtype = part.case.dtype;
        let mut left = index % staging.outputs();
        for piece in &staging.output {
            if left < piece.len {
                let xor = 1u64 << (u64::from(bit) % (8 * dtype.size()));
                return self.station.tamper(lane, piece.buffer, dtype, piece.start + left, xor);
            }
            left -= piece.len;
        }
        Ok(())
    }

    /// Whether one who goes ahead into this placement could fail there, or wait, while others are still in the one before: where
    /// larger buffers are made for it, or ranks register theirs together.
    pub fn is_entered_together(&self) -> bool {
        let registration = part::need(&self.parts).registration;
        self.placement == Placement::InPlace && (registration.is_collective() || part::grows_in_place(&self.parts))
    }

    /// Goes on only if all workers do, so that none waits for one that has given up.
    pub fn agree<T>(&self, mine: Result<T, RankError>) -> Result<T, RankError> {
        let all = self.meeting.all_well(mine.is_ok());
        let mine = mine?;
        if all { Ok(mine) } else { Err(RankError::Aborted) }
    }
}
