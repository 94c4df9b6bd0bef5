//! Packet filters and resets: what can be done to one socket.
//!
//! The filters are classic BPF programs, as `socket(7)` describes under `SO_ATTACH_FILTER`: a program returns how many
//! bytes of a packet to keep, and 0 drops it without an answer.

use std::io;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
/// Drops every packet that arrives from now on. What has arrived can still be read.
pub fn cut(socket: impl AsFd) -> io::Result<()> {
    attach(socket, &[SockFilter::new(RETURN, 0, 0, 0)])
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
    use std::time::Duration;

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

    #[test]
    fn a_reset_is_an_error_at_both_ends() {
        let (mut near, mut far) = pair();
        reset(&near).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(near.write(&[0]).is_err());
    }
}
