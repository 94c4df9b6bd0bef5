//! The command line. Every option has an environment twin, `COLLCHECK_` and its long name; a test holds it to that.

use clap::builder::{OsStringValueParser, Resettable, TypedValueParser};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::bless::BlessArgs;
use super::oracle::OracleArgs;
use super::values::{self, Choice, OpChoice, Seed};
use crate::backend::host::Transport;
use crate::case::{Bytes, DType, Primitive};
use crate::fault::Detector;
use crate::fleet::launcher::{self, Endpoint};
use crate::fleet::protocol::Tamper;
use crate::report::Format;
use crate::run::plan::{BackendChoice, Destination, LayoutChoice};

/// Upper bound of numbers of launches: single launch times are kept.
const MOST_LAUNCHES: u32 = 1_000_000;

/// Upper bound of ranks: beyond any communicator, below what would overflow.
const MOST_RANKS: u32 = 65_536;

const EXIT_CODES: &str = "\
Exit codes:
  0    every selected case passed
  101  at least one case failed
  2    bad usage or input
  3    this machine cannot run it
  130  interrupted

Every option can be given as COLLCHECK_<NAME> in the environment, as COLLCHECK_MIN_BYTES=1M; the command line wins.
An empty variable counts as none. Flags take 1 or 0, lists are separated by commas.";

const RUN_EXAMPLES: &str = "\
Examples:
  collcheck run                                       the smoke suite
  collcheck run --suite acceptance all_reduce         all_reduce from 8 B to 1 GiB
  collcheck run -b 1M -e 1G --op sum --dtype bf16     other sizes, one op, one dtype
  collcheck run --exact reduce::sum::float::1MiB@root3
  collcheck run --backend host --ranks 8 --junit junit.xml --json results.json";

const LIST_EXAMPLES: &str = "\
Examples:
  collcheck list --suite acceptance | wc -l
  collcheck list --dtype bf16,half reduce";

const ORACLE_EXAMPLES: &str = "Examples:
  collcheck oracle --quick
  collcheck oracle --op avg --dtype bf16 --ranks 72 --all
  collcheck oracle --format json > score.json";

const BLESS_EXAMPLES: &str = "\
Examples:
  for i in 1 2 3 4 5; do collcheck run --suite acceptance --json launch$i.json; done
  collcheck bless launch?.json -o golden.json
  collcheck run --suite acceptance --reference golden.json";

/// Acceptance tests for GPU collectives: right, fast and alive, case by case
#[derive(Debug, Parser)]
#[command(name = "collcheck", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run cases and say which pass
    #[command(after_help = format!("{RUN_EXAMPLES}\n\n{EXIT_CODES}"))]
    Run(Box<RunArgs>),
    /// A rank of `run --layout processes`, started by it
    #[command(hide = true)]
    Worker,
    /// Print the names of the cases that `run` would run, one a line
    #[command(after_help = format!("{LIST_EXAMPLES}\n\n{EXIT_CODES}"))]
    List(SelectionArgs),
    /// Make a golden file of the results of several launches
    #[command(after_help = format!("{BLESS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Bless(BlessArgs),
    /// Print how much of each kind of wrong result the checks notice, per op, dtype and ranks
    #[command(after_help = format!("{ORACLE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Oracle(OracleArgs),
}

/// Which cases.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    /// Keep cases whose name contains one of these; a full name need not be in the suite
    #[arg(value_name = "FILTER")]
    pub filters: Vec<String>,

    /// A suite by name (smoke, acceptance, stress, paths, faults) or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "smoke", env = "COLLCHECK_SUITE")]
    pub suite: String,

    /// FILTER and --skip are full case names
    #[arg(long, env = "COLLCHECK_EXACT")]
    pub exact: bool,

    /// Leave out cases whose name contains this; repeatable
    #[arg(long, value_name = "TEXT", value_delimiter = ',', env = "COLLCHECK_SKIP")]
    pub skip: Vec<String>,

    /// Keep this primitive, as all_reduce, or all; repeatable
    #[arg(long, value_name = "PRIMITIVE", value_delimiter = ',', env = "COLLCHECK_PRIMITIVE")]
    pub primitive: Vec<Choice<Primitive>>,

    /// Keep this op, as sum, none (primitives that only move data) or all; repeatable
    #[arg(long, value_name = "OP", value_delimiter = ',', env = "COLLCHECK_OP")]
    pub op: Vec<Choice<OpChoice>>,

    /// Keep this dtype, as float or bf16, or all; repeatable
    #[arg(long, value_name = "DTYPE", value_delimiter = ',', env = "COLLCHECK_DTYPE")]
    pub dtype: Vec<Choice<DType>>,

    /// Smallest size, as 8 or 64K, in place of the suite's
    #[arg(short = 'b', long, value_name = "SIZE", allow_negative_numbers = true, env = "COLLCHECK_MIN_BYTES")]
    pub min_bytes: Option<Bytes>,

    /// Largest size, as 1G, in place of the suite's
    #[arg(short = 'e', long, value_name = "SIZE", allow_negative_numbers = true, env = "COLLCHECK_MAX_BYTES")]
    pub max_bytes: Option<Bytes>,

    /// Factor from one size to the next, in place of the suite's
    #[arg(short = 'f', long, value_name = "FACTOR", value_parser = values::factor, allow_negative_numbers = true,
          env = "COLLCHECK_STEP_FACTOR")]
    pub step_factor: Option<u64>,
}

