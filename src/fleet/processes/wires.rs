//! Many connections that one thread reads: what has come on any of them, message by message.
//!
//! Thousands of ranks report to one coordinator. A thread for each would cost more than all that they say. Connections stay
//! blocking for those who write, with the time limit that they came with.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use serde::de::DeserializeOwned;

use super::wire::{self, NoMessage};

/// Connections looked at in one go.
const EVENTS: usize = 256;

/// Bytes taken from one connection before the next one has its turn.
const TURN: usize = 64 << 10;

/// What came on a connection.
#[derive(Debug)]
pub enum Heard<M> {
    /// A message.
    Said(M),
    /// The last word: there is nothing more to be read, and why.
    Lost(NoMessage),
}

/// Connections by number.
pub struct Wires<M> {
    epoll: OwnedFd,
    lines: Vec<Option<Line>>,
    heard: VecDeque<(u32, Heard<M>)>,
    bytes: Vec<u8>,
    most: u32,
    messages: PhantomData<M>,
}

struct Line {
    stream: TcpStream,
    /// The beginning of a message whose end has not come.
    begun: Vec<u8>,
}

impl<M: DeserializeOwned> Wires<M> {
    /// None yet. Messages may have `most` bytes.
    pub fn new(most: u32) -> io::Result<Wires<M>> {
        Ok(Wires {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            lines: Vec::new(),
            heard: VecDeque::new(),
            bytes: vec![0; TURN],
            most,
            messages: PhantomData,
        })
    }

