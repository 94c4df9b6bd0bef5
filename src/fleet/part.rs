//! What one launch is made of: one call of the case, or a group of calls, each on its own part of the buffers.

use super::staging::{Piece, Staging, What};
use crate::backend::{Call, Content, Need, Placement, Region};
use crate::case::{Case, DType, Variant, Workload};
use crate::oracle::Plan;

/// Calls of an `agg` case.
const GROUP: usize = 4;

/// Calls of an `aggmixed` case, each of another dtype.
const MIXED_GROUP: usize = 3;

/// What parts start at a multiple of, in bytes from the buffer's base: beyond any alignment that a collective looks at,
/// so that all parts of a buffer are aligned as its base is.
const PART_ALIGN: u64 = 512;

/// One call: the case, or what a group makes of it, and where its data lie.
pub struct Part {
    /// The case; in a mixed group of this part's dtype.
    pub case: Case,
    /// What it moves.
    pub workload: Workload,
    /// See [`Region::base`].
    pub base: u64,
    /// Its buffers, lane by lane.
    pub stagings: Vec<Staging>,
}

/// The calls of one launch: one, several of a group, or several of different dtypes.
fn calls(case: &Case) -> Vec<Case> {
    if case.variants.contains(&Variant::Agg) {
        return vec![case.clone(); GROUP];
    }
    if case.variants.contains(&Variant::AggMixed) {
        let own = DType::ALL.iter().position(|dtype| *dtype == case.dtype).unwrap_or(0);
        let fits = |dtype: &DType| case.variants.iter().all(|v| v.misfit(case.primitive, case.op, *dtype).is_none());
        let dtypes = DType::ALL.into_iter().cycle().skip(own).take(DType::ALL.len()).filter(fits);
        return dtypes.take(MIXED_GROUP).map(|dtype| Case { dtype, ..case.clone() }).collect();
    }
    vec![case.clone()]
}

/// Bytes from one part to the next, the same for both buffers and all ranks.
fn stride(calls: &[Case], ranks: u32) -> u64 {
    let largest = calls.iter().map(|case| {
        let shape = case.primitive.unit().shape(&case.workload(ranks));
        shape.send.max(shape.recv).saturating_mul(case.dtype.size())
    });
    largest.max().unwrap_or(0).checked_next_multiple_of(PART_ALIGN).unwrap_or(u64::MAX)
}

/// Bytes that a case needs of one rank for its two buffers, guard zones apart.
pub fn footprint(case: &Case, ranks: u32) -> u64 {
    let calls = calls(case);
    let before = (calls.len() as u64 - 1).saturating_mul(stride(&calls, ranks));
    let last = calls.last().map_or(0, |case| {
        let shape = case.primitive.unit().shape(&case.workload(ranks));
        shape.send.saturating_add(shape.recv).saturating_mul(case.dtype.size())
    });
    before.saturating_mul(2).saturating_add(last)
}

/// The parts of one launch on the ranks held; `None` where the primitive has no such placement.
pub fn parts(case: &Case, ranks: u32, held: &[u32], placement: Placement) -> Option<Vec<Part>> {
    let calls = calls(case);
    let stride = stride(&calls, ranks);
    let parts = calls.into_iter().zip(0u64..).map(|(case, k)| {
        let stagings = held.iter().map(|&rank| Staging::new(&case, ranks, rank, placement)).collect::<Option<_>>()?;
        Some(Part { workload: case.workload(ranks), case, base: k.checked_mul(stride)?, stagings })
    });
    parts.collect()
}

/// Buffers that hold all parts.
pub fn need(parts: &[Part]) -> Need {
    let end = |bytes: fn(&Staging) -> u64| {
        let end = |part: &Part| {
            let largest = part.stagings.iter().map(bytes).max().unwrap_or(0);
            if largest == 0 { 0 } else { part.base.saturating_add(largest) }
        };
        parts.iter().map(end).max().unwrap_or(0)
    };
    let (send, recv) = (end(|s| s.send_bytes), end(|s| s.recv_bytes));
    // an offset counts elements: those of the widest dtype are aligned for all
    let widest = parts.iter().max_by_key(|part| part.case.dtype.size());
    widest.map_or_else(Need::default, |part| Need::of(&part.case, send, recv))
}

/// Whether a call in place takes a larger buffer than those of the call out of place.
pub fn grows_in_place(parts: &[Part]) -> bool {
    let grows = |part: &Part| {
        let shape = part.case.primitive.unit().shape(&part.workload);
        shape.send > shape.recv
    };
    parts.iter().any(grows)
}

/// The oracle of one launch: what is in its buffers, part by part.
pub struct Inputs(Vec<Oracle>);

/// The oracle of one part.
pub struct Oracle {
    /// Tells launches and parts apart.
    pub epoch: u64,
    /// Data.
    pub data: Plan,
    /// Noise that no data of the case is equal to but by chance.
    pub filler: Plan,
}

impl Inputs {
    /// New inputs for all parts. They take one epoch each, from `epoch` on.
    pub fn new(parts: &[Part], seed: u64, epoch: u64) -> Inputs {
        let oracle = |(part, epoch): (&Part, u64)| {
            let Case { primitive, dtype, .. } = part.case;
            let ranks = part.workload.ranks;
            Oracle {
                epoch,
                data: Plan::of(&part.case, seed, ranks, epoch),
                // data movement of another seed
                filler: Plan::new(!seed, primitive, None, dtype, ranks, epoch),
            }
        };
        Inputs(parts.iter().zip(epoch..).map(oracle).collect())
    }

