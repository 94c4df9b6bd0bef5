//! The oracle's detection score: no kind of fault hides in a block unless theory hides it, and per element the score is
//! what `docs/oracle.md` derives.

use collcheck::case::{DType, Op};
use collcheck::oracle::score::published::table;
use collcheck::oracle::score::{Effort, Gap, Mutation, RANKS, Reason, Score, bounds, score};

/// Scores one op for every dtype and number of ranks, and holds each figure to its bound.
fn hold_to_bounds(op: Option<Op>) {
    for dtype in DType::ALL {
        for ranks in RANKS {
            hold_score(&score(7, op, dtype, ranks, &Effort::QUICK));
        }
    }
}

fn hold_score(scores: &[Score]) {
    assert!(scores.len() > 9, "{}", scores.len());
    for s in scores {
        let figures = format!(
            "{:?} {} {} ranks, {}: {:.4} of elements of {:.4}, {:.4} of blocks of {:.4} ({})",
            s.op,
            s.dtype,
            s.ranks,
            s.mutation,
            s.element,
            s.bound.chosen,
            s.block,
            s.bound.block,
            s.bound.reason.text()
        );
        assert!(!s.misses_blocks(), "{figures}");
        assert!(!s.misses_elements(), "{figures}");
        assert!(s.bound.chosen <= s.bound.theory + 1e-9, "promises more than theory: {figures}");
        assert!(!s.is_gap(), "{figures}");
    }
}

#[test]
fn data_movement_hides_nothing() {
    hold_to_bounds(None);
}

#[test]
fn sums_hide_nothing_but_what_theory_hides() {
    hold_to_bounds(Some(Op::Sum));
}

#[test]
fn scaled_sums_hide_nothing_but_what_theory_hides() {
    hold_to_bounds(Some(Op::Mulsum));
}

#[test]
fn products_hide_nothing_but_what_theory_hides() {
    hold_to_bounds(Some(Op::Prod));
}

#[test]
fn minima_hide_nothing_but_what_theory_hides() {
    hold_to_bounds(Some(Op::Min));
}

#[test]
fn maxima_hide_nothing_but_what_theory_hides() {
    hold_to_bounds(Some(Op::Max));
}

#[test]
fn averages_hide_nothing_but_what_theory_hides() {
    hold_to_bounds(Some(Op::Avg));
}

/// Where a byte can just count the ranks, and where it just cannot.
#[test]
fn averages_of_bytes_hide_nothing_up_to_the_last_rank_they_can_count() {
    for dtype in [DType::Int8, DType::Uint8] {
        for ranks in [5, 7, 12, 31, 48, 65, 72, 96, 127, 128, 129, 192, 255, 256] {
            hold_score(&score(7, Some(Op::Avg), dtype, ranks, &Effort::QUICK));
        }
    }
}

/// The whole list of what a block of 1 KiB may hide, at the numbers of ranks that are scored: the doubling of min and
/// max; on 1024 ranks a loser of min and max, which a block has too few elements for; and averages of a type that cannot
/// count to 1024.
#[test]
fn what_theory_hides_from_blocks_is_a_short_list() {
    for op in Op::ALL {
        for dtype in DType::ALL {
            for ranks in RANKS {
                for (mutation, bound) in bounds(Some(op), dtype, ranks).into_iter().filter(|(_, b)| b.block < 1.0) {
                    let extreme = matches!(op, Op::Min | Op::Max);
                    let listed = match bound.reason {
                        Reason::Idempotent => extreme && mutation == Mutation::Doubled,
                        Reason::Winner => {
                            extreme && ranks == 1024 && matches!(mutation, Mutation::Missing | Mutation::OtherRank)
                        }
                        Reason::Uncountable => {
                            op == Op::Avg && ranks == 1024 && matches!(dtype, DType::Int8 | DType::Uint8)
                        }
                        _ => false,
                    };
                    assert!(listed, "{op} {dtype} {ranks} ranks: {} hides in blocks: {:?}", mutation, bound);
                }
            }
        }
    }
}

/// Every fault that nccl-tests' checker was scored on is scored here too, on the same dtypes and numbers of ranks.
#[test]
fn the_comparison_with_nccl_tests_leaves_nothing_out() {
    for theirs in table() {
        assert!(RANKS.contains(&theirs.ranks));
        assert!(Mutation::all(true, theirs.dtype).contains(&theirs.mutation), "{theirs:?}");
    }
}
