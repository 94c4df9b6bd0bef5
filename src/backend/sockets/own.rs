//! The connected TCP sockets of this process, and damage to them.
//!
//! It serves where another library holds the connections, as NCCL's socket transport does in this process: take a
//! [`Snapshot`], let the library connect, and strike what is [`opened_since`].
//!
//! One `unsafe`, as a descriptor that another library owns can be had by its number only.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use super::pace::{self, Traffic};
use super::{Connection, Damaged, filter};

/// State of an established connection, in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// A connected TCP socket of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSocket {
    /// Its number.
    pub descriptor: RawFd,
    /// What it is known by as long as it exists, whatever becomes of the number.
    pub inode: u64,
    /// Its ends.
    pub connection: Connection,
}

/// The sockets that there were at some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeSet<u64>);

/// What to do to a socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Blow {
    /// [`filter::cut`].
    Cut,
    /// [`filter::reset`].
    Reset,
    /// [`pace::limit`], in bytes a second; 0 lifts it.
    Pace(u64),
}

impl Blow {
    /// Strikes one socket.
    pub fn strike(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Blow::Cut => filter::cut(socket),
            Blow::Reset => filter::reset(socket),
            Blow::Pace(rate) => pace::limit(socket, rate),
        }
    }

    /// For reports.
    pub fn name(self) -> String {
        match self {
            Blow::Cut => "cut".to_owned(),
            Blow::Reset => "reset".to_owned(),
            Blow::Pace(rate) => format!("paced to {rate} B/s"),
        }
    }
}

/// The sockets that there are now, connected or not.
pub fn snapshot() -> io::Result<Snapshot> {
    Ok(Snapshot(sockets()?.into_values().collect()))
}

/// The TCP sockets that are connected now, by number.
pub fn connected() -> io::Result<Vec<OwnSocket>> {
    let mut established = BTreeMap::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        // no second table where the kernel has no IPv6
        match std::fs::read_to_string(table) {
            Ok(text) => established.extend(text.lines().filter_map(row)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let own = |(descriptor, inode)| Some(OwnSocket { descriptor, inode, connection: *established.get(&inode)? });
    Ok(sockets()?.into_iter().filter_map(own).collect())
}

/// Those among them that were opened after the snapshot.
pub fn opened_since(snapshot: &Snapshot) -> io::Result<Vec<OwnSocket>> {
    let mut all = connected()?;
    all.retain(|socket| !snapshot.0.contains(&socket.inode));
    Ok(all)
}

/// Strikes each of these sockets, and tells which; those that were closed meanwhile are left out.
pub fn damage(sockets: &[OwnSocket], blow: Blow) -> io::Result<Damaged> {
    use std::os::fd::AsFd;
    let mut connections = Vec::new();
    for socket in sockets {
        if let Some(held) = hold(socket) {
            blow.strike(held.as_fd())?;
            connections.push(socket.connection);
        }
    }
    Ok(Damaged { what: blow.name(), connections })
}

/// Bytes that a socket has sent and its peer has acknowledged, and bytes that it has received; nothing if it is gone.
pub fn traffic(socket: &OwnSocket) -> Option<Traffic> {
    use std::os::fd::AsFd;
    pace::traffic(hold(socket)?.as_fd()).ok()
}

/// Numbers and inodes of all sockets of this process.
fn sockets() -> io::Result<BTreeMap<RawFd, u64>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // closed since, or no socket
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let inode = target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(number), Some(inode)) = (number, inode) {
            found.insert(number, inode);
        }
    }
    Ok(found)
}

/// A descriptor of our own for the socket; nothing if it is gone.
fn hold(socket: &OwnSocket) -> Option<OwnedFd> {
    if socket.descriptor < 0 {
        return None;
    }
    // SAFETY: the number is not -1, and the borrow ends with this statement. Should its owner close it meanwhile, the
    // system call fails or duplicates whatever has the number now, which the inode shows; no memory depends on it.
    let held = unsafe { BorrowedFd::borrow_raw(socket.descriptor) }.try_clone_to_owned().ok()?;
    let stat = rustix::fs::fstat(&held).ok()?;
    (stat.st_ino == socket.inode).then_some(held)
}

/// Inode and ends of an established connection from a line of `/proc/net/tcp` or `tcp6`.
fn row(line: &str) -> Option<(u64, Connection)> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let inode = fields.nth(5)?.parse().ok()?;
    (state == ESTABLISHED).then_some((inode, Connection { local: address(local)?, remote: address(remote)? }))
}

/// `0100007F:1F90`: words of the address as the processor holds them, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |k: usize| Some(u32::from_str_radix(address.get(8 * k..8 * k + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (k, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(k)?);
            }
            // sockets of both families show IPv4 so
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn sockets_opened_since_a_snapshot_are_found_and_struck_and_older_ones_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let far = listener.accept().unwrap().0;
            far.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            (near, far)
        };
        let mut old = connect();
        let before = snapshot().unwrap();
        let mut new = connect();
        // other tests of this process have sockets too
        let ours = [new.0.as_raw_fd(), new.1.as_raw_fd()];
        let mut found = opened_since(&before).unwrap();
        found.retain(|socket| ours.contains(&socket.descriptor));
        assert_eq!(found.len(), 2);
        assert!(!opened_since(&before).unwrap().iter().any(|s| s.descriptor == old.0.as_raw_fd()));

        let damaged = damage(&found, Blow::Cut).unwrap();
        let connection = |s: &TcpStream| Connection { local: s.local_addr().unwrap(), remote: s.peer_addr().unwrap() };
        let struck: BTreeSet<_> = damaged.connections.iter().copied().collect();
        assert_eq!(struck, BTreeSet::from([connection(&new.0), connection(&new.1)]));
        assert!(damaged.to_string().starts_with("cut: 2 sockets: 127.0.0.1:"), "{damaged}");
        new.0.write_all(&[1]).unwrap();
        assert_eq!(new.1.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        old.0.write_all(&[1]).unwrap();
        old.1.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn a_number_that_is_another_socket_now_is_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut found = connected().unwrap();
        found.retain(|socket| socket.descriptor == near.as_raw_fd());
        for socket in &mut found {
            socket.inode += 1;
        }
        assert_eq!((found.len(), damage(&found, Blow::Reset).unwrap().connections.len()), (1, 0));
        near.peer_addr().unwrap();
    }

    #[test]
    fn both_tables_are_read() {
        let v4 = "   0: 0100007F:1F90 0200007F:A001 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let (inode, connection) = row(v4).unwrap();
        assert_eq!((inode, connection.to_string().as_str()), (4711, "127.0.0.1:8080 - 127.0.0.2:40961"));
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(address(mapped).unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(address("00000000000000000000000001000000:0050").unwrap().to_string(), "[::1]:80");
        assert_eq!(row(&v4.replace(" 01 ", " 0A ")), None);
        for bad in ["", "  sl  local_address rem_address   st", "0: zz:1 zz:2 01 0 0 0 0 0 1"] {
            assert_eq!(row(bad), None, "{bad}");
        }
    }
}