    /// One more; a former one of the same number is forgotten.
    pub fn add(&mut self, number: u32, stream: TcpStream) -> io::Result<()> {
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(number.into()), epoll::EventFlags::IN)?;
        let at = number as usize;
        if self.lines.len() <= at {
            self.lines.resize_with(at + 1, || None);
        }
        if let Some(place) = self.lines.get_mut(at) {
            *place = Some(Line { stream, begun: Vec::new() });
        }
        Ok(())
    }

    /// The stream of that number, as long as it is not lost.
    pub fn stream(&self, number: u32) -> Option<&TcpStream> {
        self.lines.get(number as usize)?.as_ref().map(|line| &line.stream)
    }

    /// Writes a frame to one of them. Whoever does not take it in time is lost, which is heard like any other loss: half of a
    /// message is none.
    pub fn tell(&self, number: u32, frame: &[u8]) {
        if let Some(mut stream) = self.stream(number)
            && stream.write_all(frame).is_err()
        {
            let _ = shutdown(stream, Shutdown::Both);
        }
    }

    /// What has come, or comes within `wait`: connections in turn, and messages of one in their order.
    pub fn hear(&mut self, wait: Duration) -> Option<(u32, Heard<M>)> {
        let end = Instant::now().checked_add(wait);
        loop {
            let heard = self.heard.pop_front();
            if heard.is_some() {
                return heard;
            }
            let left = end.map_or(wait, |end| end.saturating_duration_since(Instant::now()));
            let ready = self.ready(left);
            if ready.is_empty() {
                return None;
            }
            for event in ready {
                self.read(event.data.u64() as u32);
            }
        }
    }

    /// Waits until some connections have something, or time is up.
    fn ready(&self, wait: Duration) -> Vec<epoll::Event> {
        let limit = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        let limit = Timespec { tv_sec: limit, tv_nsec: wait.subsec_nanos().into() };
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            // it cannot be waited: who asks again and again must not spin
            Err(_) => std::thread::sleep(wait.min(Duration::from_millis(1))),
        }
        events
    }

    /// Takes what one of them has.
    fn read(&mut self, number: u32) {
        let Some(line) = self.lines.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let end = match recv(&line.stream, &mut self.bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Some(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok((_, len)) => {
                let fresh = self.bytes.get(..len).unwrap_or_default();
                let say = |message| self.heard.push_back((number, Heard::Said(message)));
                take(&mut line.begun, fresh, self.most, say).err()
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(error) => Some(NoMessage::Io(error.into())),
        };
        if let Some(why) = end {
            let _ = epoll::delete(&self.epoll, &line.stream);
            if let Some(place) = self.lines.get_mut(number as usize) {
                *place = None;
            }
            self.heard.push_back((number, Heard::Lost(why)));
        }
    }
}

/// Takes all whole messages of what had come and what has come now, and keeps the rest.
fn take<M: DeserializeOwned>(
    begun: &mut Vec<u8>,
    fresh: &[u8],
    most: u32,
    mut say: impl FnMut(M),
) -> Result<(), NoMessage> {
    // mostly a message comes as a whole, and is read where it is
    if begun.is_empty() {
        let at = whole(fresh, most, &mut say)?;
        begun.extend_from_slice(fresh.get(at..).unwrap_or_default());
        return Ok(());
    }
    begun.extend_from_slice(fresh);
    let at = whole(begun, most, &mut say)?;
    begun.drain(..at);
    // one large message must not keep its memory for thousands of small ones
    if begun.is_empty() && begun.capacity() > TURN {
        *begun = Vec::new();
    }
    Ok(())
}

/// Takes whole messages from the front, and returns how many bytes they have.
fn whole<M: DeserializeOwned>(bytes: &[u8], most: u32, say: &mut impl FnMut(M)) -> Result<usize, NoMessage> {
    let mut at = 0;
    while let Some((message, len)) = wire::first(bytes.get(at..).unwrap_or_default(), most)? {
        say(message);
        at += len;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::wire::{MOST, Up};
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (far, listener.accept().unwrap().0)
    }

    #[test]
    fn messages_of_many_come_in_the_order_of_each_however_they_are_cut() {
        let mut wires = Wires::<Up>::new(MOST).unwrap();
        let mut fars = Vec::new();
        for number in 0..3 {
            let (far, near) = pair();
            wires.add(number, near).unwrap();
            fars.push(far);
        }
        let whole = [
            wire::frame(&Up::Meet { together: 8, well: true }).unwrap(),
            wire::frame(&Up::Ready { gate: true }).unwrap(),
        ]
        .concat();
        let large = wire::frame(&Up::Failed("x".repeat(3 * TURN))).unwrap();
        fars[0].write_all(&whole[..7]).unwrap();
        fars[1].write_all(&whole).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| fars[2].write_all(&large).unwrap());
            let mut came = vec![Vec::new(); 3];
            let mut count = 0;
            while count < 3 {
                let Some((number, Heard::Said(up))) = wires.hear(LONG) else { panic!("one was lost") };
                came[number as usize].push(format!("{up:?}").chars().take(10).collect::<String>());
                count += 1;
            }
            assert_eq!(
                came,
                [vec![], vec!["Meet { tog".to_owned(), "Ready { ga".to_owned()], vec!["Failed(\"xx".to_owned()]]
            );
        });
        fars[0].write_all(&whole[7..]).unwrap();
        assert!(matches!(wires.hear(LONG), Some((0, Heard::Said(Up::Meet { together: 8, well: true })))));
        assert!(matches!(wires.hear(LONG), Some((0, Heard::Said(Up::Ready { gate: true })))));
        assert!(wires.hear(Duration::from_millis(20)).is_none());
    }

    #[test]
    fn garbage_endless_frames_and_ends_are_the_last_that_is_heard() {
        for (bytes, expected) in [
            (&b"\0\0\0\x02{}"[..], "not a message of this protocol"),
            (&[0xff; 8], "a frame of 4294967295 bytes"),
            (b"\0\0\0\x09{", "end of file"),
            (b"", "end of file"),
        ] {
            let mut wires = Wires::<Up>::new(MOST).unwrap();
            let (mut far, near) = pair();
            wires.add(5, near).unwrap();
            far.write_all(bytes).unwrap();
            drop(far);
            let Some((5, Heard::Lost(why))) = wires.hear(LONG) else { panic!("nothing was heard") };
            assert!(why.to_string().contains(expected), "{why}");
            assert!(wires.stream(5).is_none() && wires.hear(Duration::from_millis(20)).is_none());
        }
    }

    #[test]
    fn who_does_not_take_a_message_in_time_is_lost() {
        let mut wires = Wires::<Up>::new(MOST).unwrap();
        let (_far, near) = pair();
        near.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        wires.add(0, near).unwrap();
        wires.tell(0, &vec![0; 64 << 20]);
        assert!(matches!(wires.hear(LONG), Some((0, Heard::Lost(_)))));
    }
}
