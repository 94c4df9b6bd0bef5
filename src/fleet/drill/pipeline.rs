//! Many rounds with new data, queued back to back: poison, producer, collective, check, and on to the next.
//!
//! The host waits for nothing before the last round is queued. So a collective that starts before its producer has ended,
//! ends before its output is written, or takes its peers' data of the round before is seen; waiting in between would hide
//! all of these. Checks add up on the device and are read once; [`super::attribution`] tells the rounds apart.
//!
//! Each round poisons its output after the check of the round before, in stream order, and its producer comes last, so
//! that nothing stands between it and the collective. On top of that:
//!
//! * `uneven`: some ranks' producers start late, others in each round;
//! * `early`: the collective may be started before its producer has ended (it must wait by itself);
//! * `overwrite`: the output is filled with noise right after its check, and the noise is checked a little later: a
//!   collective that says that it has ended must not write any more, nor let its peers write;
//! * `graph`: all rounds are captured together, with their data, and replayed back to back. Replays repeat the data; a
//!   replay that does nothing is seen all the same, by the poison.

use super::super::found::{self, Found};
use super::super::occasion::{Launch, Occasion};
use super::super::part::{Inputs, Oracle, Part};
use super::super::pass::Pass;
use super::super::staging::{Piece, What};
use super::super::timing::Trigger;
use super::{Drilled, attribution};
use crate::backend::{RankError, Station, Verdict};
use crate::case::Variant;

/// Replays of the graph of a pipeline.
const REPLAYS: u32 = 3;

/// Kernels that a stream takes before the host has to wait for it: less than CUDA's, which is about 1000.
const QUEUE: u32 = 768;

/// How long overwritten output is left alone before it is checked.
const LINGER_US: u32 = 50;

/// Queues all rounds, once or as replays of a graph, and reads what their checks found.
pub fn drill(pass: &mut Pass<'_>) -> Result<Drilled, RankError> {
    let chain = Chain::new(pass);
    if chain.replays > 0 {
        let captured = pass.capture(|pass| chain.queue(pass));
        pass.agree(captured)?;
        let replayed = (0..chain.replays).try_for_each(|_| pass.station.replay());
        pass.agree(replayed)?;
    } else {
        let queued = chain.queue(pass);
        pass.agree(queued)?;
    }
    let waited = pass.station.wait();
    pass.agree(waited)?;
    let judged = chain.judge(pass);
    let found = pass.agree(judged)?;
    chain.end(pass, found)
}

/// The rounds.
struct Chain {
    /// Their inputs.
    rounds: Vec<Inputs>,
    /// How often the graph that holds them is replayed; 0 without a graph.
    replays: u32,
    overwrite: bool,
}

impl Chain {
    fn new(pass: &Pass<'_>) -> Chain {
        let count = rounds(pass.request.case.size.0, pass.request.ranks);
        Chain {
            rounds: (1..=count).map(|launch| pass.inputs(launch)).collect(),
            replays: if pass.has(Variant::Graph) { REPLAYS } else { 0 },
            overwrite: pass.has(Variant::Overwrite),
        }
    }

    fn count(&self) -> u32 {
        self.rounds.len() as u32
    }

    fn queue(&self, pass: &mut Pass<'_>) -> Result<(), RankError> {
        let (uneven, early) = (pass.has(Variant::Uneven), pass.has(Variant::Early));
        let mut previous: Option<&Inputs> = None;
        for (inputs, round) in self.rounds.iter().zip(0..) {
            if let Some(previous) = previous.filter(|_| self.overwrite) {
                overwrite(pass, previous)?;
            }
            pass.poison(inputs)?;
            if uneven {
                delay(pass, round)?;
            }
            pass.produce(inputs, early)?;
            pass.launch(inputs)?;
            if round == self.count() / 2 && self.replays == 0 {
                pass.tamper()?;
            }
            each_output(pass, inputs, |station, lane, part, oracle, piece| {
                station.check(lane, &oracle.region(part, piece))
            })?;
            previous = Some(inputs);
        }
        Ok(())
    }

    /// Reads what the checks of all rounds found on each lane.
    fn judge(&self, pass: &mut Pass<'_>) -> Result<Vec<Found>, RankError> {
        let Some(part) = pass.parts.first() else { return Ok(Vec::new()) };
        let dtype = part.case.dtype;
        let mut all = Vec::new();
        for (lane, staging) in part.stagings.iter().enumerate() {
            let verdict = pass.station.verdict(lane, dtype)?;
            let of = self.count();
            let launch = Launch::Rounds { numbers: Vec::new(), of, replays: self.replays };
            let occasion = Occasion { launch, call: None, dtype, epoch: None };
            all.push(if staging.output.is_empty() {
                Found::nothing(occasion)
            } else if verdict.wrong == 0 {
                Found { output: Some(verdict), ..Found::nothing(occasion) }
            } else {
                self.attribute(part, &staging.output, verdict, occasion)
            });
        }
        Ok(all)
    }

