//! One loaded NCCL: its path, its version, its functions, and how its failures are told.

use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use super::api::{self, Api, Code, Comm, UniqueId};
use super::version::Version;
use crate::backend::RankError;

/// A loaded NCCL.
pub struct Library {
    /// Its functions.
    pub api: Api,
    /// The file it came from.
    pub path: PathBuf,
    /// What it says it is.
    pub version: Version,
    /// Never closed: NCCL's threads and exit handlers outlive any communicator.
    _handle: ManuallyDrop<Handle>,
}

impl Library {
    /// Loads a library and asks its version. A name without a slash is looked up by the loader.
    ///
    /// Symbols stay local, so that two versions can be held in one process.
    pub fn open(path: &Path) -> Result<Library, String> {
        // SAFETY: the library's initialisers run. NCCL's have no precondition, and who names a file vouches for it.
        let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| reason(&e))?;
        let handle = ManuallyDrop::new(handle);

        // SAFETY: `ncclGetVersion` has had this type since NCCL 1.
        let get_version = unsafe { handle.get::<unsafe extern "C" fn(*mut c_int) -> Code>("ncclGetVersion") }
            .map_err(|_| "is not NCCL: it has no ncclGetVersion".to_owned())?;
        let mut code: c_int = 0;
        // SAFETY: the pointer is good for one int.
        let result = unsafe { get_version(&mut code) };
        let version = Version::from_code(code)
            .filter(|_| result == api::SUCCESS)
            .ok_or_else(|| format!("ncclGetVersion answered {} and {code}", api::code_name(result)))?;
        let file = loaded_from(*get_version as usize).unwrap_or_else(|| path.to_path_buf());
        if version < Version::OLDEST || version.major != Version::OLDEST.major {
            let oldest = Version::OLDEST;
            return Err(format!("{} is NCCL {version}; collcheck drives 2.x from {oldest} on", file.display()));
        }

        // SAFETY: it is NCCL 2, and is never unloaded.
        let api = unsafe { Api::load(&handle) }
            .map_err(|symbol| format!("{} is NCCL {version} but has no {symbol}", file.display()))?;
        Ok(Library { api, path: file, version, _handle: handle })
    }

    /// Says what needs a newer library than this one, if it is older than `since`.
    pub fn require(&self, what: &str, since: Version) -> Result<(), RankError> {
        if self.version >= since {
            return Ok(());
        }
        Err(RankError::Unsupported(needs(what, since, self.version, &self.path)))
    }

    /// A new id for a communicator.
    pub fn unique_id(&self) -> Result<UniqueId, RankError> {
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: the pointer is good for one id.
        let code = unsafe { (self.api.unique_id)(&mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// An error for any code but success.
    pub fn check(&self, call: &str, code: Code) -> Result<(), RankError> {
        if code == api::SUCCESS { Ok(()) } else { Err(self.failure(call, code)) }
    }

    /// What a failed call means: [`RankError::Refused`] where NCCL turned the arguments down before doing anything,
    /// else [`RankError::Broken`].
    #[cold]
    pub fn failure(&self, call: &str, code: Code) -> RankError {
        // SAFETY: the communicator may be null; the text lives in the library.
        let last = settled(|| unsafe { text((self.api.last_error)(ptr::null_mut::<std::ffi::c_void>() as Comm)) });
        if code == api::INVALID_ARGUMENT || code == api::INVALID_USAGE {
            return RankError::Refused { call: call.to_owned(), code: api::code_name(code), message: last };
        }
        // SAFETY: answers any code with a text that lives in the library.
        let what = unsafe { text((self.api.error_string)(code)) };
        let mut message = format!("{} ({what})", api::code_name(code));
        if !last.is_empty() {
            message = format!("{message}: {last}");
        }
        RankError::Broken { call: call.to_owned(), message }
    }
}

/// "... needs NCCL >= 2.24.3, this is 2.19.3 (/usr/lib/libnccl.so.2)".
pub fn needs(what: &str, since: Version, version: Version, path: &Path) -> String {
    format!("{what} needs NCCL >= {since}, this is {version} ({})", path.display())
}

/// How often a text that changes is read again.
const READS: u32 = 16;

/// A text as two readings in a row have found it: all threads of a process share NCCL's last error, and where several ranks
/// fail at once, one reads what another is writing.
fn settled(mut read: impl FnMut() -> String) -> String {
    let mut last = read();
    for _ in 0..READS {
        std::thread::yield_now();
        let again = read();
        if again == last && !again.contains('\0') {
            break;
        }
        last = again;
    }
    last
}

/// The loader's text; libloading's own adds nothing to it.
fn reason(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// A text of the library's, on one line.
///
/// # Safety
/// The pointer must be null or point to a text that ends.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The file that the code at `address` was loaded from, as the kernel maps it.
fn loaded_from(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| mapped_file(line, address))
}

/// The file of a line of `/proc/self/maps`, if it covers `address`.
fn mapped_file(line: &str, address: usize) -> Option<PathBuf> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let path = line.get(line.find('/')?..)?;
    (start..end).contains(&address).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_lacks_is_said_with_versions_and_path() {
        let text = needs("dtype f8e4m3", Version::FLOAT8, Version::new(2, 19, 3), Path::new("/opt/libnccl.so.2"));
        assert_eq!(text, "dtype f8e4m3 needs NCCL >= 2.24.3, this is 2.19.3 (/opt/libnccl.so.2)");
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_loaders_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("libnccl.so.2");
        fs::write(&file, b"text").unwrap();
        let message = Library::open(&file).err().unwrap();
        assert!(message.contains("libnccl.so.2"), "{message}");
    }

    #[test]
    fn a_line_of_maps_gives_its_file_for_addresses_inside() {
        let line = "7f00-7f80 r-xp 00001000 08:01 42      /opt/a b/libnccl.so.2";
        assert_eq!(mapped_file(line, 0x7f7f), Some(PathBuf::from("/opt/a b/libnccl.so.2")));
        assert_eq!(mapped_file(line, 0x7f80), None);
        assert_eq!(mapped_file("7f00-7f80 rw-p 00000000 00:00 0", 0x7f00), None);
    }

    #[test]
    fn a_text_that_another_thread_is_writing_is_read_until_it_stands_still() {
        let mut readings = ["\0o algorithm", "No alg", "No algorithm", "No algorithm"].into_iter();
        assert_eq!(settled(|| readings.next().unwrap_or_default().to_owned()), "No algorithm");
        let mut changing = 0..;
        assert!(!settled(|| changing.next().unwrap_or(0).to_string()).is_empty());
    }
}
