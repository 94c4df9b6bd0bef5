//! How fast a socket may send, and what it has carried.
//!
//! Two options that no crate at hand has: `SO_MAX_PACING_RATE` of `socket(7)` and `TCP_INFO` of `tcp(7)`. TCP keeps to the
//! first by a timer of its own from Linux 4.20 on, with any queueing discipline.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SOL_SOCKET`, `SO_MAX_PACING_RATE`, `IPPROTO_TCP` and `TCP_INFO` on x86-64 and AArch64.
const SOL_SOCKET: c_int = 1;
const SO_MAX_PACING_RATE: c_int = 47;
const IPPROTO_TCP: c_int = 6;
const TCP_INFO: c_int = 11;

/// Bytes of `struct tcp_info` (`linux/tcp.h`) up to the end of `tcpi_bytes_received`, and where the two counters lie.
const INFO: usize = 136;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;

// SAFETY: the declarations are those of `getsockopt(2)`; `std` links the C library.
unsafe extern "C" {
    fn getsockopt(socket: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut c_uint) -> c_int;
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, length: c_uint) -> c_int;
}

/// What a connection has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent that the other end has acknowledged.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// Lets a TCP socket send no more than this many bytes a second; 0 lifts it. A first packet is never late, so that small
/// messages pass as before.
pub fn limit(socket: impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    let rate = if bytes_per_s == 0 { u64::MAX } else { bytes_per_s };
    let (value, length) = ((&raw const rate).cast(), size_of::<u64>() as c_uint);
    // SAFETY: the descriptor is borrowed and open, and `value` points to `length` bytes that are only read.
    match unsafe { setsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, SO_MAX_PACING_RATE, value, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a TCP socket has carried since it was connected.
pub fn traffic(socket: impl AsFd) -> io::Result<Traffic> {
    let mut info = [0u8; INFO];
    let mut length = INFO as c_uint;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed and open, and at most `length` bytes are written, which `info` has.
    if unsafe { getsockopt(fd, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast(), &mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let word = |at: usize| info.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_ne_bytes(*bytes));
    match (word(BYTES_ACKED), word(BYTES_RECEIVED)) {
        (Some(sent), Some(received)) if length as usize >= INFO => Ok(Traffic { sent, received }),
        _ => Err(io::Error::other("this kernel does not count a connection's bytes")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Seconds that `bytes` take from one end to the other.
    fn seconds(near: &mut TcpStream, far: &mut TcpStream, bytes: usize) -> f64 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| near.write_all(&vec![1; bytes]).unwrap());
            far.read_exact(&mut vec![0; bytes]).unwrap();
        });
        start.elapsed().as_secs_f64()
    }

    #[test]
    fn a_limit_slows_large_messages_down_and_can_be_lifted() {
        let (mut near, mut far) = pair();
        limit(&near, 10_000_000).unwrap();
        let slow = seconds(&mut near, &mut far, 3 << 20);
        assert!(slow > 0.15, "{slow} s for 3 MiB at 10 MB/s");
        limit(&near, 0).unwrap();
        let free = (0..3).map(|_| seconds(&mut near, &mut far, 3 << 20)).fold(f64::INFINITY, f64::min);
        assert!(free < slow / 2.0, "{free} s without a limit, {slow} s with one");
    }

    #[test]
    fn bytes_are_counted_in_both_directions() {
        let (mut near, mut far) = pair();
        seconds(&mut near, &mut far, 100_000);
        far.write_all(&[0; 5]).unwrap();
        near.read_exact(&mut [0; 5]).unwrap();
        let (near, far) = (traffic(&near).unwrap(), traffic(&far).unwrap());
        // the last acknowledgement may be on its way; the handshake counts as a byte
        assert!(near.sent >= 90_000 && near.received == 5, "{near:?}");
        assert_eq!(far.received, 100_000);
    }
}
