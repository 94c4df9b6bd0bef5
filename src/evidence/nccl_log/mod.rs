//! NCCL's log (`NCCL_DEBUG=INFO`), as NCCL 2.18 to 2.30 write it.
//!
//! ```text
//! prefix   who wrote a line, and at which level      scan   reading along a text
//! tuning   what a launch runs as                     coll   a collective, as it was called
//! init     a communicator begins or ends             connected  its rings and trees stand
//! channel  one connection   net  networks   gdr  GPU Direct RDMA   nvls  multicast   bootstrap  the way to the others
//! env      a variable that counts                    version    which NCCL
//! ```
//!
//! The wording of lines is from NCCL's source at the tags named beside each unit. A line is taken for one of a kind only
//! where it has all that the kind needs: a log may be cut off, and lines of several processes may have run into another.
//! Everything else is [`Message::Other`] with its text.

mod bootstrap;
mod channel;
mod coll;
mod connected;
mod env;
mod gdr;
mod init;
mod net;
mod nvls;
mod prefix;
mod scan;
mod tuning;
mod version;

pub use bootstrap::Bootstrap;
pub use channel::{Channel, Direction, End};
pub use coll::Coll;
pub use connected::Connected;
pub use env::Variable;
pub use gdr::Gdr;
pub use init::{Init, Stage};
pub use net::Net;
pub use nvls::Nvls;
pub use prefix::{Level, Prefix};
pub use tuning::{Choice, Tuning};
pub use version::NcclVersion;

/// One line of NCCL's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Who wrote it.
    pub prefix: Prefix,
    /// How much it matters.
    pub level: Level,
    /// What follows the level.
    pub text: String,
    /// What the text means.
    pub message: Message,
}

/// What a line means.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Message {
    Tuning(Tuning),
    Coll(Coll),
    Init(Init),
    Variable(Variable),
    Channel(Channel),
    Connected(Connected),
    Net(Net),
    Gdr(Gdr),
    Nvls(Nvls),
    Bootstrap(Bootstrap),
    Version(NcclVersion),
    /// None of these. The text of warnings ends up here.
    Other,
}

impl Message {
    /// What the text of a line means.
    pub fn read(text: &str) -> Message {
        let text = text.trim();
        None.or_else(|| Tuning::read(text).map(Message::Tuning))
            .or_else(|| Coll::read(text).map(Message::Coll))
            .or_else(|| Init::read(text).map(Message::Init))
            .or_else(|| Variable::read(text).map(Message::Variable))
            .or_else(|| Channel::read(text).map(Message::Channel))
            .or_else(|| Connected::read(text).map(Message::Connected))
            .or_else(|| Gdr::read(text).map(Message::Gdr))
            .or_else(|| Net::read(text).map(Message::Net))
            .or_else(|| Nvls::read(text).map(Message::Nvls))
            .or_else(|| Bootstrap::read(text).map(Message::Bootstrap))
            .or_else(|| NcclVersion::read(text).map(Message::Version))
            .unwrap_or(Message::Other)
    }
}

/// All lines of NCCL's in a log. Lines of other programs are left out; invalid UTF-8 is replaced.
pub fn read(bytes: &[u8]) -> Vec<Line> {
    let mut reader = Reader::default();
    let mut lines = reader.feed(bytes);
    lines.extend(reader.end());
    lines
}

/// Reads a log that is still being written.
#[derive(Debug, Default)]
pub struct Reader {
    /// What came after the last end of line.
    rest: Vec<u8>,
}

impl Reader {
    /// The lines that these bytes complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Line> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        whole.split(|&byte| byte == b'\n').flat_map(of_bytes).collect()
    }

    /// What is left of a last line without an end.
    pub fn end(self) -> Vec<Line> {
        of_bytes(&self.rest)
    }
}

fn of_bytes(line: &[u8]) -> Vec<Line> {
    let line = String::from_utf8_lossy(line);
    let parts = prefix::split(line.trim_end_matches('\r')).into_iter();
    parts
        .map(|part| Line {
            message: Message::read(part.text),
            text: part.text.to_owned(),
            level: part.level,
            prefix: part.prefix,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "vm:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n";

    #[test]
    fn a_line_counts_once_it_has_ended() {
        let mut reader = Reader::default();
        let (first, second) = LINE.as_bytes().split_at(60);
        assert!(reader.feed(first).is_empty());
        assert!(matches!(reader.feed(second)[..], [Line { message: Message::Tuning(_), .. }]));
        assert!(reader.feed(b"").is_empty());
        assert!(reader.end().is_empty());
    }

    #[test]
    fn a_log_that_is_cut_off_keeps_what_it_had() {
        let text = format!("{LINE}vm:1:2 [0] NCCL INFO Connected all tr");
        let lines = read(text.as_bytes());
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[1].message, lines[1].text.as_str()), (&Message::Other, "Connected all tr"));
    }

    #[test]
    fn lines_of_other_programs_are_left_out() {
        let text = "step 3\nhint: look at NCCL WARN lines\n\nNCCL INFO without a writer\n";
        assert_eq!(read(text.as_bytes()), []);
    }
}
