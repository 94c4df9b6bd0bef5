//! `collcheck oracle`: the oracle's detection score, beside that of nccl-tests' checker.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::exit::Exit;
use super::values::{self, Choice, OpChoice, Seed};
use crate::case::{DType, Op};
use crate::oracle::score::published::{Published, table};
use crate::oracle::score::{Effort, Gap, Mutation, RANKS, Score, score};

/// `collcheck oracle`.
#[derive(Debug, Clone, Args)]
pub struct OracleArgs {
    /// Score this op, as sum, none (data movement) or all; repeatable
    #[arg(long, value_name = "OP", value_delimiter = ',', env = "COLLCHECK_OP")]
    pub op: Vec<Choice<OpChoice>>,

    /// Score this dtype, as float or bf16, or all; repeatable
    #[arg(long, value_name = "DTYPE", value_delimiter = ',', env = "COLLCHECK_DTYPE")]
    pub dtype: Vec<Choice<DType>>,

    /// Score at this number of ranks, instead of 2, 3, 4, 8, 16, 32, 64 and 1024; repeatable
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = values::number::<2, MOST_RANKS>,
          env = "COLLCHECK_RANKS")]
    pub ranks: Vec<u32>,

    /// Seed of inputs: a number, or random
    #[arg(long, value_name = "U64|random", default_value = "1", env = "COLLCHECK_SEED")]
    pub seed: Seed,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table, env = "COLLCHECK_FORMAT")]
    pub format: Format,

    /// In the table, also a line for each op, dtype, number of ranks and fault
    #[arg(long, env = "COLLCHECK_ALL")]
    pub all: bool,

    /// Sample less: seconds instead of a minute or two
    #[arg(long, env = "COLLCHECK_QUICK")]
    pub quick: bool,
}

/// Upper bound of ranks. A score takes time in proportion.
const MOST_RANKS: u32 = 16384;

/// How the score is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line a fault, beside nccl-tests.
    Table,
    /// All scores, and the sums below the table.
    Json,
    /// All scores.
    Csv,
}

/// Measures and prints the score. It fails if any figure is below its bound.
pub fn command(args: OracleArgs) -> anyhow::Result<Exit> {
    let scores = measure(&args);
    match write(io::stdout().lock(), &args, &scores) {
        // a reader that has seen enough is no error
        Err(e) if e.kind() != ErrorKind::BrokenPipe => return Err(e).context("cannot write the score"),
        _ => {}
    }
    let short = scores.iter().any(|s| s.misses_blocks() || s.misses_elements());
    Ok(if short { Exit::Failed } else { Exit::Passed })
}

/// Scores all that is selected, on all cores.
fn measure(args: &OracleArgs) -> Vec<Score> {
    let all = |given: &[u32], all: &[u32]| if given.is_empty() { all.to_vec() } else { given.to_vec() };
    let mut ops: Vec<Option<Op>> = Choice::list(&args.op).into_iter().map(|op| op.0).collect();
    if ops.is_empty() {
        ops = [None].into_iter().chain(Op::ALL.map(Some)).collect();
    }
    let mut dtypes = Choice::list(&args.dtype);
    if dtypes.is_empty() {
        dtypes = DType::ALL.to_vec();
    }
    let mut jobs = Vec::new();
    for op in ops {
        for dtype in &dtypes {
            jobs.extend(all(&args.ranks, &RANKS).into_iter().map(|ranks| (op, *dtype, ranks)));
        }
    }
    let effort = if args.quick { Effort::QUICK } else { Effort::FULL };
    let seed = args.seed.resolve();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(&(op, dtype, ranks)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scores = score(seed, op, dtype, ranks, &effort);
                    let order = (op, dtype, ranks);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(order, scores);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().flatten().collect()
}

fn write(out: impl Write, args: &OracleArgs, scores: &[Score]) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    match args.format {
        Format::Csv => write_csv(&mut out, scores)?,
        Format::Json => write_json(&mut out, scores)?,
        Format::Table => {
            if args.all {
                write_all(&mut out, scores)?;
            }
            write_summary(&mut out, scores)?;
        }
    }
    out.flush()
}

