//! What coordinator, agents and workers say to each other: frames of JSON behind their length, over TCP
//! and on workers' standard input.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::card::Card;
use crate::backend::host::Book;
use crate::case::Case;
use crate::fleet::protocol::{Report, Request};

/// Goes up with every change of the messages.
pub const PROTOCOL: u32 = 8;

/// Bytes of the largest frame: far above any report.
pub const MOST: u32 = 16 << 20;

/// Bytes of the largest frame that a stranger may send.
pub const MOST_HELLO: u32 = 4 << 10;

/// The first words of whoever connects. All versions of the protocol begin like this, so that others are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its version of collcheck.
    pub collcheck: String,
    /// Proof that it belongs to this run.
    pub token: String,
    /// A [`Who`], if the protocol is this one.
    pub who: Value,
}

/// Who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// A worker process.
    Worker {
        /// Its rank.
        rank: u32,
        /// Its process, as it is known where it runs.
        process: u32,
    },
    /// A process that a launcher has started.
    Agent(Card),
}

impl Hello {
    /// Of this version.
    pub fn new(token: &str, who: &Who) -> Hello {
        Hello {
            protocol: PROTOCOL,
            collcheck: env!("CARGO_PKG_VERSION").to_owned(),
            token: token.to_owned(),
            who: serde_json::to_value(who).unwrap_or_default(),
        }
    }
}

/// From a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Up {
    /// The communicator's identity, which rank 0 makes.
    Identity(Vec<u8>),
    /// Where it waits for other ranks' connections.
    Listening(SocketAddr),
    /// Its part of the communicator is made.
    Ready {
        /// Whether it can meet others at its gate.
        gate: bool,
    },
    /// Its part of the communicator cannot be made.
    Failed(String),
    /// The same, by no fault of the machine: the library does not have it.
    Unsupported(String),
    /// It meets the others.
    Meet {
        /// Ranks that come with it and leave the talking to it, itself among them.
        together: u32,
        /// Whether all of them are well.
        well: bool,
    },
    /// A case is over, for these ranks: its own, or all who have met.
    Reports {
        /// The number of the case, see [`Request::epoch`].
        case: u64,
        /// What they say.
        reports: Vec<Report>,
    },
}

/// [`Up::Reports`], as it is sent: of reports that others have written.
pub fn reports(case: u64, reports: &[Box<RawValue>]) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    enum Up<'r> {
        Reports { case: u64, reports: &'r [Box<RawValue>] },
    }
    frame(&Up::Reports { case, reports })
}

/// From the coordinator, to whoever has connected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Down {
    /// It is one of us.
    Welcome,
    /// It is one of us, and cannot be let in: why. The connection ends.
    Refused(String),
    /// It is not one of us. The connection ends.
    Stranger(String),
    /// All have met: whether all are well.
    Met(bool),
}

/// From the coordinator to all workers alike: each hears it from the process that has started it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToAll {
    /// What will be run, one case of each kind.
    Cases(Vec<Case>),
    /// The communicator's identity.
    Identity(Vec<u8>),
    /// Where all ranks wait for connections.
    Book(Book),
    /// A case to run.
    Case {
        /// What.
        request: Box<Request>,
        /// Nobody meets at gates: not all can get to theirs.
        alone: bool,
    },
    /// The case is given up: nobody is to wait for others of its host any more.
    Release,
}

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
pub enum NoMessage {
    /// The connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// More than is allowed, whatever comes of it.
    #[error("a frame of {bytes} bytes, at most {most} are allowed")]
    TooLong {
        /// Its length by its own word.
        bytes: u32,
        /// What is allowed.
        most: u32,
    },
    /// Not one of the messages.
    #[error("not a message of this protocol: {0}")]
    Garbage(serde_json::Error),
}

/// Sends one message, in one write.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&frame(message)?)
}

/// A message as it is sent: who tells it to many makes it once.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let bytes = u32::try_from(frame.len() - 4).ok().filter(|bytes| *bytes <= MOST);
    let bytes = bytes.ok_or_else(|| io::Error::other("the message is larger than any frame"))?;
    if let Some(length) = frame.first_chunk_mut() {
        *length = bytes.to_be_bytes();
    }
    Ok(frame)
}

/// The first message of what has come, and the bytes that it takes; `None` as long as its end is not there.
pub fn first<T: DeserializeOwned>(bytes: &[u8], most: u32) -> Result<Option<(T, usize)>, NoMessage> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let bytes = u32::from_be_bytes(*length);
    if bytes > most {
        return Err(NoMessage::TooLong { bytes, most });
    }
    let Some(body) = rest.get(..bytes as usize) else { return Ok(None) };
    let message = serde_json::from_slice(body).map_err(NoMessage::Garbage)?;
    Ok(Some((message, length.len() + body.len())))
}

/// Receives one message. Memory grows with what has really come, not with what is announced.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read, most: u32) -> Result<T, NoMessage> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let bytes = u32::from_be_bytes(length);
    if bytes > most {
        return Err(NoMessage::TooLong { bytes, most });
    }
    let mut body = Vec::new();
    from.take(bytes.into()).read_to_end(&mut body)?;
    if body.len() < bytes as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    serde_json::from_slice(&body).map_err(NoMessage::Garbage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_went() {
        let mut bytes = Vec::new();
        send(&mut bytes, &Up::Meet { together: 1, well: true }).unwrap();
        send(&mut bytes, &Up::Ready { gate: true }).unwrap();
        let mut from = &bytes[..];
        assert!(matches!(receive(&mut from, MOST), Ok(Up::Meet { together: 1, well: true })));
        assert!(matches!(receive(&mut from, MOST), Ok(Up::Ready { gate: true })));
        assert!(matches!(receive::<Up>(&mut from, MOST), Err(NoMessage::Io(_))));
    }

    #[test]
    fn reports_that_others_have_written_are_a_message_like_any_other() {
        let all = [4, 5].map(|rank| Report { rank, placements: Vec::new(), error: None });
        let written = all.iter().map(|report| RawValue::from_string(serde_json::to_string(report).unwrap()).unwrap());
        let frame = reports(u64::MAX, &written.collect::<Vec<_>>()).unwrap();
        let Some((Up::Reports { case: u64::MAX, reports }, _)) = first(&frame, MOST).unwrap() else {
            panic!("another")
        };
        assert_eq!(reports, all);
    }

    #[test]
    fn what_is_too_long_cut_off_or_garbage_is_told_apart() {
        let of = |bytes: &[u8]| receive::<Hello>(&mut &bytes[..], MOST_HELLO).unwrap_err();
        assert!(matches!(of(&[0xff; 8]), NoMessage::TooLong { bytes: u32::MAX, .. }));
        assert!(matches!(of(&[0, 0, 0, 9, b'{']), NoMessage::Io(_)));
        assert!(matches!(of(&[0, 0, 0, 2, b'{', b'}']), NoMessage::Garbage(_)));
        assert!(matches!(of(b"GET / HTTP/1.1\r\n"), NoMessage::TooLong { .. }));
    }
}
