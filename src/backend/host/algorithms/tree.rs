//! all_reduce over a binary tree: reduced on the way up to rank 0, spread on the way down.
//!
//! All of the message goes up before any comes down, so no rank waits for its parent while its children wait for it.

use super::super::transport::{Branch, Links};
use super::Collective;
use super::step::{Step, finish, reduce_alone};
use crate::backend::RankError;

/// Bytes that go up or down at a time.
const CHUNK: usize = 64 << 10;

pub(super) fn all_reduce(links: &mut Links, call: &Collective<'_>) -> Result<(), RankError> {
    let reduction = call.reduction()?;
    let message = call.message();
    let (send, recv) = (call.send.part(0, message), call.recv.part(0, message));
    let Links { waiter, parent, children, .. } = links;
    let mut step = Step { waiter, grain: call.grain() };
    let chunks = || (0..message).step_by(CHUNK);

    for at in chunks() {
        let (own, to) = (send.part(at, CHUNK), recv.part(at, CHUNK));
        let output = parent.as_mut().map(|parent| &mut parent.output);
        match (&mut children[..], output) {
            ([], None) => reduce_alone(reduction, own, to),
            ([], Some(output)) => step.send_scaled(output, own, reduction)?,
            ([only], Some(output)) => step.reduce_send(&mut only.input, output, own, reduction)?,
            ([only], None) => step.reduce_last(&mut only.input, None, own, to, reduction)?,
            ([first, rest @ ..], mut output) => {
                step.reduce(&mut first.input, own, to, reduction)?;
                let last = rest.len() - 1;
                for (k, child) in rest.iter_mut().enumerate() {
                    let output = if k == last { output.take() } else { None };
                    step.accumulate(&mut child.input, output, to, reduction)?;
                }
                if parent.is_none() {
                    finish(reduction, to);
                }
            }
        }
    }

    for at in chunks() {
        let to = recv.part(at, CHUNK);
        let mut outputs = children.iter_mut().map(|child| &mut child.output);
        if let Some(Branch { input, .. }) = parent {
            match outputs.next() {
                Some(output) => step.forward(input, output, to)?,
                None => step.receive(input, to)?,
            }
        }
        for output in outputs {
            step.send(output, to)?;
        }
    }
    Ok(())
}
