//! What known texts in logs mean.

/// The meaning of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The network or the link between GPUs failed.
    Fabric,
    /// The GPU of the rank that says so failed, or its driver gave up.
    Device,
    /// The other end went away: mostly a consequence.
    PeerGone,
    /// Memory ran out, or the kernel killed the process for it.
    Memory,
    /// A timer ran out: a consequence of any hang, which tells nothing of the cause.
    Timeout,
}

/// Lower-case fragments, all of which must occur. The first line that fits decides.
const SIGNS: &[(&[&str], Sign)] = &[
    (&["watchdog caught collective operation timeout"], Sign::Timeout),
    (&["out of memory"], Sign::Memory),
    (&["oom-kill"], Sign::Memory),
    (&["killed process"], Sign::Memory),
    (&["got completion", "error"], Sign::Fabric),
    (&["ibv_", "failed"], Sign::Fabric),
    (&["ibv_", "error"], Sign::Fabric),
    (&["async event", "fatal"], Sign::Fabric),
    (&["port_err"], Sign::Fabric),
    (&["mlx5", "error"], Sign::Fabric),
    (&["link", "down"], Sign::Fabric),
    (&["connection timed out"], Sign::Fabric),
    (&["no route to host"], Sign::Fabric),
    (&["nvlink", "error"], Sign::Device),
    (&["xid ("], Sign::Device),
    (&["xid:"], Sign::Device),
    (&["uncorrectable", "ecc"], Sign::Device),
    (&["fallen off the bus"], Sign::Device),
    (&["cuda failure"], Sign::Device),
    (&["unhandled cuda error"], Sign::Device),
    (&["cuda error"], Sign::Device),
    (&["socket closed"], Sign::PeerGone),
    (&["connection closed"], Sign::PeerGone),
    (&["connection reset"], Sign::PeerGone),
    (&["connection refused"], Sign::PeerGone),
    (&["broken pipe"], Sign::PeerGone),
    (&["remote process exited"], Sign::PeerGone),
    (&["ncclremoteerror"], Sign::PeerGone),
];

/// What a message means, if it is known.
pub fn sign(message: &str) -> Option<Sign> {
    let text = message.to_ascii_lowercase();
    let fits = |fragments: &[&str]| fragments.iter().all(|fragment| text.contains(fragment));
    SIGNS.iter().find(|(fragments, _)| fits(fragments)).map(|(_, sign)| *sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_libraries_and_kernel_are_understood() {
        for (text, expected) in [
            (
                "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 error",
                Some(Sign::Fabric),
            ),
            ("NCCL WARN Cuda failure 719 'unspecified launch failure'", Some(Sign::Device)),
            ("NCCL WARN Cuda failure 2 'out of memory'", Some(Sign::Memory)),
            ("NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.", Some(Sign::Device)),
            ("socket closed by remote peer", Some(Sign::PeerGone)),
            ("Out of memory: Killed process 4711 (python3)", Some(Sign::Memory)),
            ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6)", Some(Sign::Timeout)),
            ("NCCL WARN Missing \"iommu=pt\" from kernel command line", None),
            ("the maxid is 7", None),
        ] {
            assert_eq!(sign(text), expected, "{text}");
        }
    }
}
