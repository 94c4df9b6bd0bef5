//! Errors of the command line, each on one line: what was given, and what is accepted.

use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;

/// One line of what clap says in several, without its usage text.
pub fn one_line(error: &clap::Error, args: &[OsString]) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim);
    let said = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let line = said.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    match environment_twin(error, args) {
        Some(twin) => format!("{line} (from {twin} in the environment)"),
        None => line,
    }
}

/// The variable that a bad value comes from, if no argument holds it. clap names the option in both cases.
fn environment_twin(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    if args.iter().any(|arg| arg.to_string_lossy().contains(value)) {
        return None;
    }
    let mut command = super::command();
    // arguments have no text before that
    command.build();
    let mut options = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let twin = options.find(|arg| arg.to_string() == option)?.get_env()?;
    Some(twin.to_string_lossy().into_owned())
}