/// `collcheck run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub selection: SelectionArgs,

    /// Print the names of the selected cases and run nothing
    #[arg(long, env = "COLLCHECK_LIST", help_heading = "Selection")]
    pub list: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: TargetArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub launch: LaunchArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub measure: MeasureArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub outputs: OutputArgs,
}

/// Where to run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where it runs")]
pub struct TargetArgs {
    /// auto (NCCL where a GPU and a libnccl are found, else host), host or nccl
    #[arg(long, value_enum, value_name = "BACKEND", default_value = "auto", env = "COLLCHECK_BACKEND")]
    pub backend: BackendChoice,

    /// Ranks of the communicator [default: 4 on the host, every visible GPU with NCCL]
    #[arg(long, value_name = "N", value_parser = values::number::<1, MOST_RANKS>, env = "COLLCHECK_RANKS",
          allow_negative_numbers = true)]
    pub ranks: Option<u32>,

    /// Ranks that share one GPU, from NCCL 2.30.3 on; their bandwidth is not asserted
    #[arg(long, value_name = "K", value_parser = values::number::<1, MOST_RANKS>, default_value = "1",
          env = "COLLCHECK_RANKS_PER_GPU", allow_negative_numbers = true)]
    pub ranks_per_gpu: u32,

    /// Ranks that one thread drives, by group calls
    #[arg(long, value_name = "K", value_parser = values::number::<1, MOST_RANKS>, default_value = "1",
          env = "COLLCHECK_RANKS_PER_THREAD", allow_negative_numbers = true)]
    pub ranks_per_thread: u32,

    /// What ranks are: threads or processes
    #[arg(long, value_enum, value_name = "LAYOUT", default_value = "threads", env = "COLLCHECK_LAYOUT")]
    pub layout: LayoutChoice,

    /// What ranks of the host backend exchange bytes over: shm (shared memory) or tcp [default: shm]
    #[arg(long, value_enum, value_name = "TRANSPORT", env = "COLLCHECK_HOST_TRANSPORT")]
    pub host_transport: Option<Transport>,

    /// The libnccl.so.2 to load [default: from LD_LIBRARY_PATH, the loader or pip's site-packages]
    #[arg(long, value_name = "FILE", env = "COLLCHECK_NCCL")]
    pub nccl: Option<PathBuf>,
}

/// How several processes of one run find each other.
#[derive(Debug, Args)]
#[command(next_help_heading = "Under mpirun, srun, torchrun or Kubernetes")]
pub struct LaunchArgs {
    /// Whose variables count: auto, none, torchrun, openmpi, pmi, mvapich, slurm, pytorchjob, kubernetes or pmix
    #[arg(long, value_name = "NAME", default_value = "auto", env = "COLLCHECK_LAUNCHER")]
    pub launcher: launcher::Choice,

    /// Where rank 0 listens [default: from NCCL_COMM_ID, MASTER_ADDR or the launcher]
    #[arg(long, value_name = "HOST:PORT", env = "COLLCHECK_RENDEZVOUS")]
    pub rendezvous: Option<Endpoint>,

    /// Pods of an indexed Job, which do not know how many they are
    #[arg(long, value_name = "N", value_parser = values::number::<1, MOST_RANKS>, env = "COLLCHECK_NODES",
          allow_negative_numbers = true)]
    pub nodes: Option<u32>,

    /// Seconds that all processes have to arrive at rank 0
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, default_value = "120",
          env = "COLLCHECK_ARRIVAL", allow_negative_numbers = true)]
    pub arrival: Duration,
}

