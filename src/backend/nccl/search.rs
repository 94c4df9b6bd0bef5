//! Where `libnccl.so.2` is looked for, in order, and what to say when it is nowhere.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The name that NCCL's packages install.
pub const FILE: &str = "libnccl.so.2";

/// What the search depends on, so that it can be tried without touching the process.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `--nccl`.
    pub argument: Option<PathBuf>,
    /// `$COLLCHECK_NCCL`.
    pub variable: Option<PathBuf>,
    /// `$LD_LIBRARY_PATH`, split.
    pub library_path: Vec<PathBuf>,
    /// Directories that hold `lib/python3*`: virtual environments first.
    pub python_prefixes: Vec<PathBuf>,
}

/// One place and what was found there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    place: String,
    found: String,
}

/// No place has a usable library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound(Vec<Look>);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no usable {FILE} found; looked at:")?;
        for look in &self.0 {
            write!(f, "\n  {}: {}", look.place, look.found)?;
        }
        Ok(())
    }
}

impl Places {
    /// This process's places.
    pub fn of_process(argument: Option<PathBuf>) -> Places {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let split = |value: OsString| std::env::split_paths(&value).collect::<Vec<_>>();
        let path = set("PATH").map(split).unwrap_or_default();
        let mut prefixes: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).map(PathBuf::from).collect();
        prefixes.extend(path.iter().filter_map(|directory| python_prefix(directory)).flatten());
        prefixes.extend(set("HOME").map(|home| Path::new(&home).join(".local")));
        prefixes.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
        let mut seen = std::collections::HashSet::new();
        prefixes.retain(|prefix| seen.insert(prefix.clone()));
        Places {
            argument,
            variable: set("COLLCHECK_NCCL").map(PathBuf::from),
            library_path: set("LD_LIBRARY_PATH").map(split).unwrap_or_default(),
            python_prefixes: prefixes,
        }
    }

    /// Opens the first library that there is.
    ///
    /// A file that was asked for by argument or variable is the only candidate: nothing else is tried in its place. What
    /// is merely found is passed over when it does not open, and the reason is kept for the message.
    pub fn find<T>(&self, mut open: impl FnMut(&Path) -> Result<T, String>) -> Result<T, NotFound> {
        let asked = [("--nccl", &self.argument), ("$COLLCHECK_NCCL", &self.variable)];
        let mut looks = Vec::new();
        for (place, file) in asked {
            if let Some(file) = file {
                let place = format!("{place} {}", file.display());
                return open(file).map_err(|found| NotFound(vec![Look { place, found }]));
            }
            looks.push(Look { place: place.to_owned(), found: "not given".to_owned() });
        }

        if self.library_path.is_empty() {
            looks.push(Look { place: "LD_LIBRARY_PATH".to_owned(), found: "not set".to_owned() });
        }
        for directory in &self.library_path {
            let place = format!("LD_LIBRARY_PATH {}", directory.display());
            match try_file(&directory.join(FILE), &mut open) {
                Ok(library) => return Ok(library),
                Err(found) => looks.push(Look { place, found }),
            }
        }

        match open(Path::new(FILE)) {
            Ok(library) => return Ok(library),
            Err(found) => looks.push(Look { place: "the loader (ldconfig)".to_owned(), found }),
        }

        for prefix in &self.python_prefixes {
            let packages = site_packages(prefix);
            if packages.is_empty() {
                let place = format!("site-packages under {}", prefix.display());
                looks.push(Look { place, found: "no Python 3".to_owned() });
            }
            for directory in packages {
                let place = format!("site-packages {}", directory.display());
                match try_file(&directory.join("nvidia/nccl/lib").join(FILE), &mut open) {
                    Ok(library) => return Ok(library),
                    Err(found) => looks.push(Look { place, found }),
                }
            }
        }
        Err(NotFound(looks))
    }
}

fn try_file<T>(file: &Path, open: &mut impl FnMut(&Path) -> Result<T, String>) -> Result<T, String> {
    if file.is_file() { open(file) } else { Err("not there".to_owned()) }
}

/// The prefixes of the `python3` in a directory of `$PATH`: its own, and that of the file it links to.
fn python_prefix(directory: &Path) -> Option<Vec<PathBuf>> {
    let python = directory.join("python3");
    let target = fs::canonicalize(&python).ok()?;
    let own = directory.parent().map(Path::to_path_buf);
    let linked = target.parent().and_then(Path::parent).map(Path::to_path_buf);
    Some(own.into_iter().chain(linked).collect())
}

