//! The steps that rings, chains and trees are made of: receive, combine, store and send, in any useful combination.
//!
//! Data go from the incoming channel through the arithmetic right into the outgoing one, a piece at a time, so that the
//! next rank works while this one still does.

use super::super::arithmetic::Reduction;
use super::super::channel::{Receiver, Sender};
use super::super::memory::Span;
use super::super::transport::PIECE;
use super::super::wait::Waiter;
use crate::backend::RankError;

/// One message of `len` bytes from `input`, to `output`, or both, in pieces of whole elements of `grain` bytes.
///
/// `work` gets the piece's offset, the bytes that came and the place for those that go; the missing side is empty.
fn pump(
    waiter: &mut Waiter,
    mut input: Option<&mut Receiver>,
    mut output: Option<&mut Sender>,
    len: usize,
    grain: usize,
    mut work: impl FnMut(usize, &[u8], &mut [u8]),
) -> Result<(), RankError> {
    if let Some(receiver) = input.as_mut() {
        receiver.begin();
    }
    if let Some(sender) = output.as_mut() {
        sender.begin();
    }
    let mut done = 0;
    while done < len {
        let wanted = PIECE.min(len - done);
        let came = input.as_mut().map(|receiver| receiver.ready(wanted)).transpose()?;
        let goes = output.as_mut().map(|sender| sender.room(wanted)).transpose()?;
        let can = came.as_ref().map_or(wanted, |b| b.len()).min(goes.as_ref().map_or(wanted, |b| b.len()));
        let piece = can - can % grain;
        if piece == 0 {
            waiter.pause()?;
            continue;
        }
        let came = came.and_then(|b| b.get(..piece)).unwrap_or_default();
        let goes = goes.and_then(|b| b.get_mut(..piece)).unwrap_or_default();
        work(done, came, goes);
        if let Some(receiver) = input.as_mut() {
            receiver.consume(piece);
        }
        if let Some(sender) = output.as_mut() {
            sender.commit(piece);
        }
        waiter.reset();
        done += piece;
    }
    if let Some(sender) = output.as_mut() {
        // from here on the step needs nothing more of this rank, which may turn to other channels
        while !sender.flushed()? {
            waiter.pause()?;
        }
        waiter.reset();
    }
    Ok(())
}

/// A rank's side of one step: how it waits, and how large elements are.
pub(super) struct Step<'w> {
    pub(super) waiter: &'w mut Waiter,
    pub(super) grain: usize,
}

