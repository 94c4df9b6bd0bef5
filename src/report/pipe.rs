//! A writer whose reader may leave.

use std::io::{self, ErrorKind, Write};

/// Passes writes on until the other end of the pipe is closed, and from then on drops them without an error.
///
/// `collcheck run | head` is no failed run: files are still written, and the exit code still counts.
pub struct Pipe {
    inner: Option<Box<dyn Write + Send>>,
}

impl Pipe {
    /// Wraps a writer.
    pub fn new(inner: Box<dyn Write + Send>) -> Pipe {
        Pipe { inner: Some(inner) }
    }

    fn ask<T>(&mut self, gone: T, act: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        let Some(inner) = &mut self.inner else { return Ok(gone) };
        match act(inner.as_mut()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.inner = None;
                Ok(gone)
            }
            result => result,
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ask(bytes.len(), |inner| inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ask((), |inner| inner.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut pipe = Pipe::new(Box::new(writer));
        for _ in 0..3 {
            pipe.write_all(b"to nobody\n").unwrap();
            pipe.flush().unwrap();
        }
    }

    #[test]
    fn any_other_error_is_one() {
        assert_eq!(Pipe::new(Box::new(Full)).write(b"x").unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
