//! The same score of nccl-tests' checker, to compare with: `tests/data/nccl-tests-2.19.6-score.csv`.

use super::{Mutation, Score};
use crate::case::{DType, Op};

const TABLE: &str = include_str!("../../../tests/data/nccl-tests-2.19.6-score.csv");

/// One figure of nccl-tests' score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// The reduction.
    pub op: Op,
    /// The element type.
    pub dtype: DType,
    /// Ranks.
    pub ranks: u32,
    /// The fault, as this oracle's score calls it.
    pub mutation: Mutation,
    /// It is the worst rank's figure, where the mutation is scored for each rank.
    pub worst: bool,
    /// Share of elements.
    pub element: f64,
    /// Share of blocks of 1 KiB.
    pub block: f64,
}

/// The whole table. A line or cell that cannot be read is left out; a test holds the table to its size.
pub fn table() -> Vec<Published> {
    let mut lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').skip(3).collect();
    lines.flat_map(|line| row(line, &columns)).collect()
}

fn row(line: &str, columns: &[&str]) -> Vec<Published> {
    let mut cells = line.split(',');
    let mut next = || cells.next().unwrap_or_default();
    let (op, dtype, ranks) = (next().parse(), next().parse(), next().parse());
    let (Ok(op), Ok(dtype), Ok(ranks)) = (op, dtype, ranks) else { return Vec::new() };
    let figures = columns.iter().zip(cells).filter_map(|(column, cell)| {
        let (mutation, worst) = mutation(column)?;
        let (element, block) = cell.split_once('/')?;
        let share = |text: &str| text.parse::<f64>().ok().map(|percent| percent / 100.0);
        Some(Published { op, dtype, ranks, mutation, worst, element: share(element)?, block: share(block)? })
    });
    figures.collect()
}

/// A column's mutation, and whether it is the worst rank's.
fn mutation(column: &str) -> Option<(Mutation, bool)> {
    let worst = column.ends_with("_min");
    let mutation = match column {
        "M1_avg" | "M1_min" => Mutation::Missing,
        "M2_avg" | "M2_min" => Mutation::Doubled,
        "M4" => Mutation::SwappedBlocks,
        "M5" => Mutation::Unwritten,
        "M6" => Mutation::Previous,
        "M7" => Mutation::BitFlip,
        "M8_avg" | "M8_min" => Mutation::OtherRank,
        _ => Mutation::Shifted(column.strip_prefix("M3_")?.parse().ok()?),
    };
    Some((mutation, worst))
}

/// Whether a fault is seen in no block at all, and theory does not force that.
pub trait Gap {
    /// See the trait.
    fn is_gap(&self) -> bool;
}

impl Gap for Published {
    /// For nccl-tests only the doubling of min and max is taken as forced, as its score was published.
    fn is_gap(&self) -> bool {
        let idempotent = matches!(self.op, Op::Min | Op::Max) && self.mutation == Mutation::Doubled;
        self.block == 0.0 && !idempotent
    }
}

impl Gap for Score {
    /// One rank whose fault no block shows is a gap too, where every block could show it.
    fn is_gap(&self) -> bool {
        (self.block == 0.0 && self.bound.block > 0.0) || (self.block_worst == 0.0 && self.bound.block >= 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_is_whole_and_counts_its_known_gaps() {
        let table = table();
        assert_eq!(table.len(), 6 * 11 * 7 * 14);
        let average: Vec<&Published> = table.iter().filter(|p| !p.worst).collect();
        assert_eq!(average.len(), 5082);
        assert_eq!(average.iter().filter(|p| p.is_gap()).count(), 287);
    }
}
