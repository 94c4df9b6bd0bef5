//! Hosts that do not answer any more: cut off, or down.
//!
//! A process that ends closes its connections, and one that hangs or is stopped has a kernel that answers for it. Where a host
//! is cut off nothing of that happens, so that both ends let their kernels ask for an answer every second (TCP keepalive),
//! and take a connection for lost that had none for a while (TCP_USER_TIMEOUT). It costs no thread and no message, and a
//! machine whose processes are merely busy is never taken for silent.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::wire::NoMessage;

/// Until the coordinator takes a host for cut off.
pub const SILENCE: Duration = Duration::from_secs(5);

/// Until an agent takes the coordinator for cut off: later than the coordinator does, so that an outage that both see has
/// been judged before agents leave.
pub const LEASE: Duration = Duration::from_secs(10);

/// From the first silent connection to the verdict: kernels ask at their own times, and all of a host should be named.
pub const SETTLING: Duration = Duration::from_millis(1500);

/// How often kernels ask.
const BEAT: Duration = Duration::from_secs(1);

/// Has this end's kernel end the connection once the other end's has not answered for `limit`.
pub fn watch(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(BEAT).with_interval(BEAT))?;
    socket.set_tcp_user_timeout(Some(limit))
}

/// Whether a connection ended because nothing answered. A closed or reset one was ended by somebody.
pub fn silent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown
    )
}

/// The same of a connection on which there is no message.
pub fn no_word(why: &NoMessage) -> bool {
    matches!(why, NoMessage::Io(error) if silent(error))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_idle_or_closed_connection_is_not_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        watch(&near, Duration::from_secs(2)).unwrap();
        // longer than the limit, in which neither says anything: kernels answer
        std::thread::sleep(Duration::from_secs(4));
        far.write_all(b"x").unwrap();
        near.read_exact(&mut [0]).unwrap();
        drop(far);
        let end = near.read_exact(&mut [0]).unwrap_err();
        assert!(!silent(&end), "{end}");
    }
}
