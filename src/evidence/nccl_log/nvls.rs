//! Whether a GPU can reduce in the switch: `NVLS multicast support is [not ]available on dev 0` (transport/nvls.cc).

use super::scan::Scan;

/// What one device can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nvls {
    /// Whether it can.
    pub available: bool,
    /// The CUDA device.
    pub device: u32,
}

impl Nvls {
    pub(super) fn read(text: &str) -> Option<Nvls> {
        let mut scan = Scan(text);
        scan.eat("NVLS multicast support is ")?;
        let available = scan.eat("not ").is_none();
        scan.eat("available on dev ")?;
        Some(Nvls { available, device: scan.number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn support_is_read_with_and_without_what_follows() {
        let nvls = |available, device| Some(Nvls { available, device });
        assert_eq!(Nvls::read("NVLS multicast support is available on dev 3"), nvls(true, 3));
        assert_eq!(Nvls::read("NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)"), nvls(false, 0));
        assert_eq!(Nvls::read("NVLS multicast support is not"), None);
    }
}