impl Step<'_> {
    /// Sends `own` as it is.
    pub(super) fn send(&mut self, output: &mut Sender, own: Span<'_>) -> Result<(), RankError> {
        pump(self.waiter, None, Some(output), own.len(), self.grain, |at, _, goes| {
            own.part(at, goes.len()).load(goes);
        })
    }

    /// Sends `own` scaled.
    pub(super) fn send_scaled(
        &mut self,
        output: &mut Sender,
        own: Span<'_>,
        reduction: &Reduction,
    ) -> Result<(), RankError> {
        pump(self.waiter, None, Some(output), own.len(), self.grain, |at, _, goes| {
            // SAFETY: the rank's own buffer, to which nothing is written in this statement.
            let own = unsafe { own.part(at, goes.len()).bytes() };
            reduction.scale(goes, own);
        })
    }

    /// Receives into `to`.
    pub(super) fn receive(&mut self, input: &mut Receiver, to: Span<'_>) -> Result<(), RankError> {
        pump(self.waiter, Some(input), None, to.len(), self.grain, |at, came, _| to.part(at, came.len()).store(came))
    }

    /// Receives into `to`, and sends it on.
    pub(super) fn forward(&mut self, input: &mut Receiver, output: &mut Sender, to: Span<'_>) -> Result<(), RankError> {
        pump(self.waiter, Some(input), Some(output), to.len(), self.grain, |at, came, goes| {
            to.part(at, came.len()).store(came);
            goes.copy_from_slice(came);
        })
    }

    /// Receives a partial reduction, adds `own`, and sends it on.
    pub(super) fn reduce_send(
        &mut self,
        input: &mut Receiver,
        output: &mut Sender,
        own: Span<'_>,
        reduction: &Reduction,
    ) -> Result<(), RankError> {
        pump(self.waiter, Some(input), Some(output), own.len(), self.grain, |at, came, goes| {
            // SAFETY: the rank's own buffer, to which nothing is written in this statement.
            let own = unsafe { own.part(at, came.len()).bytes() };
            reduction.combine(goes, own, came);
        })
    }

    /// Receives a partial reduction, adds `own`, and keeps the sum in `to`, which is `own` itself or apart from it.
    pub(super) fn reduce(
        &mut self,
        input: &mut Receiver,
        own: Span<'_>,
        to: Span<'_>,
        reduction: &Reduction,
    ) -> Result<(), RankError> {
        pump(self.waiter, Some(input), None, own.len(), self.grain, |at, came, _| {
            combine_into(reduction, own.part(at, came.len()), to.part(at, came.len()), came);
        })
    }

    /// Receives a partial reduction and adds it to `acc`, which is a partial reduction too, in place or into `output`.
    pub(super) fn accumulate(
        &mut self,
        input: &mut Receiver,
        output: Option<&mut Sender>,
        acc: Span<'_>,
        reduction: &Reduction,
    ) -> Result<(), RankError> {
        pump(self.waiter, Some(input), output, acc.len(), self.grain, |at, came, goes| {
            let acc = acc.part(at, came.len());
            if goes.is_empty() {
                // SAFETY: the rank's own buffer; the other operand lies in a channel.
                reduction.accumulate(unsafe { acc.bytes_mut() }, came);
            } else {
                acc.load(goes);
                reduction.accumulate(goes, came);
            }
        })
    }

    /// Receives the last partial reduction, adds `own`, and keeps the result in `to`; sends it on if there is an `output`.
    pub(super) fn reduce_last(
        &mut self,
        input: &mut Receiver,
        output: Option<&mut Sender>,
        own: Span<'_>,
        to: Span<'_>,
        reduction: &Reduction,
    ) -> Result<(), RankError> {
        pump(self.waiter, Some(input), output, own.len(), self.grain, |at, came, goes| {
            let to = to.part(at, came.len());
            combine_into(reduction, own.part(at, came.len()), to, came);
            finish(reduction, to);
            to.load(goes);
        })
    }
}

/// `to = scaled(own) op came`, where `to` is `own` itself or apart from it.
fn combine_into(reduction: &Reduction, own: Span<'_>, to: Span<'_>, came: &[u8]) {
    if to.starts_with(&own) {
        // SAFETY: one of the rank's own buffers; the other operand lies in a channel.
        let acc = unsafe { to.bytes_mut() };
        reduction.scale_in_place(acc);
        reduction.accumulate(acc, came);
    } else {
        // SAFETY: two parts of the rank's own buffers that lie apart; the third operand lies in a channel.
        let (own, to) = unsafe { (own.bytes(), to.bytes_mut()) };
        reduction.combine(to, own, came);
    }
}

/// Turns the reduction of all ranks in `to` into the result.
pub(super) fn finish(reduction: &Reduction, to: Span<'_>) {
    // SAFETY: the rank's own buffer, and the only reference to it in this statement.
    reduction.finish(unsafe { to.bytes_mut() });
}

/// The result of a reduction over one rank only.
pub(super) fn reduce_alone(reduction: &Reduction, own: Span<'_>, to: Span<'_>) {
    to.copy_from(&own);
    // SAFETY: the rank's own buffer, and the only reference to it in this statement.
    reduction.scale_in_place(unsafe { to.bytes_mut() });
    finish(reduction, to);
}
