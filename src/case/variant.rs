//! Variants: what a case does otherwise than the plain one, as suffixes of its name.
//!
//! To add one: a line in the enum, its spelling in [`SPELLINGS`] (or beside them, if it carries a number), the rule in
//! [`Variant::misfit`] that says where it means anything, and the place that honours it: the communicator
//! ([`crate::backend::Making`]), the buffers ([`crate::backend::Need`]), the launch (`crate::fleet::worker`) or the data
//! (`crate::oracle`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::{DType, Forced, Op, Primitive};
use crate::fault::Kind;

/// One departure from the plain case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Variant {
    /// The root of a rooted primitive, when it is not rank 0.
    Root(u32),
    /// Counts of gather-like primitives are not rounded down to 16 bytes.
    Odd,
    /// Both buffers start this many elements behind an aligned address.
    Unaligned(u32),
    /// Buffers come from `ncclMemAlloc`.
    NcclMemory,
    /// Buffers are registered with the communicator (`ncclCommRegister`).
    Registered,
    /// Buffers are symmetric windows (`ncclCommWindowRegister`).
    Window,
    /// Both buffers are windows cut from one allocation.
    Windows,
    /// The communicator has this CTA policy (`ncclConfig_t::CTAPolicy`).
    Cta(u32),
    /// Ranks take the devices in another order than the bus.
    Permuted,
    /// The communicator is a child (`ncclCommSplit`) of one that holds the same ranks.
    Split,
    /// The communicator is nonblocking (`ncclConfig_t::blocking = 0`).
    Nonblocking,
    /// Launches are captured in a graph, and replayed with other data.
    Graph,
    /// Several calls of the case in one group.
    Agg,
    /// Several calls of different dtypes in one group.
    AggMixed,
    /// Every launch is waited for before the next.
    Sync,
    /// Producer, collective and checker are queued for many rounds with new data, without waiting in between.
    Pipeline,
    /// In a pipeline, the producers of some ranks end late.
    Uneven,
    /// In a pipeline, producers let their dependants launch before they have ended.
    Early,
    /// In a pipeline, the output is overwritten right after its check.
    Overwrite,
    /// The scalars of mulsum lie in device memory.
    DeviceScalars,
    /// The scalars of mulsum are no powers of two, but three times one.
    OddScalars,
    /// Inputs hold NaN, infinities, negative zero, subnormals, and what overflows: see [`crate::oracle::special`].
    Special,
    /// NCCL must take this path.
    Path(Forced),
    /// A deliberate fault, which must be noticed.
    Fault(Kind),
}

use Variant::*;

/// Variants that carry no number.
const SPELLINGS: [(&str, Variant); 19] = [
    ("odd", Odd),
    ("ncclmem", NcclMemory),
    ("reg", Registered),
    ("window", Window),
    ("windows", Windows),
    ("permuted", Permuted),
    ("split", Split),
    ("nonblocking", Nonblocking),
    ("graph", Graph),
    ("agg", Agg),
    ("aggmixed", AggMixed),
    ("sync", Sync),
    ("pipeline", Pipeline),
    ("uneven", Uneven),
    ("early", Early),
    ("overwrite", Overwrite),
    ("devscalars", DeviceScalars),
    ("oddscalars", OddScalars),
    ("special", Special),
];

