//! Exit codes, the same for every command.

use std::io::Write;
use std::process::ExitCode;

use crate::backend::Unavailable;
use crate::fleet::team;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every selected case passed, or the command did what it was asked for.
    Passed = 0,
    /// Bad usage or input.
    Usage = 2,
    /// This machine cannot run it: no such backend, too few GPUs.
    Unable = 3,
    /// At least one case failed; the code that `cargo test` has.
    Failed = 101,
    /// Interrupted, as the shell counts SIGINT.
    Interrupted = 130,
}

impl Exit {
    /// The one with this number; what is none counts as a machine that cannot.
    pub fn of_code(code: u8) -> Exit {
        let all = [Exit::Passed, Exit::Usage, Exit::Unable, Exit::Failed, Exit::Interrupted];
        all.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Unable)
    }

    /// The code for an error that ended a command before it had results.
    pub fn of(error: &anyhow::Error) -> Exit {
        if error.chain().any(|cause| cause.is::<Unavailable>()) { Exit::Unable } else { Exit::Usage }
    }
}

impl Exit {
    /// Ends the program. Where a thread was left behind in a library, at once: what libraries do at a process' end may wait for
    /// that thread, and all that is to be written has been.
    pub fn leave(self) -> ExitCode {
        if team::left_behind() {
            let _ = std::io::stdout().flush();
            signal_hook::low_level::exit(self as i32);
        }
        self.into()
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_is_told_from_a_bad_input_however_deep_the_cause() {
        let unable = anyhow::Error::new(Unavailable("no GPU".into())).context("cannot start");
        assert_eq!(Exit::of(&unable), Exit::Unable);
        assert_eq!(Exit::of(&anyhow::anyhow!("no such file")), Exit::Usage);
    }
}
