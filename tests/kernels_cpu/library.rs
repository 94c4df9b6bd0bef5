//! Compiles a source under `src/kernels/cpu` to a shared library and opens it.

use std::path::Path;
use std::process::Command;

use libloading::Library;

/// One of the two languages.
pub struct Compiler {
    variable: &'static str,
    default: &'static str,
    standard: &'static str,
}

pub const C: Compiler = Compiler { variable: "CC", default: "cc", standard: "-std=c99" };
pub const CXX: Compiler = Compiler { variable: "CXX", default: "c++", standard: "-std=c++17" };

/// The compiled source, or `None` where there is no compiler and none is required. Fails if it does not compile.
pub fn compile(compiler: &Compiler, source: &str) -> Option<Library> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels/cpu").join(source);
    let program = std::env::var(compiler.variable).unwrap_or_else(|_| compiler.default.to_owned());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = directory.path().join("kernels.so");
    // a compiler may be named with arguments, as `ccache cc`
    let mut words = program.split_whitespace();
    let output = Command::new(words.next().unwrap_or(compiler.default))
        .args(words)
        .args([compiler.standard, "-O1", "-fPIC", "-shared", "-fno-strict-aliasing", "-o"])
        .args([&library, &source])
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            // SAFETY: the library was built from our own source just now and has no initialisers.
            Some(unsafe { Library::new(&library) }.expect("the library opens"))
        }
        Err(error) if std::env::var_os("COLLCHECK_REQUIRE_CC").is_some_and(|v| v == "1") => {
            panic!("{program}: {error}, and COLLCHECK_REQUIRE_CC=1")
        }
        Err(error) => {
            eprintln!("not tested: {program} does not run ({error})");
            None
        }
    }
}
