//! NCCL's log as it grows.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::evidence::nccl_log::{Line, Reader};

/// A log that NCCL of this process writes. It ends lines one by one, so what it said of a launch is there after it.
pub struct Tail {
    path: PathBuf,
    /// Removed as soon as both ends have it open, so that nothing stays behind however the process ends.
    ours: bool,
    /// `None` until NCCL has made it.
    file: Option<File>,
    reader: Reader,
}

impl Tail {
    /// The log in that file, which need not exist yet.
    pub fn new(path: PathBuf, ours: bool) -> Tail {
        Tail { path, ours, file: None, reader: Reader::default() }
    }

    /// What was written since it was last asked. A log that cannot be read says nothing.
    pub fn take(&mut self) -> Vec<Line> {
        if self.file.is_none() {
            self.open();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        let (position, length) = (file.stream_position(), file.metadata().map(|m| m.len()));
        if let (Ok(position), Ok(length)) = (position, length)
            && length < position
        {
            // begun anew
            let _ = file.seek(SeekFrom::Start(0));
            self.reader = Reader::default();
        }
        let mut bytes = Vec::new();
        let _ = file.read_to_end(&mut bytes);
        self.reader.feed(&bytes)
    }

    fn open(&mut self) {
        // a terminal or a pipe would be waited for
        if !self.path.metadata().is_ok_and(|m| m.is_file()) {
            return;
        }
        self.file = File::open(&self.path).ok();
        if self.file.is_some() {
            self.clear();
        }
    }

    fn clear(&self) {
        if self.ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        if self.file.is_none() {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LINE: &str = "n:1:2 [0] NCCL INFO Connected all trees\n";

    #[test]
    fn only_what_is_new_is_taken_and_our_file_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(path.clone(), true);
        assert!(tail.take().is_empty());
        let mut file = File::create(&path).unwrap();
        file.write_all(LINE.as_bytes()).unwrap();
        assert_eq!(tail.take().len(), 1);
        assert!(!path.exists());
        file.write_all(&LINE.as_bytes()[..20]).unwrap();
        assert!(tail.take().is_empty());
        file.write_all(&LINE.as_bytes()[20..]).unwrap();
        assert_eq!(tail.take().len(), 1);
    }

    #[test]
    fn a_users_log_stays_and_may_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, LINE.repeat(3)).unwrap();
        let mut tail = Tail::new(path.clone(), false);
        assert_eq!(tail.take().len(), 3);
        fs::write(&path, LINE).unwrap();
        assert_eq!(tail.take().len(), 1);
        drop(tail);
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_file_says_nothing() {
        assert!(Tail::new("/dev/stdin".into(), false).take().is_empty());
        assert!(Tail::new("/no/such/log".into(), true).take().is_empty());
    }
}
