//! What a rank does wrong with its sends and receives.

use serde::{Deserialize, Serialize};

use super::RankError;
use crate::case::Primitive;

/// What one rank does wrong in a call that is one group of sends and receives, see [`Primitive::is_exchange`]. Such a call is
/// issued as these, also where the library has a function for the whole.
///
/// What a rank sends itself is left alone: a library sees both ends of that and refuses one without the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Twist {
    /// It posts no send.
    NoSend,
    /// It posts no receive.
    NoRecv,
    /// Its sends go to this rank.
    SendTo(u32),
    /// Its receives are from this rank.
    RecvFrom(u32),
}

impl Twist {
    /// Whom `rank`'s send to `peer` goes to; `None` where it is left out.
    pub fn send(self, rank: u32, peer: u32) -> Option<u32> {
        match self {
            _ if peer == rank => Some(peer),
            Twist::NoSend => None,
            Twist::SendTo(other) => Some(other),
            Twist::NoRecv | Twist::RecvFrom(_) => Some(peer),
        }
    }

    /// Whom `rank`'s receive from `peer` is from; `None` where it is left out.
    pub fn recv(self, rank: u32, peer: u32) -> Option<u32> {
        match self {
            _ if peer == rank => Some(peer),
            Twist::NoRecv => None,
            Twist::RecvFrom(other) => Some(other),
            Twist::NoSend | Twist::SendTo(_) => Some(peer),
        }
    }

    /// Why a call of this primitive on so many ranks cannot be twisted so.
    pub fn refuses(self, primitive: Primitive, ranks: u32) -> Result<(), RankError> {
        if !primitive.is_exchange() {
            let why = format!("{primitive} is not one group of sends and receives: nothing to leave out or misdirect");
            return Err(RankError::Unsupported(why));
        }
        match self {
            Twist::SendTo(peer) | Twist::RecvFrom(peer) if peer >= ranks => Err(RankError::Refused {
                call: primitive.name().to_owned(),
                code: "invalid argument".to_owned(),
                message: format!("there is no rank {peer} among {ranks}"),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_twist_changes_its_own_direction_and_no_message_to_oneself() {
        let of = |twist: Twist| (twist.send(1, 2), twist.recv(1, 0));
        assert_eq!(of(Twist::NoSend), (None, Some(0)));
        assert_eq!(of(Twist::NoRecv), (Some(2), None));
        assert_eq!(of(Twist::SendTo(3)), (Some(3), Some(0)));
        assert_eq!(of(Twist::RecvFrom(3)), (Some(2), Some(3)));
        for twist in [Twist::NoSend, Twist::NoRecv, Twist::SendTo(3), Twist::RecvFrom(3)] {
            assert_eq!((twist.send(1, 1), twist.recv(1, 1)), (Some(1), Some(1)));
        }
    }

    #[test]
    fn only_a_group_of_sends_and_receives_among_the_ranks_can_be_twisted() {
        assert!(matches!(Twist::NoSend.refuses(Primitive::AllReduce, 4), Err(RankError::Unsupported(_))));
        assert!(matches!(Twist::SendTo(4).refuses(Primitive::Sendrecv, 4), Err(RankError::Refused { .. })));
        assert_eq!(Twist::RecvFrom(3).refuses(Primitive::Alltoall, 4), Ok(()));
    }
}
