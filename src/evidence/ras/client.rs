//! Asking a process of a job for the job's state.
//!
//! Lines over TCP, to the address of `NCCL_RAS_ADDR`: the client names its protocol, sets how long the answer may be gathered,
//! and asks; the report then comes until the connection is closed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The protocol's number, which has been the same since there is RAS.
const PROTOCOL: &str = "2";

/// Bytes of a report that are read: those of thousands of ranks.
const MOST: u64 = 8 << 20;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens, or the connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Somebody else listens there.
    #[error("whoever listens at {0} is no RAS of NCCL's")]
    Stranger(String),
}

/// The report in words. `limit` is for all of it; a third of that is what the job's processes get to answer each other.
pub fn ask(address: &str, limit: Duration) -> Result<String, AskError> {
    let end = Instant::now() + limit;
    let mut refused = io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{address} is no address"));
    let mut stream = None;
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, left(end)?) {
            Ok(connected) => {
                stream = Some(connected);
                break;
            }
            Err(why) => refused = why,
        }
    }
    let stream = stream.ok_or(refused)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let say = |line: &str| -> io::Result<()> {
        stream.set_write_timeout(Some(left(end)?))?;
        (&stream).write_all(line.as_bytes())
    };
    let hear = |answers: &mut BufReader<TcpStream>| -> io::Result<String> {
        answers.get_ref().set_read_timeout(Some(left(end)?))?;
        let mut line = Vec::new();
        answers.by_ref().take(200).read_until(b'\n', &mut line)?;
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    };
    say(&format!("CLIENT PROTOCOL {PROTOCOL}\n"))?;
    if !hear(&mut answers)?.starts_with("SERVER PROTOCOL") {
        return Err(AskError::Stranger(address.to_owned()));
    }
    say(&format!("TIMEOUT {}\n", (limit.as_secs() / 3).max(1)))?;
    let _ = hear(&mut answers)?; // `OK`; without it the default holds
    say("STATUS\n")?;
    let mut report = Vec::new();
    let mut piece = [0; 16 << 10];
    while (report.len() as u64) < MOST {
        let Ok(wait) = left(end) else { break };
        answers.get_ref().set_read_timeout(Some(wait))?;
        match answers.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => report.extend_from_slice(piece.get(..read).unwrap_or_default()),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            // what came so far is worth something
            Err(_) => break,
        }
    }
    Ok(String::from_utf8_lossy(&report).into_owned())
}

/// What is left of the time.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers each line with the next of `answers`, then sends the rest and hangs up; or not, and stays.
    fn server(answers: &'static [&'static str], report: &'static str, stays: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                let _ = lines.next();
                let _ = stream.write_all(answer.as_bytes());
            }
            let asked = lines.next();
            assert!(asked.is_none_or(|line| line.is_ok_and(|line| line == "STATUS")));
            let _ = stream.write_all(report.as_bytes());
            if stays {
                std::thread::sleep(Duration::from_secs(60));
            }
        });
        address
    }

    #[test]
    fn a_report_is_read_to_its_end() {
        let address = server(&["SERVER PROTOCOL 2\n", "OK\n"], "Errors\n======\n", false);
        assert_eq!(ask(&address, Duration::from_secs(3)).unwrap(), "Errors\n======\n");
    }

    #[test]
    fn one_that_never_ends_is_kept_as_far_as_it_came() {
        let address = server(&["SERVER PROTOCOL 2\n", "OK\n"], "Errors\n", true);
        let start = Instant::now();
        assert_eq!(ask(&address, Duration::from_millis(300)).unwrap(), "Errors\n");
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn strangers_and_closed_doors_are_told_apart_and_cost_no_more_than_the_limit() {
        let stranger = server(&["HTTP/1.1 400 Bad Request\r\n"], "", true);
        assert!(matches!(ask(&stranger, Duration::from_secs(3)), Err(AskError::Stranger(_))));
        let silent = server(&[""], "", true);
        let start = Instant::now();
        assert!(ask(&silent, Duration::from_millis(200)).is_err());
        assert!(start.elapsed() < Duration::from_secs(2));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(ask(&free.to_string(), Duration::from_secs(1)), Err(AskError::Io(_))));
        assert!(ask("no address", Duration::from_secs(1)).is_err());
    }
}
