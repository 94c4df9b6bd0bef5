//! Files that are never seen half written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A report file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {reason}", .path.display())]
pub struct CannotWrite {
    /// The path as it was asked for.
    pub path: PathBuf,
    /// What the system said.
    pub reason: io::Error,
}

/// A path whose content is replaced as a whole.
///
/// New content goes to a temporary file beside it, which is then renamed. A path that is no regular file (`/dev/stdout`,
/// a named pipe) is written directly, as a rename would put a file in its place.
#[derive(Debug)]
pub struct WholeFile {
    asked: PathBuf,
    target: PathBuf,
    temporary: Option<PathBuf>,
}

impl WholeFile {
    /// Finds out whether the path can be written, by writing beside it. Existing content stays.
    pub fn create(path: &Path) -> Result<WholeFile, CannotWrite> {
        let cannot = |reason| CannotWrite { path: path.to_owned(), reason };
        // Through a symbolic link, so that the link stays one.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let temporary = match fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => return Err(cannot(io::Error::other("it is a directory"))),
            Ok(meta) if !meta.is_file() => None,
            _ => Some(beside(&target).map_err(cannot)?),
        };
        match &temporary {
            Some(temporary) => {
                File::create(temporary).and_then(|_| fs::remove_file(temporary)).map_err(cannot)?;
            }
            None => drop(OpenOptions::new().write(true).open(&target).map_err(cannot)?),
        }
        Ok(WholeFile { asked: path.to_owned(), target, temporary })
    }

    /// Whether content can be replaced again and again, as in a regular file.
    pub fn is_regular(&self) -> bool {
        self.temporary.is_some()
    }

    /// Replaces the content by what `write` writes. After an error the old content is still there.
    pub fn replace(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CannotWrite> {
        let result = match &self.temporary {
            None => OpenOptions::new().write(true).open(&self.target).and_then(|file| fill(file, write)).map(drop),
            Some(temporary) => File::create(temporary)
                .and_then(|file| fill(file, write))
                .and_then(|file| file.sync_data())
                .and_then(|()| fs::rename(temporary, &self.target))
                .inspect_err(|_| drop(fs::remove_file(temporary))),
        };
        result.map_err(|reason| CannotWrite { path: self.asked.clone(), reason })
    }

    /// Removes the file, if it is a regular one and there.
    pub fn remove(&self) -> Result<(), CannotWrite> {
        if !self.is_regular() {
            return Ok(());
        }
        match fs::remove_file(&self.target) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(CannotWrite { path: self.asked.clone(), reason: e }),
            _ => Ok(()),
        }
    }
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut buffer = BufWriter::new(file);
    write(&mut buffer)?;
    buffer.into_inner().map_err(io::IntoInnerError::into_error)
}

/// The temporary file's path; the process id keeps two runs with one output file apart.
fn beside(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let directory = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("directory {} does not exist", directory.display()),
        ));
    }
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(directory.join(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn creation_leaves_content_and_directory_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        WholeFile::create(&path).unwrap();
        assert_eq!(entries(dir.path()), 0);
        fs::write(&path, "old").unwrap();
        WholeFile::create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_content_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        let file = WholeFile::create(&path).unwrap();
        file.replace(|w| w.write_all(b"old")).unwrap();
        let error = file
            .replace(|w| {
                w.write_all(b"half")?;
                Err(io::Error::other("no more"))
            })
            .unwrap_err();
        assert!(error.to_string().ends_with("report: no more"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(entries(dir.path()), 1);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/such/junit.xml");
        let error = WholeFile::create(&missing).unwrap_err().to_string();
        assert!(error.contains("no/such/junit.xml") && error.contains("does not exist"), "{error}");
        let error = WholeFile::create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is a directory"), "{error}");
        let error = WholeFile::create(Path::new("/proc/junit.xml")).unwrap_err().to_string();
        assert!(error.contains("/proc/junit.xml"), "{error}");
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        WholeFile::create(&link).unwrap().replace(|w| w.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let file = WholeFile::create(Path::new("/dev/null")).unwrap();
        assert!(!file.is_regular());
        file.replace(|w| w.write_all(b"gone")).unwrap();
        file.remove().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
