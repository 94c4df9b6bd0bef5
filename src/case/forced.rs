//! Forced paths: which algorithm, protocol or kernel NCCL must take for a case, as suffixes of its name.
//!
//! They are asked for by variables, which NCCL reads once in a process, so that a case with another path than the
//! process has runs in a process of its own (`crate::run::path`). What NCCL has for which collective is from
//! graph/tuning.cc and sym_kernels.cc, 2.20 to 2.30; what a machine has is another question, and NCCL's to answer.

use std::fmt;
use std::str::FromStr;

use super::Primitive;

/// One thing that NCCL must take.
///
/// A kernel for symmetric windows implies that both buffers are windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Forced {
    Ring,
    Tree,
    CollnetDirect,
    CollnetChain,
    Nvls,
    NvlsTree,
    Pat,
    Ll,
    Ll128,
    Simple,
    /// A kernel for symmetric windows.
    Symmetric(Symmetric),
}

/// A kernel for symmetric windows, by what follows the collective in its name: `AGxLL_R` in `AllReduce_AGxLL_R`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symmetric(&'static str);

/// Algorithms and protocols: spelling, variable, its value, and the name in NCCL's log.
const NAMES: [(Forced, &str, &str, &str, &str); 10] = [
    (Forced::Ring, "ring", ALGO, "Ring", "RING"),
    (Forced::Tree, "tree", ALGO, "Tree", "TREE"),
    (Forced::CollnetDirect, "collnetdirect", ALGO, "CollNetDirect", "COLLNET_DIRECT"),
    (Forced::CollnetChain, "collnetchain", ALGO, "CollNetChain", "COLLNET_CHAIN"),
    (Forced::Nvls, "nvls", ALGO, "NVLS", "NVLS"),
    (Forced::NvlsTree, "nvlstree", ALGO, "NVLSTree", "NVLS_TREE"),
    (Forced::Pat, "pat", ALGO, "PAT", "PAT"),
    (Forced::Ll, "ll", PROTO, "LL", "LL"),
    (Forced::Ll128, "ll128", PROTO, "LL128", "LL128"),
    (Forced::Simple, "simple", PROTO, "Simple", "SIMPLE"),
];

const ALGO: &str = "NCCL_ALGO";
const PROTO: &str = "NCCL_PROTO";
const SYM_KERNEL: &str = "NCCL_SYM_KERNEL";

/// In front of a symmetric kernel's spelling.
const SYMMETRIC: &str = "sym-";

/// Kernels for symmetric windows, 2.27 to 2.30. LL is there for two collectives.
const KERNELS: [(&str, &[Primitive]); 18] = [
    ("AGxLL_R", &[Primitive::AllReduce]),
    ("AGxLLMC_R", &[Primitive::AllReduce]),
    ("RSxTmaLD_AGxTmaST", &[Primitive::AllReduce]),
    ("RSxLD_AGxST", &[Primitive::AllReduce]),
    ("RSxLDMC_AGxSTMC", &[Primitive::AllReduce]),
    ("RSxNet_ARxMC_AGxNet", &[Primitive::AllReduce]),
    ("LL", &[Primitive::AllGather, Primitive::ReduceScatter]),
    ("LLMC", &[Primitive::AllGather]),
    ("TmaST", &[Primitive::AllGather]),
    ("ST", &[Primitive::AllGather]),
    ("TmaSTMC", &[Primitive::AllGather]),
    ("STMC", &[Primitive::AllGather]),
    ("RailRing_LsaSTMC", &[Primitive::AllGather]),
    ("TmaLD", &[Primitive::ReduceScatter]),
    ("LD", &[Primitive::ReduceScatter]),
    ("LDMC", &[Primitive::ReduceScatter]),
    ("RailA2A_LsaLD", &[Primitive::ReduceScatter]),
    ("RailA2A_LsaLDMC", &[Primitive::ReduceScatter]),
];

