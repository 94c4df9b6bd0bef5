//! Where ranks come together to make one more communicator of the same ranks.
//!
//! Each rank puts up how many ranks it asks for, and waits until as many of the first ranks ask for the same. Nobody is in
//! charge, and nobody compares: a rank that asks for another number waits for ranks that there are not, or are not
//! agreed, and the others wait for it, as at NCCL's bootstrap.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::MAX_RANKS;
use super::memory::Region;
use super::wait::{Abort, Waiter};
use crate::backend::RankError;

/// Bytes of a rank's place.
const PLACE: usize = 8;

/// Bytes of the board.
pub(super) const BYTES: usize = MAX_RANKS as usize * PLACE;

/// One rank's view of the board. What is put up counts up, so that nothing is ever taken down.
#[derive(Debug)]
pub(super) struct Board {
    region: Arc<Region>,
    /// Where the board lies in its region.
    at: usize,
    rank: usize,
    /// Communicators that this rank has tried to make.
    attempts: u64,
}

impl Board {
    pub(super) fn new(region: Arc<Region>, at: usize, rank: usize) -> Board {
        Board { region, at, rank, attempts: 0 }
    }

    /// Waits until the first `ranks` ranks ask for as many in their attempt of the same number.
    pub(super) fn form(&mut self, ranks: u32, within: Duration, abort: &Abort) -> Result<(), RankError> {
        self.attempts += 1;
        let wanted = self.attempts << 32 | u64::from(ranks);
        self.put(wanted);
        let end = Instant::now() + within;
        let mut waiter = Waiter::new(abort.clone());
        loop {
            let agreed = (0..ranks as usize).filter(|rank| self.agrees(*rank, wanted)).count();
            if agreed == ranks as usize {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(RankError::Refused {
                    call: format!("making a communicator of {ranks} ranks"),
                    code: "a timeout".to_owned(),
                    message: format!("{agreed} of them asked for as many within {} s", within.as_secs_f64()),
                });
            }
            waiter.pause()?;
        }
    }

    fn put(&self, value: u64) {
        if let Some(place) = self.region.long(self.at + self.rank * PLACE) {
            place.store(value, Ordering::Release);
        }
    }

    /// Whether a rank asks for the same. One that is at a later attempt already has seen this one agreed.
    fn agrees(&self, rank: usize, wanted: u64) -> bool {
        if rank >= MAX_RANKS as usize {
            return false;
        }
        let place = self.region.long(self.at + rank * PLACE);
        place.map(|place| place.load(Ordering::Acquire)).is_some_and(|has| has == wanted || has >> 32 > wanted >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each rank gets that asks for so many.
    fn ask(boards: &mut [Board], abort: &Abort, asked: &[u32], within: Duration) -> Vec<Result<(), RankError>> {
        std::thread::scope(|scope| {
            let ranks = boards.iter_mut().zip(asked);
            let ranks: Vec<_> =
                ranks.map(|(board, asked)| scope.spawn(move || board.form(*asked, within, abort))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_that_ask_alike_come_together_again_and_again_and_a_mismatch_ends_for_all_at_its_limit() {
        let region = Arc::new(Region::zeroed(256 + BYTES).unwrap());
        let abort = Abort::new(Arc::clone(&region));
        let mut boards: Vec<Board> = (0..3).map(|rank| Board::new(Arc::clone(&region), 256, rank)).collect();
        let long = Duration::from_secs(60);
        for _ in 0..20 {
            assert_eq!(ask(&mut boards, &abort, &[3; 3], long), [Ok(()), Ok(()), Ok(())]);
        }
        for odd in [4, 2, MAX_RANKS + 1] {
            let results = ask(&mut boards, &abort, &[3, odd, 3], Duration::from_millis(100));
            assert!(results.iter().all(|r| matches!(r, Err(RankError::Refused { .. }))), "{results:?}");
            let text = results[1].as_ref().unwrap_err().to_string();
            assert!(text.contains(&format!("of {odd} ranks returned a timeout: 1 of them asked")), "{text}");
        }
        assert_eq!(ask(&mut boards, &abort, &[3; 3], long), [Ok(()), Ok(()), Ok(())]);
        abort.raise();
        assert_eq!(ask(&mut boards, &abort, &[3, 4, 3], long), vec![Err(RankError::Aborted); 3]);
    }
}