/// A share as per cent; 100 only if it is exactly that, and 0 likewise.
fn percent(share: f64) -> String {
    let text = format!("{:.1}", 100.0 * share);
    match text.as_str() {
        "100.0" if share < 1.0 => "<100".to_owned(),
        "0.0" if share > 0.0 => ">0".to_owned(),
        "100.0" => "100".to_owned(),
        "0.0" => "0".to_owned(),
        _ => text,
    }
}

fn write_summary(out: &mut impl Write, scores: &[Score]) -> io::Result<()> {
    let theirs = compared(scores);
    write_by_mutation(out, scores, &theirs)?;
    write_hidden(out, scores)?;
    write_gaps(out, scores, &theirs)
}

/// nccl-tests' figures for what was scored here.
fn compared(scores: &[Score]) -> Vec<Published> {
    let scored: HashSet<(Op, DType, u32)> = scores.iter().filter_map(|s| Some((s.op?, s.dtype, s.ranks))).collect();
    table().into_iter().filter(|p| scored.contains(&(p.op, p.dtype, p.ranks))).collect()
}

fn write_all(out: &mut impl Write, scores: &[Score]) -> io::Result<()> {
    writeln!(
        out,
        "{:7} {:8} {:>5}  {:22} {:>8} {:>8} {:>8} {:>8}  {:>8} {:>8} {:>8}  limited by",
        "op", "dtype", "ranks", "fault", "element", "worst", "chosen", "theory", "block", "worst", "bound"
    )?;
    for s in scores {
        let op = s.op.map_or("none", Op::name);
        let limited = if s.bound.chosen < 1.0 { s.bound.reason.text() } else { "" };
        writeln!(
            out,
            "{:7} {:8} {:>5}  {:22} {:>8} {:>8} {:>8} {:>8}  {:>8} {:>8} {:>8}  {limited}",
            op,
            s.dtype,
            s.ranks,
            s.mutation,
            percent(s.element),
            percent(s.element_worst),
            percent(s.bound.chosen),
            percent(s.bound.theory),
            percent(s.block),
            percent(s.block_worst),
            percent(s.bound.block),
        )?;
    }
    writeln!(out)
}

/// One line a mutation: mean and worst over everything that theory lets be seen, here and in nccl-tests.
fn write_by_mutation(out: &mut impl Write, scores: &[Score], theirs: &[Published]) -> io::Result<()> {
    writeln!(
        out,
        "Per cent of elements, and of blocks of 1 KiB, in which a planted fault is seen: mean over op, dtype, ranks,"
    )?;
    writeln!(
        out,
        "and the lowest, of the worst rank. Without what theory hides; side by side where both were scored."
    )?;
    writeln!(out)?;
    writeln!(out, "{:24}{:^30}{:^30}", "", "collcheck", "nccl-tests 2.19.6")?;
    writeln!(
        out,
        "{:22} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}",
        "fault", "elements", "blocks", "lowest", "elements", "blocks", "lowest"
    )?;
    let common: HashSet<(Op, DType, u32)> = theirs.iter().map(|p| (p.op, p.dtype, p.ranks)).collect();
    let compares = |s: &Score| s.op.is_some_and(|op| common.contains(&(op, s.dtype, s.ranks)));
    let hidden: HashSet<(Option<Op>, DType, u32, Mutation)> =
        scores.iter().filter(|s| s.bound.block < 1.0).map(|s| (s.op, s.dtype, s.ranks, s.mutation)).collect();
    // double has them all
    for mutation in Mutation::all(true, DType::Double) {
        let published = theirs.iter().any(|p| p.mutation == mutation);
        let mut ours = Figures::default();
        let shown = scores.iter().filter(|s| s.mutation == mutation && s.bound.block >= 1.0);
        for s in shown.filter(|s| compares(s) || !published) {
            ours.add(s.element, s.block);
            ours.lowest(s.block_worst);
        }
        let mut others = Figures::default();
        let shown = theirs.iter().filter(|p| p.mutation == mutation);
        for p in shown.filter(|p| !hidden.contains(&(Some(p.op), p.dtype, p.ranks, mutation))) {
            if !p.worst {
                others.add(p.element, p.block);
            }
            others.lowest(p.block);
        }
        writeln!(out, "{mutation:22} {ours} {others}")?;
    }
    writeln!(out)
}

