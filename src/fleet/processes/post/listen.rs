//! The port of rank 0.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

use super::super::agent::{self, Greeted};
use super::super::door::Door;
use super::Absent;
use crate::fleet::launcher::{Address, Placement};

/// The first port that can be had. One that this very job listens at already is an error of its own.
pub(super) fn listen(placement: &Placement) -> Result<Door, Absent> {
    let address = &placement.rendezvous;
    let ip = if address.local { loopback(&address.host) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    let mut last = io::Error::other("no port is named");
    for port in &address.ports {
        match TcpListener::bind((ip, *port)).and_then(Door::new) {
            Ok(door) => return Ok(door),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let nearby = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
                let there = SocketAddr::new(nearby, *port);
                if let Greeted::Refused(_) = agent::greet(there, &agent::probe(placement)) {
                    return Err(Absent::SecondCoordinator(there));
                }
                last = error;
            }
            Err(error) => last = error,
        }
    }
    Err(no_port(address, last))
}

pub(super) fn no_port(address: &Address, why: io::Error) -> Absent {
    let ports: Vec<String> = address.ports.iter().map(u16::to_string).collect();
    Absent::NoPort { host: address.host.clone(), ports: ports.join(", "), why }
}

/// The loopback address by that name.
fn loopback(host: &str) -> IpAddr {
    let named = (host, 0).to_socket_addrs().ok().and_then(|mut all| all.next());
    named.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}