    /// Names the rounds, and leaves in the verdict the samples of the first of them.
    fn attribute(&self, part: &Part, output: &[Piece], mut verdict: Verdict, mut occasion: Occasion) -> Found {
        // in the order in which they ran: the output of a round, then what it was overwritten with
        let expected = |check: usize, index: u64| {
            let (_, oracle) = self.rounds.get(check / 2)?.of(std::slice::from_ref(part)).next()?;
            let piece = |piece: &Piece| if check.is_multiple_of(2) { *piece } else { noise(piece) };
            output.iter().find_map(|p| oracle.expected(&piece(p), index))
        };
        let checks = attribution::checks(&verdict.samples, 2 * self.rounds.len(), expected);
        if let Some(&first) = checks.first() {
            verdict.samples.retain(|wrong| expected(first, wrong.index) == Some(wrong.expected));
            verdict.first = verdict.samples.iter().min_by_key(|wrong| wrong.index).copied();
            let number = |check: &usize| 1 + *check as u32 / 2;
            if first.is_multiple_of(2) {
                let outputs = checks.iter().filter(|check| check.is_multiple_of(2));
                if let Launch::Rounds { numbers, .. } = &mut occasion.launch {
                    *numbers = outputs.map(number).collect();
                }
                let inputs = self.rounds.get(first / 2);
                occasion.epoch = inputs.and_then(|i| i.of(std::slice::from_ref(part)).next()).map(|(_, o)| o.epoch);
            } else {
                occasion.launch = Launch::Overwritten { round: number(&first), of: self.count() };
            }
        }
        Found { output: Some(verdict), ..Found::nothing(occasion) }
    }

    /// What is left when all is over: the last round's output once more, survivors and guard zones.
    fn end(mut self, pass: &mut Pass<'_>, found: Vec<Found>) -> Result<Drilled, RankError> {
        let launch = Launch::Rounds { numbers: Vec::new(), of: self.count(), replays: self.replays };
        let inputs = self.rounds.pop().unwrap_or_else(|| pass.inputs(0));
        // a graph cannot hold the damage that is asked for, so that it is done here
        let damaged = if self.replays > 0 { pass.tamper() } else { Ok(()) };
        let left = damaged.and_then(|()| pass.collect(&inputs, &launch));
        let left = pass.agree(left)?;
        Ok(Drilled { inputs, found: found::then(found, left), trigger: Trigger::Calls })
    }
}

/// How many rounds: the more the smaller they are, and no more than a stream takes without making the host wait.
fn rounds(bytes: u64, ranks: u32) -> u32 {
    let wanted = match bytes {
        ..=0x1_0000 => 32,
        ..=0x10_0000 => 16,
        _ => 8,
    };
    // at worst one kernel to poison and one to check each rank's block
    let kernels = ranks.saturating_mul(2).saturating_add(8);
    wanted.min(QUEUE / kernels).max(4)
}

/// Noise in place of the piece's data.
fn noise(piece: &Piece) -> Piece {
    Piece { what: What::Filler, ..*piece }
}

/// Queues noise over a round's output, and some time later a check of it.
fn overwrite(pass: &mut Pass<'_>, inputs: &Inputs) -> Result<(), RankError> {
    each_output(pass, inputs, |station, lane, part, oracle, piece| {
        station.fill(lane, &oracle.region(part, &noise(piece)))
    })?;
    for lane in 0..pass.lanes() {
        pass.station.delay(lane, LINGER_US)?;
    }
    each_output(pass, inputs, |station, lane, part, oracle, piece| {
        station.check(lane, &oracle.region(part, &noise(piece)))
    })
}

/// Queues something for each piece of output on each lane.
fn each_output(
    pass: &mut Pass<'_>,
    inputs: &Inputs,
    mut queue: impl FnMut(&mut dyn Station, usize, &Part, &Oracle, &Piece) -> Result<(), RankError>,
) -> Result<(), RankError> {
    for (part, oracle) in inputs.of(&pass.parts) {
        for (lane, staging) in part.stagings.iter().enumerate() {
            for piece in &staging.output {
                queue(&mut *pass.station, lane, part, oracle, piece)?;
            }
        }
    }
    Ok(())
}

/// Makes some ranks late.
fn delay(pass: &mut Pass<'_>, round: u32) -> Result<(), RankError> {
    for lane in 0..pass.lanes() {
        let rank = pass.station.ranks().get(lane).copied().unwrap_or(0);
        let us = lag_us(rank, round);
        if us > 0 {
            pass.station.delay(lane, us)?;
        }
    }
    Ok(())
}

/// How late: neighbours differ, and each rank goes through all lags.
fn lag_us(rank: u32, round: u32) -> u32 {
    match (u64::from(rank) + 2 * u64::from(round)) % 5 {
        0 | 1 => 0,
        2 => 30,
        3 => 100,
        _ => 250,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cases_have_more_rounds_and_no_case_fills_a_stream() {
        assert_eq!((rounds(8, 4), rounds(1 << 20, 4), rounds(1 << 30, 4)), (32, 16, 8));
        assert_eq!(rounds(8, 64), 5);
        assert_eq!(rounds(8, u32::MAX), 4);
    }

    #[test]
    fn in_every_round_some_ranks_are_late_and_neighbours_not_alike() {
        for round in 0..10 {
            let lags: Vec<u32> = (0..5).map(|rank| lag_us(rank, round)).collect();
            assert!(lags.contains(&0) && lags.contains(&250), "{lags:?}");
        }
        for rank in 0..5 {
            assert!((0..5).any(|round| lag_us(rank, round) == 250));
        }
    }
}
