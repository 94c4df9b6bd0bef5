//! Whether a NIC reads and writes GPU memory itself (graph/paths.cc, graph/topo.cc).
//!
//! ```text
//! GPU Direct RDMA Enabled for GPU c1000 / HCA 0 (distance 3 <= 4), read 1             2.18..2.23: PCI address
//! GPU Direct RDMA Disabled for GPU 3 / HCA 1f0 (distance 7 > 4)                       2.24..2.29: rank
//! NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'                                 2.18 on
//! ```

use super::scan::Scan;

/// What a line says of one NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gdr {
    /// Whether it does.
    pub enabled: bool,
    /// The GPU: its PCI address up to 2.23, its rank from 2.24 on. `None` where the line is about the NIC alone.
    pub gpu: Option<String>,
    /// The NIC's number, as NCCL counts.
    pub hca: String,
    /// The NIC's name.
    pub name: Option<String>,
    /// How far GPU and NIC are apart, and how far they may be, in NCCL's types of path.
    pub distance: Option<(u32, u32)>,
}

impl Gdr {
    pub(super) fn read(text: &str) -> Option<Gdr> {
        let mut scan = Scan(text);
        let plugin = scan.until("GPU Direct RDMA ")?;
        let enabled = scan.eat("Enabled").is_some();
        if !enabled {
            scan.eat("Disabled")?;
        }
        if plugin.is_empty() {
            scan.eat(" for GPU ")?;
            let gpu = Some(scan.word()?.to_owned());
            scan.eat(" / HCA ")?;
            let hca = scan.word()?.to_owned();
            scan.eat(" (distance ")?;
            let is = scan.number()?;
            if scan.eat(" > ").is_none() {
                scan.eat(" <= ")?;
            }
            let limit = scan.number()?;
            scan.eat(")")?;
            return Some(Gdr { enabled, gpu, hca, name: None, distance: Some((is, limit)) });
        }
        plugin.strip_prefix("NET/")?.strip_suffix(" : ")?;
        scan.eat(" for HCA ")?;
        let hca = scan.word()?.to_owned();
        scan.eat(" '")?;
        let name = Some(scan.until("'")?.to_owned());
        Some(Gdr { enabled, gpu: None, hca, name, distance: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let pair = |enabled, gpu: &str, hca: &str, distance| {
            Some(Gdr { enabled, gpu: Some(gpu.into()), hca: hca.into(), name: None, distance: Some(distance) })
        };
        for (text, gdr) in [
            (
                "GPU Direct RDMA Enabled for GPU c1000 / HCA 0 (distance 3 <= 4), read 1",
                pair(true, "c1000", "0", (3, 4)),
            ),
            ("GPU Direct RDMA Disabled for GPU 3 / HCA 1f0 (distance 7 > 4)", pair(false, "3", "1f0", (7, 4))),
            (
                "GPU Direct RDMA Enabled for GPU 3 / HCA 0 (distance 3 <= 5), read 0 mode PCI",
                pair(true, "3", "0", (3, 5)),
            ),
            (
                "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'",
                Some(Gdr { enabled: false, gpu: None, hca: "0".into(), name: Some("eth0".into()), distance: None }),
            ),
            ("GPU Direct RDMA Disabled for GPU 3 / HCA 1f0 (dist", None),
            ("HINT: this would break GPU Direct RDMA protocol.", None),
        ] {
            assert_eq!(Gdr::read(text), gdr, "{text}");
        }
    }
}
