//! Real NCCL libraries, on a machine with or without a GPU.
//!
//! `COLLCHECK_TEST_NCCL` names one or more `libnccl.so.2` files, separated by colons. Without it nothing is tested, and
//! each test says so.

use std::path::PathBuf;

use collcheck::backend::RankError;
use collcheck::backend::nccl::{Library, Places, Version};

fn libraries() -> Vec<Library> {
    let Some(paths) = std::env::var_os("COLLCHECK_TEST_NCCL") else {
        eprintln!("not run: COLLCHECK_TEST_NCCL names no library");
        return Vec::new();
    };
    std::env::split_paths(&paths)
        .map(|path| Library::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        .collect()
}

#[test]
fn libraries_of_several_versions_are_held_at_once_and_keep_their_own_version_and_path() {
    let libraries = libraries();
    let paths: Vec<PathBuf> =
        std::env::var_os("COLLCHECK_TEST_NCCL").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
    for (library, path) in libraries.iter().zip(paths) {
        assert!(library.version >= Version::OLDEST);
        assert_eq!(library.path, path.canonicalize().unwrap());
        eprintln!("{} is NCCL {}", library.path.display(), library.version);
    }
}

#[test]
fn a_library_makes_ids_that_differ() {
    for library in libraries() {
        let (a, b) = (library.unique_id().unwrap(), library.unique_id().unwrap());
        assert_ne!(a.internal, b.internal, "NCCL {}", library.version);
    }
}

#[test]
fn the_younger_collectives_are_there_from_2_28_3_on() {
    for library in libraries() {
        let there = library.version >= Version::new(2, 28, 3);
        let api = &library.api;
        assert_eq!(
            [api.alltoall.is_some(), api.gather.is_some(), api.scatter.is_some()],
            [there; 3],
            "NCCL {}",
            library.version
        );
    }
}

#[test]
fn windows_are_there_from_2_27_3_on() {
    for library in libraries() {
        let there = library.version >= Version::WINDOWS;
        let api = &library.api;
        assert_eq!(
            [api.window_register.is_some(), api.window_deregister.is_some()],
            [there; 2],
            "NCCL {}",
            library.version
        );
    }
}

#[test]
fn what_is_too_young_for_a_library_is_unsupported_and_names_both_versions() {
    for library in libraries() {
        let future = Version::new(2, 99, 1);
        let error = library.require("time travel", future).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, RankError::Unsupported(_)));
        for part in ["time travel needs NCCL >= 2.99.1", &library.version.to_string(), "libnccl.so"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(library.require("anything", Version::OLDEST), Ok(()));
    }
}

#[test]
fn a_misuse_is_refused_with_ncclinvalidusage_and_other_codes_break_the_rank() {
    for library in libraries() {
        // SAFETY: ending a group that was never started is an error that NCCL reports.
        let code = unsafe { (library.api.group_end)() };
        match library.check("ncclGroupEnd", code) {
            Err(RankError::Refused { call, code, message }) => {
                assert_eq!((call.as_str(), code.as_str()), ("ncclGroupEnd", "ncclInvalidUsage"));
                assert!(message.contains("not in a group"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        match library.failure("ncclAllReduce", 1) {
            RankError::Broken { call, message } => {
                assert_eq!(call, "ncclAllReduce");
                assert!(message.starts_with("ncclUnhandledCudaError (unhandled cuda error"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_file_asked_for_by_argument_is_the_one_that_is_opened() {
    for library in libraries() {
        let places = Places { argument: Some(library.path.clone()), ..Places::default() };
        assert_eq!(places.find(Library::open).map(|l| l.path).unwrap(), library.path);
    }
}