/// Sums of shares over scores, and the lowest of blocks.
#[derive(Default)]
struct Figures {
    count: f64,
    elements: f64,
    blocks: f64,
    lowest: Option<f64>,
}

impl Figures {
    fn add(&mut self, element: f64, block: f64) {
        self.count += 1.0;
        self.elements += element;
        self.blocks += block;
    }

    fn lowest(&mut self, block: f64) {
        self.lowest = Some(self.lowest.map_or(block, |lowest| lowest.min(block)));
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(lowest) = self.lowest else { return write!(f, "{:>9} {:>9} {:>9}", "-", "-", "-") };
        let [elements, blocks] = [self.elements, self.blocks].map(|sum| percent(sum / self.count.max(1.0)));
        write!(f, "{elements:>9} {blocks:>9} {:>9}", percent(lowest))
    }
}

/// What theory hides from blocks, by reason.
fn write_hidden(out: &mut impl Write, scores: &[Score]) -> io::Result<()> {
    let mut reasons: BTreeMap<&str, (usize, f64, f64)> = BTreeMap::new();
    for s in scores.iter().filter(|s| s.bound.block < 1.0) {
        let entry = reasons.entry(s.bound.reason.text()).or_insert((0, 1.0, 1.0));
        entry.0 += 1;
        entry.1 = entry.1.min(s.bound.block);
        entry.2 = entry.2.min(s.block);
    }
    if reasons.is_empty() {
        return Ok(());
    }
    writeln!(out, "Hidden from some blocks by theory (docs/oracle.md):")?;
    for (reason, (count, bound, seen)) in reasons {
        writeln!(
            out,
            "  {count:>4} scores: {reason}; at most {} % of blocks can show it, {} % do",
            percent(bound),
            percent(seen)
        )?;
    }
    writeln!(out)
}

fn write_gaps(out: &mut impl Write, scores: &[Score], theirs: &[Published]) -> io::Result<()> {
    let ours = scores.iter().filter(|s| s.is_gap()).count();
    let average: Vec<&Published> = theirs.iter().filter(|p| !p.worst).collect();
    let gaps = average.iter().filter(|p| p.is_gap()).count();
    writeln!(out, "Gaps: faults that no block shows, though theory lets it (collcheck: not even the worst rank's)")?;
    writeln!(out, "  collcheck          {ours:>5} of {}", scores.len())?;
    writeln!(out, "  nccl-tests 2.19.6  {gaps:>5} of {}", average.len())?;
    let misses: Vec<&Score> = scores.iter().filter(|s| s.misses_blocks() || s.misses_elements()).collect();
    writeln!(out, "Below what docs/oracle.md derives: {} of {} scores of collcheck", misses.len(), scores.len())?;
    for s in misses {
        writeln!(
            out,
            "  {} {} {} ranks, {}: {} % of elements for {} %, {} % of blocks for {} %",
            s.op.map_or("none", Op::name),
            s.dtype,
            s.ranks,
            s.mutation,
            percent(s.element),
            percent(s.bound.chosen),
            percent(s.block),
            percent(s.bound.block)
        )?;
    }
    Ok(())
}

fn write_csv(out: &mut impl Write, scores: &[Score]) -> io::Result<()> {
    writeln!(
        out,
        "op,dtype,ranks,fault,element,element_worst,element_chosen,element_theory,block,block_worst,block_bound,reason"
    )?;
    for s in scores {
        writeln!(
            out,
            "{},{},{},{},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{:.6},{}",
            s.op.map_or("none", Op::name),
            s.dtype,
            s.ranks,
            s.mutation,
            s.element,
            s.element_worst,
            s.bound.chosen,
            s.bound.theory,
            s.block,
            s.block_worst,
            s.bound.block,
            s.bound.reason.text()
        )?;
    }
    Ok(())
}

