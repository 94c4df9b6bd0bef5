//! NCCL's algorithms, and what `NCCL_ALGO` says of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::case::Primitive;

/// How NCCL carries a collective out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Algorithm {
    Ring,
    Tree,
    Nvls,
    NvlsTree,
    CollnetDirect,
    CollnetChain,
    Pat,
}

impl Algorithm {
    const ALL: [Algorithm; 7] = [
        Algorithm::Ring,
        Algorithm::Tree,
        Algorithm::Nvls,
        Algorithm::NvlsTree,
        Algorithm::CollnetDirect,
        Algorithm::CollnetChain,
        Algorithm::Pat,
    ];

    /// As golden files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Nvls => "nvls",
            Algorithm::NvlsTree => "nvls_tree",
            Algorithm::CollnetDirect => "collnet_direct",
            Algorithm::CollnetChain => "collnet_chain",
            Algorithm::Pat => "pat",
        }
    }

    /// Reads NCCL's spellings: `RING` and `NVLS_TREE` in logs, `Ring` and `NVLSTree` in `NCCL_ALGO`.
    ///
    /// `None` for what is not one of NCCL's classic algorithms, as symmetric kernels and copy engines.
    pub fn read(text: &str) -> Option<Self> {
        let plain = |s: &str| s.trim().replace(['_', '-'], "").to_ascii_lowercase();
        let wanted = plain(text);
        Algorithm::ALL.into_iter().find(|a| plain(a.name()) == wanted)
    }

    /// Whether it reduces inside the NVSwitch.
    pub(super) const fn uses_nvls(self) -> bool {
        matches!(self, Algorithm::Nvls | Algorithm::NvlsTree)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What `NCCL_ALGO` leaves to NCCL for one primitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allowed {
    All,
    Only(Vec<Algorithm>),
    AllBut(Vec<Algorithm>),
}

impl Allowed {
    /// Reads `NCCL_ALGO`: names with commas between, `^` in front to exclude them; since NCCL 2.24 also by function, as
    /// `ring;allreduce:tree,nvls` (a part without a function holds for the functions that are not named).
    pub fn read(variable: &str, primitive: Primitive) -> Self {
        let function = primitive.name().replace('_', "");
        let mut general = Allowed::All;
        for part in variable.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            match part.split_once(':') {
                Some((f, names)) if f.trim().replace('_', "").eq_ignore_ascii_case(&function) => {
                    return Allowed::names(names);
                }
                Some(_) => {}
                None => general = Allowed::names(part),
            }
        }
        general
    }

    fn names(text: &str) -> Self {
        let text = text.trim();
        let (excluded, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let names = text.split(',').filter_map(Algorithm::read).collect();
        if excluded { Allowed::AllBut(names) } else { Allowed::Only(names) }
    }

    /// The algorithm, where only one is left.
    pub fn single(&self) -> Option<Algorithm> {
        match self {
            Allowed::Only(names) => match names.as_slice() {
                [one] => Some(*one),
                _ => None,
            },
            Allowed::All | Allowed::AllBut(_) => None,
        }
    }

    /// Whether NCCL may use NVLS.
    pub fn nvls(&self) -> bool {
        match self {
            Allowed::All => true,
            // A value that NCCL does not know leaves it its choice.
            Allowed::Only(names) => names.is_empty() || names.iter().any(|a| a.uses_nvls()),
            Allowed::AllBut(names) => !names.contains(&Algorithm::Nvls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_nccl_is_read() {
        for (text, algorithm) in [
            ("RING", Some(Algorithm::Ring)),
            ("Ring", Some(Algorithm::Ring)),
            ("NVLS_TREE", Some(Algorithm::NvlsTree)),
            ("NVLSTree", Some(Algorithm::NvlsTree)),
            ("CollNetDirect", Some(Algorithm::CollnetDirect)),
            ("collnet_chain", Some(Algorithm::CollnetChain)),
            ("Symmetric", None),
            ("", None),
        ] {
            assert_eq!(Algorithm::read(text), algorithm, "{text}");
        }
    }

    #[test]
    fn nccl_algo_says_which_algorithm_and_whether_nvls() {
        for (variable, primitive, single, nvls) in [
            ("", Primitive::AllReduce, None, true),
            ("Ring", Primitive::AllReduce, Some(Algorithm::Ring), false),
            ("ring,tree", Primitive::AllReduce, None, false),
            ("Tree,NVLS", Primitive::AllReduce, None, true),
            ("^NVLS,NVLSTree", Primitive::AllReduce, None, false),
            ("^Tree", Primitive::AllReduce, None, true),
            ("ring;allreduce:tree", Primitive::AllReduce, Some(Algorithm::Tree), false),
            ("ring;allreduce:tree", Primitive::AllGather, Some(Algorithm::Ring), false),
            ("allreduce:tree", Primitive::AllGather, None, true),
            ("reducescatter:pat", Primitive::ReduceScatter, Some(Algorithm::Pat), false),
            ("nonsense", Primitive::AllReduce, None, true),
        ] {
            let allowed = Allowed::read(variable, primitive);
            assert_eq!((allowed.single(), allowed.nvls()), (single, nvls), "{variable} for {primitive}");
        }
    }
}
