//! The command line: arguments in, exit code out. One module a command.

mod args;
pub mod bless;
pub mod execute;
mod exit;
mod interrupt;
mod launch;
mod list;
pub mod oracle;
pub mod run;
mod usage;
mod values;

use std::ffi::OsString;
use std::io::Write;

use crate::fleet::processes;

pub use args::{Cli, Command, command};
pub use exit::Exit;

/// Runs one command line, its first word being the program, and says on standard error why it ends early.
pub fn main<I>(args: I) -> Exit
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let cli = match args::parse(&args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, &args),
    };
    dispatch(cli.command, &args).unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        Exit::of(&error)
    })
}

/// Runs the cases of `collcheck run` as libtest's arguments say; its own options come from their environment twins.
pub fn run_as_tests(arguments: libtest_mimic::Arguments) -> Exit {
    let args = ["collcheck", "run"].map(OsString::from);
    let run = match args::parse(&args) {
        Ok(Cli { command: Command::Run(run) }) => run::prepare(*run, &args),
        Ok(_) => return Exit::Usage,
        Err(error) => return refuse(&error, &args),
    };
    run.and_then(|run| execute::as_tests(run, arguments)).unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        Exit::of(&error)
    })
}

/// One arm a command.
fn dispatch(command: Command, args: &[OsString]) -> anyhow::Result<Exit> {
    match command {
        Command::Run(run) => run::main(*run, args),
        Command::Worker => processes::member::main().map(|()| Exit::Passed),
        Command::List(selection) => list::print(&run::select(selection)?.1),
        Command::Bless(args) => bless::command(args),
        Command::Oracle(args) => oracle::command(args),
    }
}

/// Prints what clap has to say: help and version as they are, an error on one line.
fn refuse(error: &clap::Error, args: &[OsString]) -> Exit {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // a reader that has seen enough is no error
            let _ = error.print();
            Exit::Passed
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => {
            say(&usage::one_line(error, args));
            Exit::Usage
        }
    }
}

/// A line on standard error. Where even that is gone, the exit code is left.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
