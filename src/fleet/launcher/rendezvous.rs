//! Where rank 0 listens, as all ranks derive it without having spoken.

use std::net::IpAddr;
use std::str::FromStr;

use super::claim::{Claim, Unit};
use super::error::Confusion;
use super::{Surroundings, indexed_job};

/// Where torch.distributed meets: by torchrun's own variables, and by those that stand for its options, which Kubeflow's
/// Trainer sets.
const MASTERS: [(&str, &str); 2] = [("MASTER_ADDR", "MASTER_PORT"), ("PET_MASTER_ADDR", "PET_MASTER_PORT")];

/// From MASTER_PORT to the port that collcheck uses: torchrun's store may hold MASTER_PORT itself, and neighbours of it are
/// what people give to the next job.
const SHIFT: u16 = 1000;

/// Ports for jobs that name none: below those that the system gives out by itself, above those of services.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// How many of them one job tries, as another job may have the same.
const TRIES: u16 = 4;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// `host:port`, `1.2.3.4:port` or `[::1]:port`.
impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Endpoint, &'static str> {
        let expected = "expected HOST:PORT";
        let (host, port) = text.rsplit_once(':').ok_or(expected)?;
        let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inside.unwrap_or(host);
        let plain = inside.is_some() || !host.contains(':');
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(expected)?;
        let named = plain && !host.is_empty() && !host.contains(char::is_whitespace);
        named.then(|| Endpoint { host: host.to_owned(), port }).ok_or(expected)
    }
}

/// Where rank 0 listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Rank 0's host.
    pub host: String,
    /// Ports in the order in which they are tried.
    pub ports: Vec<u16>,
    /// Whether nobody from other hosts is expected.
    pub local: bool,
}

/// Of all ways to name it, the first that this job has.
pub fn address(around: &Surroundings, claim: &Claim) -> Result<Address, Confusion> {
    let variables = &around.variables;
    let at = |host: &str, ports: Vec<u16>| Address {
        host: host.to_owned(),
        ports,
        local: claim.unit == Unit::Rank && is_local(host),
    };
    if let Some(Endpoint { host, port }) = &around.options.rendezvous {
        return Ok(at(host, vec![*port]));
    }
    if let Some(text) = variables.text("NCCL_COMM_ID") {
        let name = "NCCL_COMM_ID";
        let bad = |expected| Confusion::NoEndpoint { name, value: text.to_owned(), expected };
        let Endpoint { host, port } = text.parse().map_err(bad)?;
        return Ok(at(&host, vec![port]));
    }
    for (host, port) in MASTERS {
        let Some(host) = variables.text(host) else { continue };
        let Some(text) = variables.text(port) else { return Ok(at(host, derived(claim))) };
        let port = text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| Confusion::NoEndpoint {
            name: port,
            value: text.to_owned(),
            expected: "expected a port from 1 to 65535",
        })?;
        return Ok(at(host, vec![shifted(port)]));
    }
    let by_host = |host: &str| Ok(at(host, derived(claim)));
    let here = "127.0.0.1";
    match (claim.one_host(), claim.hosts.first(), claim.unit) {
        (Some(true), _, _) => by_host(here),
        (_, Some(host), _) => by_host(host),
        (_, None, Unit::Node) => match indexed_job::first_pod(&around.host, claim.index.value) {
            Some(host) => by_host(&host),
            None => Err(Confusion::NoAddress { launcher: claim.launcher, hosts: true }),
        },
        (Some(false), None, Unit::Rank) => Err(Confusion::NoAddress { launcher: claim.launcher, hosts: true }),
        // on several hosts the others are missed at the deadline, with a line that says so
        (None, None, Unit::Rank) => by_host(here),
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn shifted(port: u16) -> u16 {
    port.checked_add(SHIFT).unwrap_or(port - SHIFT)
}

/// Ports from what tells this job from others.
fn derived(claim: &Claim) -> Vec<u16> {
    // FNV-1a: it must be the same in every build
    let text = format!("{} {} {}", claim.launcher, claim.job, claim.of.value);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let first = (hash % u64::from(PORTS)) as u16;
    (0..TRIES).map(|k| FIRST_PORT + (first + k * (PORTS / TRIES)) % PORTS).collect()
}
