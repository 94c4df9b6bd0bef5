//! Each kind of fault that forensics can name is planted in buffers of the host backend, after or during a real
//! collective, and must be named: for every dtype and op, on a rank, in a block and at a distance drawn at random.

#[path = "../host_support/mod.rs"]
mod host_support;

mod bench;
mod contributions;
mod movement;
mod output;

use collcheck::oracle::forensics::Fault;

/// The kind of a fault, by number. A kind that is added has to be planted too: this stops compiling, and
/// [`every_kind_has_a_test`] fails until it is.
fn kind(fault: Fault) -> usize {
    match fault {
        Fault::Unwritten => 0,
        Fault::Zero => 1,
        Fault::NotANumber => 2,
        Fault::Guard => 3,
        Fault::BitFlipped(Some(_)) => 4,
        Fault::BitFlipped(None) => 5,
        Fault::OwnInput => 6,
        Fault::InputOf(_) => 7,
        Fault::Missing(_) => 8,
        Fault::Doubled(_) => 9,
        Fault::Stale(_) => 10,
        Fault::Shifted(_) => 11,
        Fault::Swapped(_) => 12,
        Fault::OtherRank(_) => 13,
        Fault::OtherPlace(_) => 14,
        Fault::Slot { .. } => 15,
        Fault::StaleContribution { .. } => 16,
        Fault::MovedContribution { .. } => 17,
        Fault::Narrowed(_) => 18,
    }
}

const KINDS: usize = 19;

/// What a test plants beyond all doubt: at least once each kind, else the names below are not of the faults there are.
#[test]
fn every_kind_has_a_test() {
    let mut planted = [false; KINDS];
    let all = output::KINDS.iter().chain(&contributions::KINDS).chain(&movement::KINDS);
    all.for_each(|fault| planted[kind(*fault)] = true);
    assert_eq!(planted, [true; KINDS]);
}
