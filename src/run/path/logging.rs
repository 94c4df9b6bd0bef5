//! Whether NCCL's log says which paths it takes, and where.

use std::path::{Path, PathBuf};

use super::setting::{Lookup, of_process};

const DEBUG: &str = "NCCL_DEBUG";
const SUBSYS: &str = "NCCL_DEBUG_SUBSYS";
const FILE: &str = "NCCL_DEBUG_FILE";

/// In front of the names of files that are not the user's, and go when they have been opened.
const OURS: &str = "collcheck-path-";

/// What the variables make of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logging {
    /// Nothing: no log is asked for.
    Unset,
    /// NCCL writes paths to this file.
    On {
        /// The file, of this process.
        file: PathBuf,
        /// It is not the user's.
        ours: bool,
    },
    /// A log is asked for that says nothing of paths, or cannot be read: why.
    Off(String),
}

impl Logging {
    /// By the variables of this process.
    pub fn of_process() -> Logging {
        Logging::of(&of_process, std::process::id())
    }

    /// By the variables of this process, for one that it has started with them.
    pub fn of_child(pid: u32) -> Logging {
        Logging::of(&of_process, pid)
    }

    fn of(lookup: &Lookup<'_>, pid: u32) -> Logging {
        let given = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let Some(level) = given(DEBUG) else { return Logging::Unset };
        if !["INFO", "TRACE"].iter().any(|enough| level.eq_ignore_ascii_case(enough)) {
            return Logging::Off(format!("{DEBUG} is {level}, and paths are logged from INFO on"));
        }
        if !logs_tuning(given(SUBSYS).as_deref()) {
            return Logging::Off(format!("{DEBUG} is set, and {SUBSYS} leaves out TUNING"));
        }
        match given(FILE) {
            Some(pattern) => {
                let file = PathBuf::from(expand(&pattern, pid));
                let ours = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OURS));
                Logging::On { file, ours }
            }
            None => Logging::Off(format!("{DEBUG} is set and {FILE} is not, so that the log cannot be read")),
        }
    }
}

/// As NCCL reads `NCCL_DEBUG_SUBSYS` (debug.cc): a list, or with `^` in front all but a list.
fn logs_tuning(subsystems: Option<&str>) -> bool {
    let Some(list) = subsystems else { return false };
    let (without, list) = list.strip_prefix('^').map_or((false, list), |list| (true, list));
    let names = |wanted: &str| list.split(',').any(|name| name.eq_ignore_ascii_case(wanted));
    (names("TUNING") || names("ALL")) != without
}

/// As NCCL expands `NCCL_DEBUG_FILE`: `%p` is the process, `%h` the host, `%%` a percent sign.
fn expand(pattern: &str, pid: u32) -> String {
    let mut out = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '%' { rest.next() } else { None }) {
            ('%', Some('p')) => out += &pid.to_string(),
            ('%', Some('h')) => out += &host(),
            ('%', Some('%')) => out.push('%'),
            ('%', Some(other)) => out.extend(['%', other]),
            (other, _) => out.push(other),
        }
    }
    out
}

/// The host's name up to its first dot.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

/// Variables that make NCCL write its paths to a new file.
pub fn settings() -> [(&'static str, String); 3] {
    // a name that nobody else can foresee: the folder may be everybody's
    let file = std::env::temp_dir().join(format!("{OURS}{:016x}.%p.log", rand::random::<u64>()));
    let folder = file.parent().map(|f| f.display().to_string().replace('%', "%%")).unwrap_or_default();
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = Path::new(&folder).join(name).display().to_string();
    [(DEBUG, "INFO".to_owned()), (SUBSYS, "TUNING".to_owned()), (FILE, file)]
}

/// The file that a process with these variables writes, where it is not the user's.
pub fn file_of(settings: &[(&'static str, String)], pid: u32) -> Option<PathBuf> {
    let lookup = |name: &str| settings.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone());
    match Logging::of(&lookup, pid) {
        Logging::On { file, ours: true } => Some(file),
        _ => None,
    }
}

/// Starts this program again in its place, with variables that make NCCL log its paths to a file. Returns only if that cannot be done.
pub fn restart_with_log() -> anyhow::Error {
    let attempt = || -> std::io::Result<std::convert::Infallible> {
        let mut args = std::env::args_os();
        let name = args.next().unwrap_or_default();
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(args).envs(settings());
        replace(command, &name)
    };
    match attempt() {
        Ok(never) => match never {},
        Err(error) => anyhow::Error::new(error).context("cannot start again with NCCL's log"),
    }
}

#[cfg(unix)]
fn replace(mut command: std::process::Command, name: &std::ffi::OsStr) -> std::io::Result<std::convert::Infallible> {
    use std::os::unix::process::CommandExt;
    Err(command.arg0(name).exec())
}

#[cfg(not(unix))]
fn replace(_: std::process::Command, _: &std::ffi::OsStr) -> std::io::Result<std::convert::Infallible> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Logging {
        Logging::of(&|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()), 42)
    }

    #[test]
    fn what_the_user_has_set_stands() {
        let on = |file: &str| Logging::On { file: file.into(), ours: false };
        assert_eq!(of(&[(SUBSYS, "INIT"), (FILE, "/tmp/x")]), Logging::Unset);
        assert_eq!(of(&[(DEBUG, "")]), Logging::Unset);
        let full = |subsys| of(&[(DEBUG, "info"), (SUBSYS, subsys), (FILE, "/tmp/n.%p.%%.%q")]);
        assert_eq!(full("INIT,tuning"), on("/tmp/n.42.%.%q"));
        assert_eq!((full("ALL"), full("^COLL")), (on("/tmp/n.42.%.%q"), on("/tmp/n.42.%.%q")));
        for (variables, says) in [
            (&[(DEBUG, "WARN"), (FILE, "/tmp/x")][..], "NCCL_DEBUG is WARN"),
            (&[(DEBUG, "INFO"), (FILE, "/tmp/x")][..], "leaves out TUNING"),
            (&[(DEBUG, "INFO"), (SUBSYS, "^TUNING"), (FILE, "/tmp/x")][..], "leaves out TUNING"),
            (&[(DEBUG, "INFO"), (SUBSYS, "TUNING")][..], "NCCL_DEBUG_FILE is not"),
        ] {
            assert!(matches!(of(variables), Logging::Off(why) if why.contains(says)), "{variables:?}");
        }
    }

    #[test]
    fn the_variables_that_are_set_are_understood_by_the_process_that_has_them() {
        let settings = settings();
        let file = file_of(&settings, 42).expect("a file of ours");
        assert!(file.starts_with(std::env::temp_dir()) && file.to_string_lossy().ends_with(".42.log"), "{file:?}");
        assert_ne!(file_of(&super::settings(), 42), Some(file));
    }
}
