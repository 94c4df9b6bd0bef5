//! The rings or trees of a communicator stand: `Connected all rings[, use ring PXN 0 GDR 1]`, `Connected all trees`.

use super::scan::Scan;

/// What stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connected {
    /// All rings.
    Rings {
        /// Whether they go through other GPUs' NICs; from 2.20 on.
        pxn: Option<bool>,
        /// Whether they use GPU Direct RDMA.
        gdr: Option<bool>,
    },
    /// All trees.
    Trees,
}

impl Connected {
    pub(super) fn read(text: &str) -> Option<Connected> {
        let mut scan = Scan(text);
        scan.eat("Connected all ")?;
        match scan.0 {
            "trees" => return Some(Connected::Trees),
            "rings" => return Some(Connected::Rings { pxn: None, gdr: None }),
            _ => {}
        }
        scan.eat("rings, use ring PXN ")?;
        let pxn = scan.number::<i32>()? != 0;
        scan.eat(" GDR ")?;
        let gdr = scan.number::<i32>()? != 0;
        Some(Connected::Rings { pxn: Some(pxn), gdr: Some(gdr) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_trees_are_told_apart() {
        let rings = |pxn, gdr| Some(Connected::Rings { pxn, gdr });
        assert_eq!(Connected::read("Connected all rings, use ring PXN 0 GDR 1"), rings(Some(false), Some(true)));
        assert_eq!(Connected::read("Connected all rings"), rings(None, None));
        assert_eq!(Connected::read("Connected all trees"), Some(Connected::Trees));
        assert_eq!(Connected::read("Connected all tre"), None);
        assert_eq!(Connected::read("Connected to proxy localRank 0"), None);
    }
}