/// How a spelling and a number make a variant.
type Numbered = (&'static str, fn(u32) -> Variant);

/// What stands in front of a fault's name.
const FAULT: &str = "fault-";

/// Variants that carry a number, by what stands in front of it.
const NUMBERED: [Numbered; 3] = [("root", Root), ("unaligned", Unaligned), ("cta", Cta)];

impl Variant {
    /// Why it changes nothing about such a case, if so.
    pub fn misfit(self, primitive: Primitive, op: Option<Op>, dtype: DType) -> Option<&'static str> {
        let unit = primitive.unit();
        match self {
            Root(_) if !unit.rooted() => Some("it has no root"),
            Odd if !primitive.rounds_counts() => Some("it does not round its counts"),
            DeviceScalars | OddScalars if op != Some(Op::Mulsum) => Some("only mulsum has scalars"),
            OddScalars => match dtype.float() {
                None => Some("the scalars of integers are odd anyway"),
                Some(format) if format.precision() <= 4 => Some("8 bits are too few for exact sums of tripled values"),
                Some(_) => None,
            },
            Special if dtype.float().is_none() || op.is_none() => Some("only reductions of floats have special values"),
            Path(forced) => forced.misfit(primitive),
            Fault(kind) => kind.fault().misfit(primitive, op, dtype),
            Unaligned(0) => Some("no elements are no offset"),
            Cta(policy) if policy > 2 => Some("CTA policies are 0, 1 and 2"),
            _ => None,
        }
    }

    /// The variant that this one only means something together with.
    pub const fn needs(self) -> Option<Variant> {
        match self {
            Uneven | Early | Overwrite => Some(Pipeline),
            _ => None,
        }
    }

    /// Faults are done in launches whose number is known, and are looked for in plain data.
    const fn fits_faults(self) -> bool {
        matches!(
            self,
            Root(_) | Odd | Unaligned(_) | NcclMemory | Registered | Window | Windows | Cta(_) | Permuted | Split
        )
    }

    /// Whether both can be had in one case.
    pub fn excludes(self, other: Variant) -> bool {
        if let (Path(one), Path(another)) = (self, other) {
            return one.excludes(another);
        }
        if matches!(self, Fault(_)) || matches!(other, Fault(_)) {
            return !(self.fits_faults() || other.fits_faults());
        }
        matches!(
            (self, other),
            (Root(_), Root(_))
                | (Unaligned(_), Unaligned(_))
                | (Cta(_), Cta(_))
                | (Registered, Window | Windows)
                | (Window | Windows, Registered)
                | (Window, Windows)
                | (Windows, Window)
                | (Agg, AggMixed | Pipeline)
                | (AggMixed, Agg | Pipeline)
                | (Pipeline, Agg | AggMixed | Sync)
                | (Sync, Pipeline)
                | (Special, Pipeline | Agg | AggMixed | OddScalars)
                | (Pipeline | Agg | AggMixed | OddScalars, Special)
        )
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Root(rank) => write!(f, "root{rank}"),
            Unaligned(elements) => write!(f, "unaligned{elements}"),
            Cta(policy) => write!(f, "cta{policy}"),
            Path(forced) => forced.fmt(f),
            Fault(kind) => write!(f, "{FAULT}{kind}"),
            plain => {
                let spelling = SPELLINGS.iter().find(|(_, variant)| variant == plain).map_or("", |(name, _)| name);
                f.write_str(spelling)
            }
        }
    }
}

/// A name suffix that no variant has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant {given:?}; known are {known}")]
pub struct UnknownVariant {
    given: String,
    known: String,
}

impl FromStr for Variant {
    type Err = UnknownVariant;

    fn from_str(s: &str) -> Result<Self, UnknownVariant> {
        if let Some((_, variant)) = SPELLINGS.iter().find(|(name, _)| *name == s) {
            return Ok(*variant);
        }
        if let Ok(forced) = s.parse() {
            return Ok(Path(forced));
        }
        if let Some(Ok(kind)) = s.strip_prefix(FAULT).map(str::parse) {
            return Ok(Fault(kind));
        }
        for (name, make) in NUMBERED {
            if let Some(number) = s.strip_prefix(name)
                && let Ok(number) = number.parse::<u32>()
            {
                return Ok(make(number));
            }
        }
        let numbered = NUMBERED.iter().map(|(name, _)| format!("{name}N"));
        let known: Vec<String> = numbered
            .chain(SPELLINGS.iter().map(|(name, _)| (*name).to_owned()))
            .chain(["paths as ring, ll128 or sym-agxll_r".to_owned()])
            .chain(Kind::all().map(|kind| format!("{FAULT}{kind}")))
            .collect();
        Err(UnknownVariant { given: s.to_owned(), known: known.join(", ") })
    }
}

impl From<Variant> for String {
    fn from(variant: Variant) -> String {
        variant.to_string()
    }
}

impl TryFrom<String> for Variant {
    type Error = UnknownVariant;

    fn try_from(text: String) -> Result<Self, UnknownVariant> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_reads_back_as_the_variant_that_prints_it() {
        let numbered = [Root(3), Unaligned(1), Cta(2)];
        let faults = Kind::all().map(Fault);
        for variant in SPELLINGS.iter().map(|(_, v)| *v).chain(numbered).chain(faults) {
            let text = variant.to_string();
            assert!(!text.is_empty(), "{variant:?} has no spelling");
            assert_eq!(text.parse::<Variant>(), Ok(variant));
        }
    }

    #[test]
    fn a_case_has_one_fault_and_no_other_way_of_launching() {
        let fault = |name: &str| name.parse::<Variant>().unwrap();
        assert!(fault("fault-flip").excludes(fault("fault-kill")) && fault("fault-flip").excludes(Graph));
        assert!(!fault("fault-root").excludes(Root(2)));
        assert!("fault-flap".parse::<Variant>().is_err());
    }

    #[test]
    fn exclusion_holds_both_ways() {
        let all: Vec<Variant> = SPELLINGS
            .iter()
            .map(|(_, v)| *v)
            .chain([Root(1), Unaligned(1), Cta(1)])
            .chain(Kind::all().map(Fault))
            .collect();
        for a in &all {
            for b in &all {
                assert_eq!(a.excludes(*b), b.excludes(*a), "{a} and {b}");
            }
        }
    }
}
