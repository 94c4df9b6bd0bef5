//! Packet filters and resets: what can be done to one socket.
//!
//! The filters are classic BPF programs, as `socket(7)` describes under `SO_ATTACH_FILTER`: a program returns how many
//! bytes of a packet to keep, and 0 drops it without an answer.

use std::io;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

/// `BPF_LD | BPF_W | BPF_ABS`: loads a word.
const LOAD: u16 = 0x20;
/// `BPF_JMP | BPF_JGE | BPF_K`: skips `jt` instructions where the word is at least `k`, else `jf`.
const JUMP_IF_AT_LEAST: u16 = 0x35;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF + SKF_AD_RANDOM`: the place that reads as a random word.
const RANDOM: u32 = 0xffff_f000 + 56;
/// More bytes than any packet has.
const ALL: u32 = u32::MAX;

/// Drops every packet that arrives from now on. What has arrived can still be read.
pub fn cut(socket: impl AsFd) -> io::Result<()> {
    attach(socket, &[SockFilter::new(RETURN, 0, 0, 0)])
}

/// Drops this share of the packets that arrive, at random: 0 none, 1 all. It takes the place of an earlier filter.
pub fn lose(socket: impl AsFd, share: f64) -> io::Result<()> {
    let kept_from = share.clamp(0.0, 1.0) * 2f64.powi(32);
    if kept_from > f64::from(u32::MAX) {
        return cut(socket);
    }
    let program = [
        SockFilter::new(LOAD, 0, 0, RANDOM),
        SockFilter::new(JUMP_IF_AT_LEAST, 1, 0, kept_from as u32),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, ALL),
    ];
    attach(socket, &program)
}

/// Breaks the connection: both ends are told by a reset. The descriptor stays open, as its owner may be using it.
pub fn reset(socket: impl AsFd) -> io::Result<()> {
    // `connect(2)`: an address of family AF_UNSPEC dissolves the association
    Ok(rustix::net::connect_unspec(socket)?)
}

fn attach(socket: impl AsFd, program: &[SockFilter]) -> io::Result<()> {
    SockRef::from(&socket.as_fd()).attach_filter(program)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        }
        (near, far)
    }

    #[test]
    fn a_cut_connection_gives_what_had_come_then_silence_and_no_error() {
        let (mut near, mut far) = pair();
        near.write_all(b"before").unwrap();
        let mut bytes = [0; 6];
        far.peek(&mut bytes).unwrap();
        cut(&far).unwrap();
        near.write_all(b"after!").unwrap();
        far.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"before");
        assert_eq!(far.read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(near); // the end of the connection is not heard either
        assert_eq!(far.read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// A lost packet is sent again after 200 ms at the earliest.
    #[test]
    fn lost_packets_cost_time_and_no_data() {
        let (mut near, mut far) = pair();
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        lose(&far, 0.3).unwrap();
        let (start, mut slow) = (Instant::now(), 0);
        for round in 0..30u8 {
            let before = Instant::now();
            near.write_all(&[round]).unwrap();
            let mut byte = [0];
            far.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [round]);
            slow += u32::from(before.elapsed() > Duration::from_millis(150));
        }
        assert!((1..29).contains(&slow), "{slow} of 30 were slow in {:?}", start.elapsed());
        lose(&far, 0.0).unwrap();
        near.write_all(&[77]).unwrap();
        far.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn a_reset_is_an_error_at_both_ends() {
        let (mut near, mut far) = pair();
        reset(&near).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(near.write(&[0]).is_err());
    }
}
