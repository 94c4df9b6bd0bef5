//! A communicator begins or ends (init.cc).
//!
//! ```text
//! [ncclCommInitRank ]comm 0x.. rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x.. - Init START     2.18 on
//! [Rank 0] ncclCommInitRank comm 0x.. rank 0 nranks 2 ... - Init START                                   2.30 on
//! ncclCommSplit comm 0x.. rank 0 nranks 2 ... parent 0x.. color 1 key 0- Init START
//! comm 0x.. rank 0 nranks 2 cudaDev 0 busId 60 - Abort COMPLETE
//! ```

/// How far a communicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Stage {
    InitStart,
    InitComplete,
    AbortComplete,
    DestroyComplete,
}

/// One stage of one rank's communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Init {
    /// Which stage.
    pub stage: Stage,
    /// The call, as `ncclCommSplit`; empty where the version does not say.
    pub call: String,
    /// The communicator's address in its process.
    pub comm: u64,
    /// The rank.
    pub rank: u32,
    /// Ranks of the communicator.
    pub nranks: u32,
    /// The CUDA device.
    pub cuda_device: Option<u32>,
    /// The device as the driver numbers it.
    pub nvml_device: Option<u32>,
    /// The GPU's PCI address as NCCL writes it, as `60`.
    pub bus: String,
    /// What all ranks of the communicator have in common; absent for children.
    pub comm_id: Option<u64>,
    /// The parent's address, for children.
    pub parent: Option<u64>,
}

const STAGES: [(&str, Stage); 4] = [
    ("- Init START", Stage::InitStart),
    ("- Init COMPLETE", Stage::InitComplete),
    ("- Abort COMPLETE", Stage::AbortComplete),
    ("- Destroy COMPLETE", Stage::DestroyComplete),
];

impl Init {
    pub(super) fn read(text: &str) -> Option<Init> {
        let (facts, stage) = STAGES.iter().find_map(|(end, stage)| Some((text.strip_suffix(end)?, *stage)))?;
        let facts = match facts.strip_prefix("[Rank ") {
            Some(rest) => rest.split_once("] ")?.1,
            None => facts,
        };
        let (call, facts) = if facts.starts_with("comm ") {
            ("", facts)
        } else {
            facts.split_once(" ").filter(|(_, f)| f.starts_with("comm "))?
        };
        let words: Vec<&str> = facts.split_whitespace().collect();
        let value = |name: &str| {
            let pair = words.chunks_exact(2).find(|pair| pair.first() == Some(&name))?;
            pair.get(1).copied()
        };
        let hex = |name: &str| {
            let text = value(name)?;
            u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
        };
        Some(Init {
            stage,
            call: call.to_owned(),
            comm: hex("comm")?,
            rank: value("rank")?.parse().ok()?,
            nranks: value("nranks")?.parse().ok()?,
            cuda_device: value("cudaDev").and_then(|v| v.parse().ok()),
            nvml_device: value("nvmlDev").and_then(|v| v.parse().ok()),
            bus: value("busId").unwrap_or_default().to_owned(),
            comm_id: hex("commId"),
            parent: hex("parent"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_beginning_and_an_end_is_read() {
        let facts = "comm 0x1f rank 1 nranks 2 cudaDev 1 nvmlDev 4 busId 70";
        let plain = Init {
            stage: Stage::InitStart,
            call: String::new(),
            comm: 0x1f,
            rank: 1,
            nranks: 2,
            cuda_device: Some(1),
            nvml_device: Some(4),
            bus: "70".into(),
            comm_id: None,
            parent: None,
        };
        let call = "ncclCommInitRank".to_owned();
        for (text, init) in [
            (format!("{facts} commId 0xab - Init START"), Init { comm_id: Some(0xab), ..plain.clone() }),
            (
                format!("[Rank 1] ncclCommInitRank {facts} commId 0xab - Init START"),
                Init { comm_id: Some(0xab), call: call.clone(), ..plain.clone() },
            ),
            (
                format!("ncclCommInitRank {facts} commId 0xab - Init COMPLETE"),
                Init { comm_id: Some(0xab), call, stage: Stage::InitComplete, ..plain.clone() },
            ),
            (
                format!("ncclCommSplit {facts} parent 0x2 splitCount 1 color 1 key 0- Init START"),
                Init { parent: Some(2), call: "ncclCommSplit".into(), ..plain.clone() },
            ),
            (
                "comm 0x1f rank 1 nranks 2 cudaDev 1 busId 70 - Abort COMPLETE".to_owned(),
                Init { stage: Stage::AbortComplete, nvml_device: None, ..plain },
            ),
        ] {
            assert_eq!(Init::read(&text), Some(init), "{text}");
        }
    }

    #[test]
    fn a_stage_without_a_communicator_is_none() {
        assert_eq!(Init::read("rank 1 nranks 2 - Init START"), None);
        assert_eq!(Init::read("comm 0x1f rank 1 - Init START"), None);
        assert_eq!(Init::read("comm 0x1f rank 1 nranks 2 - Init ST"), None);
    }
}