/// NCCL's name of a collective that it has algorithms for.
const fn function(primitive: Primitive) -> Option<&'static str> {
    match primitive {
        Primitive::AllReduce => Some("AllReduce"),
        Primitive::AllGather => Some("AllGather"),
        Primitive::ReduceScatter => Some("ReduceScatter"),
        Primitive::Broadcast => Some("Broadcast"),
        Primitive::Reduce => Some("Reduce"),
        _ => None,
    }
}

impl Forced {
    /// Every one there is.
    pub fn all() -> impl Iterator<Item = Forced> {
        let kernels = KERNELS.iter().map(|(kernel, _)| Forced::Symmetric(Symmetric(kernel)));
        NAMES.iter().map(|(forced, ..)| *forced).chain(kernels)
    }

    /// Why NCCL has no such path for a collective, if so.
    pub fn misfit(self, primitive: Primitive) -> Option<&'static str> {
        use Primitive::{AllGather, AllReduce, ReduceScatter};
        if function(primitive).is_none() {
            return Some("NCCL makes it of sends and receives, without a choice of paths");
        }
        let has = match self {
            Forced::Ring | Forced::Ll | Forced::Ll128 | Forced::Simple => true,
            Forced::Tree | Forced::CollnetChain | Forced::NvlsTree => primitive == AllReduce,
            Forced::CollnetDirect | Forced::Nvls => matches!(primitive, AllReduce | AllGather | ReduceScatter),
            Forced::Pat => matches!(primitive, AllGather | ReduceScatter),
            Forced::Symmetric(Symmetric(kernel)) => {
                KERNELS.iter().any(|(name, primitives)| *name == kernel && primitives.contains(&primitive))
            }
        };
        (!has).then_some("NCCL has no such path for it")
    }

    /// Whether no launch can take both.
    pub const fn excludes(self, other: Forced) -> bool {
        match (self.aspect(), other.aspect()) {
            (Aspect::Kernel, _) | (_, Aspect::Kernel) => true,
            (Aspect::Algorithm, Aspect::Algorithm) | (Aspect::Protocol, Aspect::Protocol) => true,
            (Aspect::Algorithm, Aspect::Protocol) => !self.has(other),
            (Aspect::Protocol, Aspect::Algorithm) => !other.has(self),
        }
    }

    /// Whether an algorithm has a protocol: all but ring and tree have Simple only.
    const fn has(self, protocol: Forced) -> bool {
        matches!((self, protocol), (Forced::Ring | Forced::Tree, _) | (_, Forced::Simple))
    }

    const fn aspect(self) -> Aspect {
        match self {
            Forced::Ll | Forced::Ll128 | Forced::Simple => Aspect::Protocol,
            Forced::Symmetric(_) => Aspect::Kernel,
            _ => Aspect::Algorithm,
        }
    }

    /// The variables that ask for it, with their values for a collective.
    pub fn variables(self, primitive: Primitive) -> Vec<(&'static str, String)> {
        if let Some((_, _, variable, value, _)) = self.row() {
            return vec![(variable, (*value).to_owned())];
        }
        let kernel = self.logged(primitive);
        // off by default (2.30)
        let tma = kernel.contains("Tma").then(|| ("NCCL_SYM_TMA_ENABLE", "1".to_owned()));
        [(SYM_KERNEL, kernel)].into_iter().chain(tma).collect()
    }

    /// What NCCL's log calls it: `RING`, `LL128`, `AllReduce_AGxLL_R`.
    pub fn logged(self, primitive: Primitive) -> String {
        match (self, self.row()) {
            (_, Some((.., logged))) => (*logged).to_owned(),
            (Forced::Symmetric(Symmetric(kernel)), None) => {
                format!("{}_{kernel}", function(primitive).unwrap_or_default())
            }
            (_, None) => String::new(),
        }
    }

    /// What of a path it says.
    pub fn is_algorithm(self) -> bool {
        matches!(self.aspect(), Aspect::Algorithm)
    }

    /// Likewise.
    pub fn is_protocol(self) -> bool {
        matches!(self.aspect(), Aspect::Protocol)
    }

    fn row(self) -> Option<&'static (Forced, &'static str, &'static str, &'static str, &'static str)> {
        NAMES.iter().find(|(forced, ..)| *forced == self)
    }
}