/// `site-packages` (Debian: `dist-packages`) of every Python 3 under a prefix, the newest first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        let Ok(entries) = fs::read_dir(prefix.join(lib)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(version) = name.to_str().and_then(|n| n.strip_prefix("python3")) else { continue };
            let minor: u32 = version.strip_prefix('.').and_then(|v| v.parse().ok()).unwrap_or(0);
            for packages in ["site-packages", "dist-packages"] {
                let directory = entry.path().join(packages);
                if directory.is_dir() {
                    found.push((minor, directory));
                }
            }
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, directory)| directory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of fake libraries: opening returns the path, and files named in `broken` do not open.
    struct Tree {
        root: tempfile::TempDir,
    }

    impl Tree {
        fn new(files: &[&str]) -> Tree {
            let root = tempfile::tempdir().unwrap();
            for file in files {
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, b"").unwrap();
            }
            Tree { root }
        }

        fn path(&self, relative: &str) -> PathBuf {
            self.root.path().join(relative)
        }
    }

    fn existing(path: &Path) -> Result<PathBuf, String> {
        if path.is_file() { Ok(path.to_path_buf()) } else { Err("cannot open".to_owned()) }
    }

    const SITE: &str = "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";

    #[test]
    fn each_place_is_used_when_those_before_it_have_nothing() {
        let tree = Tree::new(&["given.so", "variable.so", "ld/libnccl.so.2", SITE]);
        let mut places = Places {
            argument: Some(tree.path("given.so")),
            variable: Some(tree.path("variable.so")),
            library_path: vec![tree.path("empty"), tree.path("ld")],
            python_prefixes: vec![tree.path("venv")],
        };
        assert_eq!(places.find(existing), Ok(tree.path("given.so")));
        places.argument = None;
        assert_eq!(places.find(existing), Ok(tree.path("variable.so")));
        places.variable = None;
        assert_eq!(places.find(existing), Ok(tree.path("ld/libnccl.so.2")));
        places.library_path.pop();
        assert_eq!(places.find(existing), Ok(tree.path(SITE)));
        let by_loader = |path: &Path| if path == Path::new(FILE) { Ok("loader") } else { Err(String::new()) };
        assert_eq!(places.find(by_loader), Ok("loader"));
    }

    #[test]
    fn a_file_that_was_asked_for_has_no_substitute() {
        let tree = Tree::new(&["ld/libnccl.so.2"]);
        let places =
            Places { argument: Some(tree.path("absent.so")), library_path: vec![tree.path("ld")], ..Places::default() };
        let message = places.find(existing).unwrap_err().to_string();
        assert!(message.contains("--nccl") && message.contains("absent.so"), "{message}");
        assert!(!message.contains("LD_LIBRARY_PATH"), "{message}");
    }

    #[test]
    fn a_file_that_does_not_open_is_passed_over_and_remembered() {
        let tree = Tree::new(&["ld/libnccl.so.2", SITE]);
        let places = Places {
            library_path: vec![tree.path("ld")],
            python_prefixes: vec![tree.path("venv")],
            ..Places::default()
        };
        let found =
            places.find(|path| if path.ends_with("ld/libnccl.so.2") { Err("bad".into()) } else { existing(path) });
        assert_eq!(found, Ok(tree.path(SITE)));
        let message = places.find(|_| Err::<(), _>("wrong ELF class".to_owned())).unwrap_err().to_string();
        assert!(message.contains("wrong ELF class"), "{message}");
    }

    #[test]
    fn the_message_names_every_place() {
        let tree = Tree::new(&["venv/lib/python3.12/site-packages/other"]);
        let places = Places {
            library_path: vec![tree.path("ld")],
            python_prefixes: vec![tree.path("venv"), tree.path("nothing")],
            ..Places::default()
        };
        let message = places.find(existing).unwrap_err().to_string();
        let ld = tree.path("ld").display().to_string();
        let site = tree.path("venv/lib/python3.12/site-packages").display().to_string();
        let nothing = tree.path("nothing").display().to_string();
        for part in ["--nccl: not given", "$COLLCHECK_NCCL", &ld, "the loader", &site, &nothing] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }

    #[test]
    fn the_newest_python_comes_first() {
        let tree = Tree::new(&["p/lib/python3.9/site-packages/x", "p/lib/python3.12/site-packages/x"]);
        let packages = site_packages(&tree.path("p"));
        assert_eq!(packages.first(), Some(&tree.path("p/lib/python3.12/site-packages")));
    }
}