/// How each case runs, and what is asserted.
#[derive(Debug, Args)]
#[command(next_help_heading = "How cases run")]
pub struct MeasureArgs {
    /// Timed launches per placement [default: the suite's]
    #[arg(short = 'n', long, value_name = "N", value_parser = values::number::<1, MOST_LAUNCHES>,
          env = "COLLCHECK_ITERS", allow_negative_numbers = true)]
    pub iters: Option<u32>,

    /// Untimed launches before them [default: the suite's]
    #[arg(short = 'w', long, value_name = "N", value_parser = values::number::<0, MOST_LAUNCHES>,
          env = "COLLCHECK_WARMUP", allow_negative_numbers = true)]
    pub warmup: Option<u32>,

    /// Measure only: results are not checked
    #[arg(long, env = "COLLCHECK_NO_CHECK")]
    pub no_check: bool,

    /// Seed of inputs, a number or random; results state it
    #[arg(long, value_name = "SEED", default_value = "0", env = "COLLCHECK_SEED")]
    pub seed: Seed,

    /// Run everything this often, each time from fresh communicators
    #[arg(long, value_name = "N", value_parser = values::number::<1, MOST_LAUNCHES>, default_value = "1",
          env = "COLLCHECK_REPEAT", allow_negative_numbers = true)]
    pub repeat: u32,

    /// Repeat everything with new seeds for this long, as 90s, 10m or 8h, or until something fails
    #[arg(long, value_name = "DURATION", value_parser = values::duration, conflicts_with = "repeat", env = "COLLCHECK_SOAK",
          allow_negative_numbers = true)]
    pub soak: Option<Duration>,

    /// Seconds that a case may take before it fails as hung [default: from its size]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, env = "COLLCHECK_DEADLINE",
          allow_negative_numbers = true)]
    pub deadline: Option<Duration>,

    /// Stop after the first case that fails
    #[arg(long, env = "COLLCHECK_FAIL_FAST")]
    pub fail_fast: bool,

    /// Tell which algorithm, protocol and channels NCCL took; its log costs a launch a microsecond or two
    #[arg(long, env = "COLLCHECK_PATH")]
    pub path: bool,

    /// Run deliberate faults as if they were none: see what they look like, and what is said of them
    #[arg(long, env = "COLLCHECK_LAB")]
    pub lab: bool,

    /// Judge bandwidth by the ranges in this file; repeatable
    #[arg(long, value_name = "FILE", value_delimiter = ',', env = "COLLCHECK_REFERENCE")]
    pub reference: Vec<PathBuf>,

    /// Fail cases whose bandwidth no reference judges
    #[arg(long, env = "COLLCHECK_REQUIRE_REFERENCE")]
    pub require_reference: bool,

    /// Flip a bit of a result, to prove that it is noticed
    #[arg(long, value_name = "RANK:INDEX:BIT", value_parser = values::tamper, hide = true, env = "COLLCHECK_TAMPER")]
    pub tamper: Option<Tamper>,

    /// Do not listen to this detector of deliberate faults, to prove that it is needed
    #[arg(long, value_name = "DETECTOR", hide = true, env = "COLLCHECK_BLIND")]
    pub blind: Option<Detector>,
}

/// Where results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reports")]
pub struct OutputArgs {
    /// What the terminal shows: pretty, terse or json
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "pretty", env = "COLLCHECK_FORMAT")]
    pub format: Format,

    /// Write JUnit XML
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().try_map(values::file),
          env = "COLLCHECK_JUNIT")]
    pub junit: Option<PathBuf>,

    /// Write results as JSON (collcheck.results/1)
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().try_map(values::file),
          env = "COLLCHECK_JSON")]
    pub json: Option<PathBuf>,

    /// Write results as CSV
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().try_map(values::file),
          env = "COLLCHECK_CSV")]
    pub csv: Option<PathBuf>,

    /// Write nccl-tests' table; - is standard output
    #[arg(long, value_name = "FILE|-", value_parser = OsStringValueParser::new().map(values::destination),
          env = "COLLCHECK_TABLE")]
    pub table: Option<Destination>,
}

/// The command as clap sees it, for parsing and for tests that go over its arguments.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| command.mut_args(finish))
}

/// What holds for every argument, so that no single one can forget it.
fn finish(arg: clap::Arg) -> clap::Arg {
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(values::flag),
        // the text of each option names its values
        _ => arg.hide_possible_values(true),
    };
    // said once for all, below the options
    let arg = arg.hide_env(true);
    // CI systems pass variables that are defined and empty.
    match arg.get_env().map(std::env::var_os) {
        Some(Some(value)) if value.is_empty() => arg.env(Resettable::Reset),
        _ => arg,
    }
}

/// Reads a command line, its first word being the program.
pub fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    use clap::FromArgMatches;
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_nothing_wrong_with_the_definitions() {
        command().debug_assert();
    }

    #[test]
    fn every_option_has_an_environment_twin_named_after_it() {
        let mut seen = 0;
        for sub in command().get_subcommands() {
            for arg in sub.get_arguments() {
                let Some(long) = arg.get_long().filter(|long| *long != "help") else { continue };
                let twin = format!("COLLCHECK_{}", long.to_uppercase().replace('-', "_"));
                assert_eq!(
                    arg.get_env().and_then(|env| env.to_str()),
                    Some(twin.as_str()),
                    "{} --{long}",
                    sub.get_name()
                );
                seen += 1;
            }
        }
        assert!(seen > 30, "only {seen} options were seen");
    }
}
