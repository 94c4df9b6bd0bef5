//! One connection of one rank.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::SEND_BUFFER;
use crate::backend::RankError;
use crate::backend::sockets::Connection;

/// A connection, made or being made. Nothing done to it waits.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    connection: Connection,
    peer: usize,
    outgoing: bool,
}

impl Line {
    /// Begins to connect to where `peer` listens. Bytes can be written once it has answered.
    pub fn connect(peer: usize, address: SocketAddr) -> Result<Line, RankError> {
        let broken = |error: io::Error| RankError::Broken {
            call: format!("connect to rank {peer}"),
            message: format!("{address}: {error}"),
        };
        let connect = || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_send_buffer_size(SEND_BUFFER)?;
            socket.set_tcp_nodelay(true)?;
            socket.set_nonblocking(true)?;
            match socket.connect(&address.into()) {
                Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(error),
                _ => Ok(TcpStream::from(socket)),
            }
        };
        let stream = connect().map_err(broken)?;
        let local = stream.local_addr().map_err(broken)?;
        Ok(Line { stream, connection: Connection { local, remote: address }, peer, outgoing: true })
    }

    /// One that came from `peer`.
    pub fn accepted(peer: usize, stream: TcpStream, connection: Connection) -> Line {
        Line { stream, connection, peer, outgoing: false }
    }

    /// Its ends.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// Whether this rank writes to it.
    pub fn is_outgoing(&self) -> bool {
        self.outgoing
    }

    /// Writes what the kernel takes now; 0 if nothing.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, RankError> {
        loop {
            match (&self.stream).write(bytes) {
                Ok(len) => return Ok(len),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(0),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(self.broken(&error.to_string())),
                },
            }
        }
    }

    /// Reads what has come, as much as there is room for; 0 bytes if nothing.
    pub fn read(&self, into: &mut [u8]) -> Result<Came, RankError> {
        loop {
            match (&self.stream).read(into) {
                Ok(0) if !into.is_empty() => return Ok(Came::End),
                Ok(len) => return Ok(Came::Bytes(len)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Came::Bytes(0)),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(self.broken(&error.to_string())),
                },
            }
        }
    }

    /// The error of a rank whose connection this was.
    pub fn broken(&self, what: &str) -> RankError {
        let Line { connection: Connection { local, remote }, peer, outgoing, .. } = self;
        let call = if *outgoing { "send to" } else { "receive from" };
        RankError::Broken {
            call: format!("{call} rank {peer}"),
            // the cause first, as where it is noted there is not room for all
            message: format!("{what}: connection of {local} with {remote} (rank {peer})"),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// So many.
    Bytes(usize),
    /// The other end has closed the connection.
    End,
}