fn write_json(out: &mut impl Write, scores: &[Score]) -> io::Result<()> {
    let rows = scores.iter().map(|s| {
        json!({
            "op": s.op.map_or("none", Op::name),
            "dtype": s.dtype,
            "ranks": s.ranks,
            "fault": s.mutation.to_string(),
            "element": {
                "seen": s.element,
                "worst_rank": s.element_worst,
                "chosen": s.bound.chosen,
                "theory": s.bound.theory,
            },
            "block": {"seen": s.block, "worst_rank": s.block_worst, "bound": s.bound.block},
            "limited_by": (s.bound.chosen < 1.0).then(|| s.bound.reason.text()),
        })
    });
    let theirs = compared(scores);
    let average = theirs.iter().filter(|p| !p.worst);
    let gaps = json!({
        "collcheck": scores.iter().filter(|s| s.is_gap()).count(),
        "nccl_tests": average.filter(|p| p.is_gap()).count(),
    });
    let below = scores.iter().filter(|s| s.misses_blocks() || s.misses_elements()).count();
    let rows: Vec<serde_json::Value> = rows.collect();
    let whole = json!({"schema": "collcheck.oracle/1", "gaps": gaps, "below_bound": below, "scores": rows});
    serde_json::to_writer_pretty(&mut *out, &whole)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: OracleArgs,
    }

    fn args(line: &str) -> OracleArgs {
        Cli::try_parse_from(["oracle", "--quick"].into_iter().chain(line.split_whitespace())).unwrap().args
    }

    fn printed(line: &str) -> String {
        let args = args(line);
        let mut out = Vec::new();
        write(&mut out, &args, &measure(&args)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_selection_is_what_is_scored() {
        let text = printed("--op max,none --dtype bf16 --ranks 5 --format csv");
        let rows: Vec<&str> = text.lines().skip(1).map(|line| line.rsplitn(10, ',').last().unwrap()).collect();
        assert!(rows.iter().all(|row| *row == "max,bfloat16,5" || *row == "none,bfloat16,5"), "{rows:?}");
        let faults = |reduces| Mutation::all(reduces, DType::Bfloat16).len();
        assert_eq!(rows.len(), faults(true) + faults(false));
    }

    #[test]
    fn json_holds_each_score_of_the_table_once() {
        let text = printed("--op max --dtype bf16 --ranks 5 --format json");
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
        let scores = whole["scores"].as_array().unwrap();
        assert_eq!(scores.len(), Mutation::all(true, DType::Bfloat16).len());
        assert!(scores.iter().all(|s| s["dtype"] == "bfloat16" && s["block"]["seen"].is_number()), "{text}");
        assert_eq!((&whole["gaps"]["collcheck"], &whole["below_bound"]), (&json!(0), &json!(0)));
        assert!(printed("--op max --dtype bf16 --ranks 5 --all").contains("bfloat16     5"));
    }

    #[test]
    fn both_scores_stand_side_by_side() {
        let text = printed("--op avg --dtype float --ranks 4");
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        // nccl-tests' inputs of float avg do not depend on the element
        let swapped: Vec<String> = line("blocks swapped").split_whitespace().skip(2).map(str::to_owned).collect();
        assert_eq!(swapped, ["100", "100", "100", "0", "0", "0"], "{text}");
        assert!(line("  collcheck ").ends_with("0 of 20"), "{text}");
        assert!(line("  nccl-tests").ends_with("5 of 11"), "{text}");
    }

    #[test]
    fn a_share_is_100_per_cent_only_if_it_is_all() {
        assert_eq!([1.0, 0.9999, 0.5, 0.0001, 0.0].map(percent), ["100", "<100", "50.0", ">0", "0"]);
    }

    #[test]
    fn one_rank_has_nothing_to_score() {
        assert!(Cli::try_parse_from(["oracle", "--ranks", "1"]).is_err());
    }
}
