//! One connection between two ranks (transport/*.cc).
//!
//! ```text
//! Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM                    also IPC, direct pointer, indirect/2[2], MNNVL, .../read
//! Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
//! Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA       also [receive], /Shared, NET/Socket/0
//! ```

use super::scan::Scan;

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The channel.
    pub channel: u32,
    /// Where data comes from.
    pub from: End,
    /// Where it goes to.
    pub to: End,
    /// Which end of it the writer is, for networks.
    pub direction: Option<Direction>,
    /// The transport, as `P2P/CUMEM` or `NET/IB/0/GDRDMA`.
    pub via: String,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The rank.
    pub rank: u32,
    /// Its device as the driver numbers it.
    pub device: u32,
}

/// Which end of a connection the writer of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Direction {
    Send,
    Receive,
}

impl Channel {
    pub(super) fn read(text: &str) -> Option<Channel> {
        let mut scan = Scan(text);
        scan.eat("Channel ")?;
        let channel = scan.number()?;
        if scan.eat("/").is_some() {
            scan.number::<u32>()?;
        }
        scan.eat(" : ")?;
        let from = end(&mut scan)?;
        scan.eat(" -> ")?;
        let to = end(&mut scan)?;
        let direction = if scan.eat(" [send]").is_some() {
            Some(Direction::Send)
        } else {
            scan.eat(" [receive]").map(|()| Direction::Receive)
        };
        scan.eat(" via ")?;
        (!scan.0.is_empty()).then(|| Channel { channel, from, to, direction, via: scan.0.to_owned() })
    }
}

fn end(scan: &mut Scan<'_>) -> Option<End> {
    let rank = scan.number()?;
    scan.eat("[")?;
    let device = scan.number()?;
    scan.eat("]")?;
    Some(End { rank, device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_is_read() {
        let (from, to) = (End { rank: 0, device: 4 }, End { rank: 12, device: 1 });
        for (text, channel, direction, via) in [
            ("Channel 00/0 : 0[4] -> 12[1] via P2P/CUMEM/read", 0, None, "P2P/CUMEM/read"),
            ("Channel 23/1 : 0[4] -> 12[1] via P2P/direct pointer", 23, None, "P2P/direct pointer"),
            ("Channel 07 : 0[4] -> 12[1] via SHM/direct/direct", 7, None, "SHM/direct/direct"),
            (
                "Channel 01/0 : 0[4] -> 12[1] [send] via NET/IB/0(3)/GDRDMA/Shared",
                1,
                Some(Direction::Send),
                "NET/IB/0(3)/GDRDMA/Shared",
            ),
            ("Channel 01/0 : 0[4] -> 12[1] [receive] via NET/Socket/0", 1, Some(Direction::Receive), "NET/Socket/0"),
        ] {
            let expected = Channel { channel, from, to, direction, via: via.to_owned() };
            assert_eq!(Channel::read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn the_order_of_a_ring_is_no_connection() {
        assert_eq!(Channel::read("Channel 00/24 : 0 1"), None);
        assert_eq!(Channel::read("Channel 00/0 : 0[4] -> 12[1] via "), None);
    }
}