/// What of a path is forced.
enum Aspect {
    Algorithm,
    Protocol,
    Kernel,
}

impl fmt::Display for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.row()) {
            (_, Some((_, spelling, ..))) => f.write_str(spelling),
            (Forced::Symmetric(Symmetric(kernel)), None) => write!(f, "{SYMMETRIC}{}", kernel.to_ascii_lowercase()),
            (_, None) => Ok(()),
        }
    }
}

/// A spelling that no path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such path")]
pub struct NotForced;

impl FromStr for Forced {
    type Err = NotForced;

    fn from_str(s: &str) -> Result<Forced, NotForced> {
        if let Some((forced, ..)) = NAMES.iter().find(|(_, spelling, ..)| *spelling == s) {
            return Ok(*forced);
        }
        let kernel = s.strip_prefix(SYMMETRIC).ok_or(NotForced)?;
        let known = KERNELS.iter().find(|(name, _)| name.to_ascii_lowercase() == kernel);
        known.map(|(name, _)| Forced::Symmetric(Symmetric(name))).ok_or(NotForced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forced(spelling: &str) -> Forced {
        spelling.parse().unwrap()
    }

    #[test]
    fn every_spelling_reads_back_and_is_one_part_of_a_name() {
        for path in Forced::all() {
            let text = path.to_string();
            assert_eq!(text.parse(), Ok(path));
            assert!(text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c)), "{text}");
            assert!(Primitive::ALL.iter().any(|p| path.misfit(*p).is_none()), "{text} is of no use");
        }
        assert!("Ring".parse::<Forced>().is_err() && "sym-x".parse::<Forced>().is_err());
    }

    #[test]
    fn exclusion_holds_both_ways_and_leaves_what_nccl_has() {
        for a in Forced::all() {
            for b in Forced::all() {
                assert_eq!(a.excludes(b), b.excludes(a), "{a} and {b}");
            }
        }
        let together = |a, b| !forced(a).excludes(forced(b));
        assert!(together("ring", "ll") && together("tree", "ll128") && together("nvls", "simple"));
        assert!(!together("nvls", "ll") && !together("ring", "tree") && !together("sym-ll", "ring"));
    }

    #[test]
    fn variables_and_log_names_are_nccls() {
        let all_reduce = Primitive::AllReduce;
        assert_eq!(forced("nvlstree").variables(all_reduce), [("NCCL_ALGO", "NVLSTree".to_owned())]);
        assert_eq!(forced("nvlstree").logged(all_reduce), "NVLS_TREE");
        assert_eq!(forced("simple").variables(all_reduce), [("NCCL_PROTO", "Simple".to_owned())]);
        let kernel = ("NCCL_SYM_KERNEL", "ReduceScatter_LL".to_owned());
        assert_eq!(forced("sym-ll").variables(Primitive::ReduceScatter), [kernel]);
        let tma = forced("sym-tmald").variables(Primitive::ReduceScatter);
        assert_eq!(tma[1], ("NCCL_SYM_TMA_ENABLE", "1".to_owned()));
        assert_eq!(forced("sym-agxll_r").logged(all_reduce), "AllReduce_AGxLL_R");
    }

    #[test]
    fn a_path_is_only_where_nccl_has_it() {
        let has = |path, primitive| forced(path).misfit(primitive).is_none();
        assert!(has("ring", Primitive::Reduce) && has("pat", Primitive::AllGather));
        assert!(!has("tree", Primitive::Broadcast) && !has("pat", Primitive::AllReduce));
        assert!(!has("ring", Primitive::Alltoall) && !has("sym-agxll_r", Primitive::AllGather));
    }
}
