//! One launch captured as a graph, and replayed with other data in the same buffers.
//!
//! The graph holds the collective only: producers run outside it, and each replay follows its producers without a wait in
//! between. Scalars of mulsum are captured with the call; they are the same in every epoch.

use super::super::found;
use super::super::occasion::Launch;
use super::super::part::Inputs;
use super::super::pass::Pass;
use super::super::timing::Trigger;
use super::Drilled;
use crate::backend::RankError;

/// Replays with data of their own.
const REPLAYS: u32 = 4;

/// Captures and replays.
pub fn drill(pass: &mut Pass<'_>) -> Result<Drilled, RankError> {
    let mut inputs = pass.inputs(0);
    let captured = pass.capture(|pass| pass.launch(&inputs));
    pass.agree(captured)?;
    let mut all = Vec::new();
    for number in 1..=REPLAYS {
        inputs = pass.inputs(number);
        let queued = queue(pass, &inputs);
        pass.agree(queued)?;
        let waited = pass.station.wait();
        pass.agree(waited)?;
        let damaged = if number == REPLAYS { pass.tamper() } else { Ok(()) };
        let checked = damaged.and_then(|()| pass.collect(&inputs, &Launch::Replay { number, of: REPLAYS }));
        let found = pass.agree(checked)?;
        all = if number == 1 { found } else { found::then(all, found) };
    }
    Ok(Drilled { inputs, found: all, trigger: Trigger::Replay })
}

/// Producers and a replay, without a wait in between.
fn queue(pass: &mut Pass<'_>, inputs: &Inputs) -> Result<(), RankError> {
    pass.poison(inputs)?;
    pass.produce(inputs, false)?;
    pass.station.replay()
}