    /// Each part with its oracle.
    pub fn of<'a>(&'a self, parts: &'a [Part]) -> impl Iterator<Item = (&'a Part, &'a Oracle)> {
        parts.iter().zip(&self.0)
    }
}

impl Oracle {
    /// The piece as the station takes it.
    pub fn region(&self, part: &Part, piece: &Piece) -> Region<'_> {
        let (plan, content) = match piece.what {
            What::Data(content) => (&self.data, content),
            What::Filler => (&self.filler, Content::Input { rank: 0, element: piece.start }),
        };
        Region { buffer: piece.buffer, start: piece.start, len: piece.len, plan, content, base: part.base }
    }

    /// Bits that the piece holds at this element of the buffer, if it covers it.
    pub fn expected(&self, piece: &Piece, index: u64) -> Option<u64> {
        let skip = index.checked_sub(piece.start).filter(|skip| *skip < piece.len)?;
        Some(match piece.what {
            What::Data(Content::Input { rank, element }) => self.data.input(rank, element + skip),
            What::Data(Content::Reduced { element }) => self.data.reduced(element + skip),
            What::Filler => self.filler.input(0, index),
        })
    }
}

/// The calls of a launch, as the station takes them.
pub fn launch<'a>(parts: &'a [Part], inputs: &'a Inputs, placement: Placement) -> Vec<Call<'a>> {
    let call = |(part, oracle): (&'a Part, &'a Oracle)| Call {
        case: &part.case,
        workload: part.workload,
        placement,
        plan: &oracle.data,
        base: part.base,
        twist: None,
    };
    inputs.of(parts).map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Primitive;

    fn of(name: &str, placement: Placement) -> Vec<Part> {
        parts(&name.parse().unwrap(), 4, &[1], placement).unwrap()
    }

    #[test]
    fn a_group_has_parts_of_its_own_that_do_not_overlap() {
        for placement in [Placement::OutOfPlace, Placement::InPlace] {
            let parts = of("all_gather::none::float::1000B@agg", placement);
            let bases: Vec<u64> = parts.iter().map(|part| part.base).collect();
            assert_eq!(bases, [0, 1024, 2048, 3072]);
            let need = need(&parts);
            assert!(need.recv_bytes > 3072 && need.recv_bytes <= 4096);
            assert_eq!(need.send_bytes == 0, placement == Placement::InPlace);
        }
    }

    #[test]
    fn a_mixed_group_has_the_case_and_two_dtypes_more_at_an_offset_that_fits_all() {
        let parts = of("all_reduce::sum::uint64::64B@aggmixed+unaligned1", Placement::OutOfPlace);
        let dtypes: Vec<DType> = parts.iter().map(|part| part.case.dtype).collect();
        assert_eq!((dtypes.len(), dtypes[0]), (3, DType::Uint64));
        assert!(dtypes[1] != dtypes[2] && !dtypes[1..].contains(&DType::Uint64), "{dtypes:?}");
        assert_eq!(need(&parts).offset, 8);
        assert!(parts.iter().all(|part| part.workload.dtype == part.case.dtype && part.workload.bytes == 64));
    }

    #[test]
    fn a_mixed_group_keeps_to_dtypes_that_the_variants_apply_to() {
        let case: Case = "all_reduce::sum::bfloat16::64B@aggmixed+unaligned1".parse().unwrap();
        let special = Case { variants: [&case.variants[..], &[Variant::Special]].concat(), ..case };
        assert!(calls(&special).iter().all(|call| call.dtype.float().is_some()));
    }

    #[test]
    fn the_footprint_is_what_the_parts_need() {
        for name in
            ["all_reduce::sum::half::1000B", "gather::none::int8::5000B@agg", "alltoall::none::float::8B@aggmixed"]
        {
            let need = need(&of(name, Placement::OutOfPlace));
            assert_eq!(footprint(&name.parse().unwrap(), 4), need.send_bytes + need.recv_bytes, "{name}");
        }
    }

    #[test]
    fn what_grows_in_place_is_told_alike_on_all_ranks() {
        for primitive in Primitive::ALL {
            let op = if primitive.unit().reduces() { "sum" } else { "none" };
            let case: Case = format!("{primitive}::{op}::float::4KiB").parse().unwrap();
            let needs = |placement| -> Option<Vec<Need>> {
                (0..4).map(|rank| Some(need(&parts(&case, 4, &[rank], placement)?))).collect()
            };
            let (Some(out), Some(inside)) = (needs(Placement::OutOfPlace), needs(Placement::InPlace)) else { continue };
            let grows =
                out.iter().zip(&inside).any(|(o, i)| i.send_bytes > o.send_bytes || i.recv_bytes > o.recv_bytes);
            for rank in 0..4 {
                let parts = parts(&case, 4, &[rank], Placement::InPlace).unwrap();
                assert_eq!(grows_in_place(&parts), grows, "{primitive}, rank {rank}");
            }
        }
    }

    #[test]
    fn no_two_parts_or_launches_share_an_epoch() {
        let parts = of("all_reduce::sum::float::64B@agg", Placement::OutOfPlace);
        let epochs = |inputs: &Inputs| inputs.0.iter().map(|oracle| oracle.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&Inputs::new(&parts, 0, 8)), [8, 9, 10, 11]);
    }
}
